"""Targets with their own kernels, one folder for each: state, kernels, path and setup."""
