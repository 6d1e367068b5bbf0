"""Families of unnormalised densities between the reference and the target."""
