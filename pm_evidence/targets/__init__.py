"""What is annealed: a reference that can be sampled and an unnormalised target density."""
