"""Gaussian process classification with a probit likelihood."""
