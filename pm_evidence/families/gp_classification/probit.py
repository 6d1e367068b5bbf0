"""The log of the normal distribution function, and its slope, in compiled code."""

from math import erfc, exp, log, log1p, pi, sqrt

import numpy as np

from pm_evidence.core.codegen.numba import njit

__all__ = ["hazards", "log_ndtr_and_slope"]

_ROOT_HALF = sqrt(0.5)
_HALF_LOG_2_PI = 0.5 * log(2.0 * pi)
_TAIL = -10.0  # below this the continued fraction is exact after few terms
_TERMS = 24


@njit
def log_ndtr_and_slope(t):
    """Return ``log Phi(t)`` in nats and its derivative, ``phi(t) / Phi(t)``, also far in the tail.

    Below -10, ``Phi(t) = phi(t) / (|t| + 1 / (|t| + 2 / (|t| + ...)))``, the continued fraction of
    Laplace, of which 24 terms are exact to the last digits there.
    """
    if t > _TAIL:
        probability = 0.5 * erfc(-t * _ROOT_HALF)
        value = log(probability) if t < 0.0 else log1p(-0.5 * erfc(t * _ROOT_HALF))
        return value, exp(-0.5 * t * t - _HALF_LOG_2_PI) / probability
    slope = -t
    for k in range(_TERMS, 0, -1):
        slope = -t + k / slope
    return -0.5 * t * t - _HALF_LOG_2_PI - log(slope), slope


@njit
def hazards(t):
    """Return ``phi(t) / Phi(t)`` of all entries of a vector."""
    out = np.empty(t.size)
    for i in range(t.size):
        out[i] = log_ndtr_and_slope(t[i])[1]
    return out
