"""Targets with kernels of their own, a folder each: state, kernels, path and setup."""
