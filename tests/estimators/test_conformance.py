"""What every estimator of work has to do: one set of rules for all of them."""

from functools import partial

import numpy as np
import pytest
from scipy import stats

from pm_evidence.core.records import LogEvidence
from tests.estimators.refusals import check_refused
from tests.estimators.work import (
    BOTH,
    ESTIMATORS,
    FORWARD,
    REVERSE,
    clustered_pair,
    covers,
    gaussian_pair,
    truth_of,
)

INF = np.inf
NAMES = list(ESTIMATORS)
every = pytest.mark.parametrize("name", NAMES)


def make(seed, sd=0.5, n_forward=60, n_reverse=40):
    return gaussian_pair(np.random.default_rng(seed), sd, n_forward, n_reverse)


def numbers(found):
    return np.array([found.value, found.mcse, found.lower, found.upper])


# --- what it returns ---


@every
def test_result(name):
    """Plain floats, an interval around the value, its own name; a message where it is not "ok"."""
    given = *make(1), np.arange(60) // 3, np.arange(40) // 2
    before = [part.copy() for part in given]
    found = ESTIMATORS[name](*given[:2], forward_blocks=given[2], reverse_blocks=given[3])
    for part, old in zip(given, before, strict=True):
        np.testing.assert_array_equal(part, old)  # stored work is estimated again and again
    assert isinstance(found, LogEvidence) and found.estimator == name
    assert all(type(part) is float for part in (found.value, found.mcse, found.lower, found.upper))
    assert found.lower < found.value < found.upper
    assert (found.status == "ok") == (found.message == "")


@every
def test_the_interval_is_that_of_its_degrees_of_freedom(name):
    """One meaning of 95 %: tables and plots make the same interval from ``mcse`` and ``dof``."""
    forward, reverse = make(2)
    few = {"forward_blocks": np.arange(60) // 12, "reverse_blocks": np.arange(40) // 8}
    for blocks in ({}, few):
        found = ESTIMATORS[name](forward, reverse, **blocks)
        half = stats.t.ppf(0.975, found.dof) * found.mcse
        ends = [found.value - half, found.value + half]
        np.testing.assert_allclose([found.lower, found.upper], ends, rtol=1e-9)
    assert 3.9 < found.dof < 8.1  # five blocks in each direction that is used


# --- blocks ---


@every
def test_copies_add_nothing(name):
    """Each path three times, as a block: the same interval; without blocks it is too short.

    The sample variance of n copies is smaller by about 1 / n, which moves cumulants a little.
    """
    forward, reverse = make(7)
    plain = ESTIMATORS[name](forward, reverse)
    copies = np.repeat(forward, 3), np.repeat(reverse, 3)
    blocks = np.repeat(np.arange(60), 3), np.repeat(np.arange(40), 3)
    blocked = ESTIMATORS[name](*copies, forward_blocks=blocks[0], reverse_blocks=blocks[1])
    rtol = 1e-3 if name.startswith("cumulant") else 1e-9
    np.testing.assert_allclose(numbers(blocked), numbers(plain), rtol=rtol)
    assert ESTIMATORS[name](*copies).mcse == pytest.approx(plain.mcse / np.sqrt(3), rel=0.02)


@every
def test_coverage_of_clustered_work(name):
    """20 blocks of 10 paths: 90 to 99 % of 200 intervals hold, and without blocks they do not.

    Seed 8; a right interval leaves that range with a probability of 2e-3.
    """
    rng, estimate, blocked, plain = np.random.default_rng(8), ESTIMATORS[name], 0, 0
    for _ in range(200):
        works, blocks, sd = clustered_pair(rng, 20, 10)
        truth = truth_of(name, sd)
        blocked += covers(estimate(*works, forward_blocks=blocks, reverse_blocks=blocks), truth)
        plain += covers(estimate(*works), truth)
    assert 0.90 <= blocked / 200 <= 0.99
    assert plain / 200 < 0.75


# --- intervals ---


@every
def test_coverage(name):
    """Narrow normal work: 90 to 99 % of 200 intervals hold the truth. Seed 9."""
    rng, truth = np.random.default_rng(9), truth_of(name, 0.3)
    found = [ESTIMATORS[name](*gaussian_pair(rng, 0.3, 50, 100)) for _ in range(200)]
    assert 0.90 <= np.mean([covers(estimate, truth) for estimate in found]) <= 0.99


# --- input that cannot be right ---

BAD = [
    ([], "at least one path|a non-empty vector"),
    (3.0, r"a non-empty vector, got shape \(\); pass one value per path"),
    ([[1.0, 2.0]], r"a non-empty vector, got shape \(1, 2\); pass one value per path"),
    ([0.0, np.nan, np.nan], "got nan at 2 of 3 paths, first at index 1; find out why"),
    ([0.0, 1.0, -INF], "got -inf at 1 of 3 paths, first at index 2; find out why"),
]


@every
def test_bad_work(name):
    """Work that is dropped biases the evidence: it is refused by name, with what to do.

    A path from the target cannot have weight zero. For a missing direction the remedy is to run
    both ways, or to take the estimator of one.
    """
    cases = []
    for side in (0, 1):
        if (name in FORWARD and side == 1) or (name in REVERSE and side == 0):
            continue
        parameter = ("work_forward", "work_reverse")[side] if name in BOTH else "work"
        bad = [(work, f"{parameter} must .*({message})") for work, message in BAD]
        if side == 1:
            bad.append(
                ([0.0, INF], r"must be finite, got inf at 1 of 2 .* index 1; (find|use jarz)")
            )
        if name in BOTH:
            bad.append(([], r"Run with direction='both', or use jarzynski"))
        for work, message in bad:
            given = list(make(12))
            given[side] = work
            cases.append((tuple(given), message))
    check_refused(ESTIMATORS[name], cases)


@every
def test_bad_blocks(name):
    """Labels that are too few, or rounded, would tie the wrong paths together."""
    forward, reverse = make(15, n_reverse=60)
    sides = {"forward_blocks", "reverse_blocks"}
    sides -= {"reverse_blocks"} if name in FORWARD else set()
    sides -= {"forward_blocks"} if name in REVERSE else set()
    for side in sides:
        parameter = side if name in BOTH else "blocks"
        message = f"^{parameter} must have one integer per path.*leave"
        for blocks in (np.arange(7), np.zeros((60, 1), int), np.zeros(60), [True] * 60):
            call = partial(ESTIMATORS[name], forward, reverse)
            check_refused(call, [({side: blocks}, message)])
