"""PyMC models: checks, prior draws, transforms and log densities."""
