"""Densities fitted to a population, from which importance sampling and bridges start."""
