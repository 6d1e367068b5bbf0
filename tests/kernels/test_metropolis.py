"""The Metropolis decision that every proposal passes."""

import numba as nb
import numpy as np
import pytest

from pm_evidence.core.random import streams
from pm_evidence.kernels.metropolis import acceptance_probability, accepts


@nb.njit
def share_accepted(log_ratio, stream, n):
    count = 0
    for _ in range(n):
        count += accepts(log_ratio, stream)
    return count / n


@pytest.mark.parametrize(
    ("log_ratio", "expected"),
    [
        (0.0, 1.0),
        (3.0, 1.0),
        (np.inf, 1.0),
        (-np.log(2.0), 0.5),
        (-700.0, np.exp(-700.0)),
        (-800.0, 0.0),
        (-np.inf, 0.0),
        (np.nan, 0.0),
    ],
)
def test_probability_and_decision(log_ratio, expected):
    """100,000 decisions, seed 1: a share that is off by five errors fails, 6e-7 by chance.

    A proposal whose density is not a number is refused, or the population would be lost to it.
    """
    assert acceptance_probability(log_ratio) == pytest.approx(expected, rel=1e-14)
    stream, n = streams(np.random.SeedSequence(1), 1)[0], 100_000
    share = share_accepted(log_ratio, stream, n)
    assert abs(share - expected) <= 5.0 * np.sqrt(expected * (1.0 - expected) / n)
