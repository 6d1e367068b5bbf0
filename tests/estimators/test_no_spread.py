"""Work without any spread, or so far apart that probabilities are exactly 0 and 1.

A division by the error of such work ended in ZeroDivisionError, on one processor and not another.
"""

from itertools import product

import numpy as np
import pytest

from pm_evidence import estimators

ONE_SIDED = (
    "cumulant_forward",
    "cumulant_reverse",
    "jarzynski",
    "jarzynski_reverse",
    "lower_bound",
    "upper_bound",
)
TWO_SIDED = ("bar", "cumulant", "histogram", "histogram_posterior")
WORK = {
    "zeros": np.zeros(40),
    "equal": np.full(40, 3.25),
    "large and equal": np.full(40, 1e6),
    "rounding": np.r_[np.zeros(39), 1e-15],
    "far below": np.r_[np.zeros(39), -800.0],
    "far above": np.r_[np.zeros(39), 800.0],
    "two, apart": np.array([-1000.0, 1000.0]),
    "tiny": np.array([0.0, 1e-300]),
    "two values": np.repeat([1.0, 2.0], 20),
}


@pytest.mark.parametrize("name", ONE_SIDED)
def test_one_sided(name):
    for kind, work in WORK.items():
        found = getattr(estimators, name)(work)
        assert np.isfinite(found.value) and not found.mcse < 0.0, kind


@pytest.mark.parametrize("name", TWO_SIDED)
def test_two_sided(name):
    options = {"draws": 30, "random_seed": 1} if name == "histogram_posterior" else {}
    for forward, reverse in product(WORK, WORK):
        found = getattr(estimators, name)(WORK[forward], WORK[reverse], **options)
        assert not found.mcse < 0.0, (forward, reverse)


def test_directions_that_are_never_in_doubt_cannot_contradict_each_other():
    """The score test divided by the number of paths that could be of either direction."""
    found = estimators.bar(np.zeros(1), np.array([-1000.0, 1000.0]))
    assert np.isfinite(found.value)
    assert found.status != "ok"
