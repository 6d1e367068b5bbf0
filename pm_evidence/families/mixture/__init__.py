"""Mixtures of normal distributions, annealed by adding one data point after the other."""
