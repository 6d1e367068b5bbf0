"""Draws from one side of a normal distribution, exact also far in the tail."""

from math import exp, log, sqrt

from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.random import fill_normal, uniform

__all__ = ["excess"]

# Above this bound fewer proposals are rejected by the exponential than by the normal distribution.
_FROM_EXPONENTIAL = 0.45


@njit
def excess(bound, stream, room):
    """Return ``t - bound`` for a standard normal ``t`` given ``t > bound``.

    Below a bound of 0.45 normal draws are repeated until one is large enough. Above, proposals are
    exponential with the rate that Robert (1995) found best. The excess itself is drawn, so that
    no digits are lost where the bound is large.

    Parameters
    ----------
    bound : float
    stream : uint64 array, shape (4,)
    room : float64 array, shape (1,)
        Is overwritten.
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
