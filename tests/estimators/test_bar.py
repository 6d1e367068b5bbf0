"""Bennett's ratio: exact answers, other implementations, intervals that hold, contradictions."""

import numpy as np
import pytest
from pymbar.other_estimators import bar as pymbar_bar

from pm_evidence.estimators import bar
from pm_evidence.estimators.bar import bar_log_evidence, overlap
from tests.estimators.refusals import check_refused
from tests.estimators.work import (
    ANNEALED_LOG_Z,
    LOG_Z,
    annealed_pair,
    covers,
    gamma_log_z,
    gamma_pair,
    gaussian_pair,
)

INF = np.inf

# Shares of two work values that obey the theorem: 1/2 and 1/2 forward, 2/3 and 1/3 in reverse.
TWO_FORWARD, TWO_REVERSE = np.array([0.0, np.log(2.0)]), np.array([0.0, 0.0, np.log(2.0)])
TWO_LOG_Z = np.log(0.75)


# --- values ---


@pytest.mark.parametrize("size", [0.01, 3.0, 1e5])
def test_any_size_of_the_reverse_side_is_consistent(size):
    """Shares in the theorem's own proportions give log Z exactly, whatever their weights."""
    for forward, reverse in ((TWO_FORWARD, TWO_REVERSE), (np.tile(TWO_FORWARD, 7), TWO_REVERSE)):
        assert bar(forward, reverse, reverse_size=size).value == pytest.approx(TWO_LOG_Z, rel=1e-12)
        own = bar(forward, reverse, reverse_size=len(reverse))
        assert own == bar(forward, reverse)


@pytest.mark.parametrize(
    ("forward", "reverse", "log_z"),
    [
        ([0.0], [0.0], 0.0),
        ([31.3] * 3, [31.3] * 5, -31.3),
        ([3.0, 3.0], [1.0, 1.0], -2.0),  # equal numbers meet in the middle
        (TWO_FORWARD, TWO_REVERSE, TWO_LOG_Z),
        (np.tile(TWO_FORWARD, 30), TWO_REVERSE, TWO_LOG_Z),
        (TWO_FORWARD, np.tile(TWO_REVERSE, 40), TWO_LOG_Z),
        (TWO_FORWARD + 1e4, TWO_REVERSE + 1e4, TWO_LOG_Z - 1e4),
        (TWO_FORWARD - 1e4, TWO_REVERSE - 1e4, TWO_LOG_Z + 1e4),
        (np.append(TWO_FORWARD, [INF, INF]), TWO_REVERSE, TWO_LOG_Z - np.log(2.0)),
    ],
)
def test_exact_shares(forward, reverse, log_z):
    """Samples in the theorem's own proportions give log Z exactly, for any numbers of paths."""
    assert bar(forward, reverse).value == pytest.approx(log_z, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("n_forward", "n_reverse", "sd", "shift"),
    [
        (500, 500, 2.0, 0.0),
        (100, 2000, 2.0, 0.0),
        (3000, 50, 2.0, 0.0),
        (100, 3000, 1.0, -1e4),
        (500, 500, 2.0, 1e4),
        (40, 10, 0.1, 0.0),
        (300, 900, 7.0, 0.0),  # hardly any overlap
    ],
)
def test_agrees_with_pymbar(n_forward, n_reverse, sd, shift):
    """Another implementation has the same root and the same asymptotic error. Seed 1."""
    forward, reverse = gaussian_pair(np.random.default_rng(1), sd, n_forward, n_reverse)
    forward, reverse = forward + shift, reverse + shift
    theirs = pymbar_bar(forward, -reverse, relative_tolerance=1e-15)
    ours, shared = bar(forward, reverse), overlap(forward, reverse)
    assert ours.value == pytest.approx(-theirs["Delta_f"], abs=1e-8)
    error = np.sqrt(sum(np.sum(part**2) for part in shared.contributions()))
    assert error == pytest.approx(theirs["dDelta_f"], abs=1e-8)
    # ours has n - 1 for n in the variance of each direction
    fewest = min(n_forward, n_reverse)
    assert error < ours.mcse <= error * np.sqrt(fewest / (fewest - 1)) * (1 + 1e-12)


@pytest.mark.parametrize("far", [1e6, 1e36, 1e300])
@pytest.mark.parametrize("size", [None, 3.0])
def test_a_path_of_next_to_no_weight_changes_nothing(far, size):
    """Its work may be as large as float64 can hold: it counts as a path of weight zero. Seed 10."""
    forward, reverse = gaussian_pair(np.random.default_rng(10), 1.0, 300)
    found = bar(np.append(forward, far), reverse, reverse_size=size)
    assert found.value == pytest.approx(
        bar(np.append(forward, INF), reverse, reverse_size=size).value
    )
    back = bar(forward, np.append(reverse, -far), reverse_size=size)
    assert np.isfinite(back.value) and abs(back.value - found.value) < 1.0


def test_bad_size():
    """A weight of zero or without a meaning would give one of the exponential averages, or NaN."""
    check_refused(
        lambda size: bar([1.0, 2.0], [1.0, 2.0], reverse_size=size),
        [((s,), "reverse_size must be a number above zero") for s in (0.0, -1.0, INF, np.nan, "3")],
    )
    assert bar([1.0], [1.0], name="bridge").estimator == "bridge"


# --- annealing runs ---


def test_annealed_gaussian():
    """Paths of real kernels, not made-up work: log Z = -log 10. Seed 6; 4.4 errors, 1e-5."""
    forward, reverse = annealed_pair(np.random.default_rng(6), 5000)
    found = bar(forward, reverse)
    assert found.status == "ok"
    assert abs(found.value - ANNEALED_LOG_Z) < 4.4 * found.mcse


@pytest.mark.parametrize(
    "wrong",
    [{"start": (4.0, 1.0)}, {"start": (0.0, 3.0)}, {"reverse_order": False}],
    ids=["shifted start", "broad start", "kernels not reversed"],
)
def test_annealed_gaussian_gone_wrong(wrong):
    """Reverse runs from elsewhere, or through the kernels in the same order. Seed 7."""
    rng = np.random.default_rng(7)
    status = [bar(*annealed_pair(rng, 5000, **wrong)).status for _ in range(20)]
    assert status.count("inconsistent") >= 18


# --- intervals ---


@pytest.mark.parametrize(("shape", "rate"), [(2.0, 1.0), (20.0, 2.0)])
def test_coverage_of_skew_work(shape, rate):
    """Nothing in it may rest on normal work. 300 intervals, seed 9."""
    rng, truth = np.random.default_rng(9), gamma_log_z(shape, rate)
    found = [bar(*gamma_pair(rng, shape, rate, 200)) for _ in range(300)]
    assert 0.90 <= np.mean([covers(estimate, truth) for estimate in found]) <= 0.99


def test_coverage_catches_planted_errors():
    """Reverse work that is off by its own error, or intervals of 0.6 of the width. Seed 8."""
    rng = np.random.default_rng(8)
    shifted, narrow = [], []
    for _ in range(300):
        forward, reverse = gaussian_pair(rng, 1.0, 400)
        found = bar(forward, reverse)
        narrow.append(abs(found.value - LOG_Z) <= 0.6 * (found.upper - found.value))
        shifted.append(covers(bar(forward, reverse + 0.15), LOG_Z))
    assert np.mean(narrow) < 0.90 and np.mean(shifted) < 0.90


# --- overlap ---


def test_contributions_are_what_a_path_adds():
    """One path more, of thousands in exact shares, moves Bennett's root by its contribution."""
    forward, reverse = np.repeat(TWO_FORWARD, 6000), np.repeat(TWO_REVERSE, 2000)
    shared = overlap(forward, reverse)
    of_forward, of_reverse = shared.contributions()
    assert of_forward.sum() == pytest.approx(0.0, abs=1e-12)
    assert of_reverse.sum() == pytest.approx(0.0, abs=1e-12)
    for path in (0, -1):
        moved = bar_log_evidence(np.append(forward, forward[path]), reverse) - TWO_LOG_Z
        assert moved == pytest.approx(of_forward[path], rel=1e-3)
        moved = bar_log_evidence(forward, np.append(reverse, reverse[path])) - TWO_LOG_Z
        assert moved == pytest.approx(of_reverse[path], rel=1e-3)


def test_no_overlap():
    """Work that hardly meets: the interval is not to be trusted. Seed 14."""
    rng = np.random.default_rng(14)
    found = [bar(*gaussian_pair(rng, 4.0, 50)) for _ in range(50)]
    assert {estimate.status for estimate in found} == {"no_overlap"}
    assert "paths in the overlap" in found[0].message and "more stages" in found[0].message
    # more than 1,500 nats apart: a status, and no warning from NumPy
    assert bar(np.full(50, 3e3), np.full(50, -3e3)).status == "no_overlap"


# --- contradictions ---


def misfits(make, n):
    return np.array([overlap(*make()).misfit() for _ in range(n)])


@pytest.mark.parametrize(
    ("sd", "numbers"), [(0.5, (50, 50)), (1.0, (400, 50)), (2.0, (50, 400)), (3.0, (400, 400))]
)
def test_misfit_of_consistent_work(sd, numbers):
    """A standard normal score, about: 300 pairs, of which 1 % may go beyond four. Seed 15."""
    rng = np.random.default_rng(15)
    scores = misfits(lambda: gaussian_pair(rng, sd, *numbers), 300)
    assert np.mean(np.abs(scores) > 4.0) <= 0.01
    assert 0.85 < scores.std() < 1.2 and abs(scores.mean()) < 0.5


def test_wrong_sign_of_reverse_work_is_noticed():
    """Planted error: the work that the reverse direction does, in place of the forward one's."""
    forward, reverse = gaussian_pair(np.random.default_rng(20), 1.0, 400)
    assert bar(forward, -reverse).status in ("inconsistent", "no_overlap")
    # directions handed over in the wrong order have the right log Z, and still contradict it
    assert bar(reverse, forward).status == "inconsistent"


# --- what cannot be estimated ---


def test_no_support():
    """No forward path reached the target."""
    found = bar([INF, INF], [0.0, 1.0])
    assert found.value == -INF and np.isnan(found.mcse) and np.isnan(found.lower)
    assert found.status == "no_support" and "more stages" in found.message


@pytest.mark.parametrize(
    ("sd", "n", "shift"), [(0.5, 400, 0.5), (1.0, 400, 0.5), (1.0, 50, 2.0), (2.0, 2000, 1.0)]
)
def test_shifted_reverse_work_is_noticed(sd, n, shift):
    """Planted error: reverse runs from the wrong place do more work. 50 pairs, seed 19."""
    rng = np.random.default_rng(19)
    found = []
    for _ in range(50):
        forward, reverse = gaussian_pair(rng, sd, n)
        found.append(bar(forward, reverse + shift))
    assert sum(estimate.status == "inconsistent" for estimate in found) >= 45
    noticed = next(estimate for estimate in found if estimate.status == "inconsistent")
    assert "contradict each other" in noticed.message and "reverse_start=" in noticed.message
