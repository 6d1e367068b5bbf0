"""One Gaussian carried into another."""
