"""A Gaussian reference that is annealed to a Gaussian target."""
