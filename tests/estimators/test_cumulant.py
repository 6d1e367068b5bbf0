"""Cumulant expansions and bounds: by hand, exact for normal work, and honest about other work."""

import numpy as np
import pytest
from scipy import stats

from pm_evidence.estimators import (
    cumulant,
    cumulant_forward,
    cumulant_reverse,
    lower_bound,
    upper_bound,
)
from tests.estimators.work import LOG_Z, gamma_log_z, gamma_pair, gaussian_pair

INF = np.inf


# --- by hand ---


def test_one_sided_by_hand():
    """Work 0 and 2: mean 1, sample variance 2."""
    assert cumulant_forward([0.0, 2.0]).value == pytest.approx(-1.0 + 1.0)
    assert cumulant_reverse([0.0, 2.0]).value == pytest.approx(-1.0 - 1.0)


def test_both_sides_by_hand():
    """Forward mean 1 and variance 2, reverse mean -2 and variance 1."""
    found = cumulant([0.0, 2.0], [-3.0, -2.0, -1.0])
    assert found.value == pytest.approx(-0.5 * (1.0 - 2.0) + (2.0 - 1.0) / 12)


def test_errors_by_hand():
    """What each path adds: -1 and 1, as both squared deviations are the variance itself.

    The mean of two such terms has a standard error of 1; half of it in the two-sided estimate,
    in quadrature with the same from the other direction.
    """
    for estimate in (cumulant_forward, cumulant_reverse, lower_bound, upper_bound):
        assert estimate([0.0, 2.0]).mcse == pytest.approx(1.0)
    both = cumulant([0.0, 2.0], [-3.0, -1.0])
    assert both.mcse == pytest.approx(np.hypot(0.5, 0.5))
    half = stats.t.ppf(0.975, 2) * both.mcse
    assert (both.lower, both.upper) == pytest.approx((both.value - half, both.value + half))


def test_bounds_by_hand():
    """Minus the mean, with the standard error of a mean and its Student interval."""
    work = [1.0, 2.0, 6.0]
    for estimate, name in ((lower_bound, "lower_bound"), (upper_bound, "upper_bound")):
        found = estimate(work)
        assert (found.value, found.estimator, found.status) == (-3.0, name, "bound")
        assert found.mcse == pytest.approx(stats.sem(work))
        interval = stats.t.interval(0.95, 2, loc=-3.0, scale=stats.sem(work))
        assert (found.lower, found.upper) == pytest.approx(interval)


# --- normal work ---


@pytest.mark.parametrize("sd", [0.5, 1.0, 3.0])
def test_exact_for_normal_work(sd):
    """Value and error: mean and variance are independent there. Seed 2; 4.4 errors, 1e-5."""
    n = 100_000
    forward, reverse = gaussian_pair(np.random.default_rng(2), sd, n)
    one_sided = np.sqrt((sd**2 + 0.5 * sd**4) / n)
    two_sided = np.sqrt(2 * (0.25 * sd**2 + 2 * sd**4 / 144) / n)
    for found, error in (
        (cumulant_forward(forward), one_sided),
        (cumulant_reverse(reverse), one_sided),
        (cumulant(forward, reverse), two_sided),
    ):
        assert abs(found.value - LOG_Z) < 4.4 * error
        assert found.mcse == pytest.approx(error, rel=0.02)


@pytest.mark.parametrize(("sd", "n"), [(0.3, 50), (0.3, 400)])
def test_normal_work_is_not_accused(sd, n):
    """Narrow normal work: at most 5 % of 200 runs may be called not normal. Seed 3."""
    rng = np.random.default_rng(3)
    works = [gaussian_pair(rng, sd, n) for _ in range(200)]
    assert np.mean([cumulant_forward(work).status == "ok" for work, _ in works]) > 0.95
    assert np.mean([cumulant_reverse(work).status == "ok" for _, work in works]) > 0.95
    assert np.mean([cumulant(*pair).status == "ok" for pair in works]) > 0.95


# --- other work ---


@pytest.mark.parametrize("estimate", ["forward", "reverse", "both"])
def test_skew_work_is_not_normal(estimate):
    """Gamma work, of which every expansion is cut off too early. 200 runs, seed 6."""
    rng, truth, silent, wrong = np.random.default_rng(6), gamma_log_z(5.0, 0.5), 0, 0
    for _ in range(200):
        forward, reverse = gamma_pair(rng, 5.0, 0.5, 400)
        found = {
            "forward": lambda f, r: cumulant_forward(f),
            "reverse": lambda f, r: cumulant_reverse(r),
            "both": cumulant,
        }[estimate](forward, reverse)
        silent += found.status == "ok"
        wrong += not found.lower <= truth <= found.upper
    assert wrong > 100 and silent <= 2
    assert found.status == "not_normal" and "Use the estimate 'bar'" in found.message


def test_difference_of_fourth_cumulants_is_seen():
    """Symmetric work, with tails in one direction only: the third cumulant is silent. Seed 7."""
    rng = np.random.default_rng(7)
    heavy = rng.normal(0.0, 0.1, 1000)
    heavy[::50] *= 60.0
    assert cumulant(heavy, rng.normal(0.0, 0.1, 1000)).status == "not_normal"


# --- what cannot be estimated ---


@pytest.mark.parametrize("n", [1, 2, 9])
def test_few_paths_have_no_error(n):
    """The variance of a handful of paths is anybody's guess."""
    work = np.arange(n, dtype=float)
    for found in (cumulant_forward(work), cumulant_reverse(work), cumulant(work, np.arange(50.0))):
        assert found.status == "no_error" and "at least 10" in found.message
    assert np.isnan(cumulant_forward([1.0]).mcse)


def test_infinite_forward_work_leaves_no_bound():
    """Minus infinity is a bound as well, without an error, and no cumulant exists."""
    found = lower_bound([1.0, INF])
    assert found.value == -INF and np.isnan(found.mcse) and np.isnan(found.lower)
    with pytest.raises(ValueError, match=r"work must be finite, got inf at 1 of 2 paths"):
        cumulant_forward([1.0, INF])
    with pytest.raises(ValueError, match=r"work_forward must be finite, got inf at 1 of 2 paths"):
        cumulant([1.0, INF], [1.0, 2.0])
    one = lower_bound([2.0])
    assert one.value == -2.0 and np.isnan(one.mcse) and one.status == "bound"
