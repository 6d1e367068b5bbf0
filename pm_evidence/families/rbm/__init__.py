"""Restricted Boltzmann machines."""
