"""Densities that annealing, importance sampling and bridges start from."""

from pm_evidence.references.given import Mixture, Normal, StudentT

__all__ = ["Mixture", "Normal", "StudentT"]
