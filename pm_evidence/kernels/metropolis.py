"""The Metropolis acceptance step, shared by all kernels that make proposals."""

from math import exp, log

from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.random import uniform

__all__ = ["acceptance_probability", "accepts"]


@njit
def accepts(log_ratio, stream):
    """Return whether a proposal with this log density ratio is accepted; never if it is NaN."""
    return log(uniform(stream)) < log_ratio


@njit
def acceptance_probability(log_ratio):
    """Return ``min(1, exp(log_ratio))``, 0 for NaN."""
    if log_ratio >= 0.0:
        return 1.0
    return exp(log_ratio) if log_ratio > -745.0 else 0.0
