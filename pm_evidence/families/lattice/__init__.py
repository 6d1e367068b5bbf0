"""Ising and Potts lattices."""
