"""Compiled arithmetic: products that no other member changes, probits, and normal tails."""

from math import erfc, exp, log, log1p, pi, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.numerics import fused
from pm_evidence.core.random import fill_normal, uniform

Floats = NDArray[np.float64]

# Members that are moved together: one number of each fills eight vectors of eight doubles. With 32
# of their values, their sums of products stay in the first cache.
_TOGETHER, BLOCK = 64, 32
_ROWS = 8


def width_of(n: int) -> int:
    """Return how many of ``n`` members are moved together, in whole vectors.

    All groups have about the same size, so that few columns are left empty.
    """
    n_groups = max(-(-n // _TOGETHER), 1)
    return max(-(-n // (n_groups * _ROWS)), 1) * _ROWS


@njit
def multiply(matrix, chosen, values, out):
    """Set ``out`` to the chosen rows of a matrix times values."""
    k, width = values.shape
    for i in range(chosen.size):
        sums = out[i]
        for c in range(width):
            sums[c] = 0.0
    j = 0
    while j + _ROWS <= k:  # eight rows of values stay in the first cache
        for i in range(chosen.size):
            _add_rows(out[i], matrix[chosen[i], j : j + _ROWS], values[j : j + _ROWS])
        j += _ROWS
    for rest in range(j, k):
        for i in range(chosen.size):
            add(out[i], matrix[chosen[i], rest], values[rest])


def times(matrix: Floats, values: Floats) -> Floats:
    """Return a matrix times values, one member in each column."""
    out, products = np.empty((len(matrix), values.shape[1])), np.empty((BLOCK, values.shape[1]))
    _multiply_blocks(matrix, np.ascontiguousarray(values), out, products)
    return out


@njit
def _multiply_blocks(matrix, values, out, products):
    for start in range(0, matrix.shape[0], BLOCK):
        stop = min(start + BLOCK, matrix.shape[0])
        multiply(matrix, np.arange(start, stop), values, products)
        out[start:stop] = products[: stop - start]


@njit
def _add_rows(sums, factors, rows):
    a, b, c, d = factors[0], factors[1], factors[2], factors[3]
    e, f, g, h = factors[4], factors[5], factors[6], factors[7]
    for m in range(sums.size):
        total = fused(a, rows[0, m], sums[m])
        total = fused(b, rows[1, m], total)
        total = fused(c, rows[2, m], total)
        total = fused(d, rows[3, m], total)
        total = fused(e, rows[4, m], total)
        total = fused(f, rows[5, m], total)
        total = fused(g, rows[6, m], total)
        sums[m] = fused(h, rows[7, m], total)


@njit
def add(sums, factor, row):
    """Add a number times a row to ``sums``."""
    for m in range(sums.size):
        sums[m] = fused(factor, row[m], sums[m])


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


def log_ndtr_and_hazards(t: Floats) -> tuple[Floats, Floats]:
    """Return ``log Phi(t)`` in nats and its derivative, ``phi(t) / Phi(t)``."""
    value = log_ndtr(t)
    return value, np.exp(-0.5 * t * t - _HALF_LOG_2_PI - value)


# Above this bound fewer proposals are rejected by the exponential than by the normal distribution.
_FROM_EXPONENTIAL = 0.45


@njit
def excess(bound, stream, room):
    """Return ``t - bound`` for a standard normal ``t`` given ``t > bound``.

    Below a bound of 0.45 normal draws are repeated until one is large enough. Above, proposals are
    exponential with the rate that Robert (1995) found best. The excess itself is drawn, so that
    no digits are lost where the bound is large.
    """
    if bound < _FROM_EXPONENTIAL:
        while True:
            fill_normal(stream, room)
            if room[0] > bound:
                return room[0] - bound
    rate = 0.5 * (bound + sqrt(bound * bound + 4.0))
    while True:
        over = -log(uniform(stream)) / rate
        away = bound + over - rate
        if uniform(stream) <= exp(-0.5 * away * away):
            return over
