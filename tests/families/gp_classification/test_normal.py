"""Draws of the excess of a normal over a bound."""

import numba as nb
import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import kstest

from pm_evidence.core.random import streams
from pm_evidence.families.gp_classification.normal import excess


@nb.njit
def many(bound, stream, out):
    room = np.empty(1)
    for i in range(out.size):
        out[i] = excess(bound, stream, room)


@pytest.mark.parametrize("bound", [-40.0, -1.0, 0.449, 0.451, 3.0, 12.0, 1000.0])
def test_the_excess_has_the_distribution_of_a_normal_tail(bound):
    """On both sides of the bound at which the proposal changes, and where tails underflow."""
    out = np.empty(50_000)
    many(bound, streams(np.random.SeedSequence(1), 1)[0], out)
    assert (out > 0.0).all() or bound == -40.0

    def survival(t):
        return np.exp(log_ndtr(-(bound + t)) - log_ndtr(-bound))

    if bound < 100.0:
        assert kstest(out, lambda t: 1.0 - survival(t)).pvalue > 1e-6
    else:  # an exponential with the rate of the bound
        assert kstest(out * bound, "expon").pvalue > 1e-6
