"""A PyMC model: what it may hold, prior draws, transforms and log densities."""
