"""Training of restricted Boltzmann machines, and log Z while they are trained."""
