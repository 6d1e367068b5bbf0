"""What holds of every estimator, whatever the work: symmetries, bounds, and the exact Gaussian."""

import numpy as np
import pytest
from scipy import stats

from pm_evidence.estimators.annealed_paths import two_sided
from pm_evidence.estimators.bar import bar
from pm_evidence.estimators.bridge import bridge
from pm_evidence.estimators.cumulant import (
    cumulant,
    cumulant_forward,
    cumulant_reverse,
    lower_bound,
    upper_bound,
)
from pm_evidence.estimators.difference import difference
from pm_evidence.estimators.histogram import histogram
from pm_evidence.estimators.jarzynski import importance, jarzynski, jarzynski_reverse, single_run
from tests.estimators.runs import record
from tests.estimators.work import BOTH, ESTIMATORS, LOG_Z, covers, gaussian_pair

every_seed = pytest.mark.parametrize("seed", range(25))
every = pytest.mark.parametrize("name", list(ESTIMATORS))
# Where forward and reverse exchange their places, log Z changes its sign.
MIRRORED = {
    "bar": "bar",
    "cumulant": "cumulant",
    "histogram": "histogram",
    "jarzynski": "jarzynski_reverse",
    "cumulant_forward": "cumulant_reverse",
    "lower_bound": "upper_bound",
}


def some_pair(seed):
    """Work of both directions that overlaps: skew, of any width up to 2 nats, unequal numbers."""
    rng = np.random.default_rng(seed)
    n_forward, n_reverse = rng.integers(20, 200, size=2)
    width, skew = rng.uniform(0.1, 2.0), rng.uniform(-1.0, 1.0)
    forward = rng.normal(size=n_forward) + skew * rng.exponential(size=n_forward)
    reverse = rng.normal(size=n_reverse) + skew * rng.exponential(size=n_reverse)
    return 5.0 + width * forward, 5.0 + width * (reverse - 0.5 * width), rng


def numbers(found):
    return np.array([found.value, found.mcse, found.lower, found.upper])


def mirrored(found):
    return np.array([-found.value, found.mcse, -found.upper, -found.lower])


@every
@every_seed
def test_a_constant_of_the_work_shifts_log_z(seed, name):
    """It is a constant factor of the likelihood; error and verdict stay."""
    forward, reverse, rng = some_pair(seed)
    shift = rng.normal(0.0, 100.0)
    plain = ESTIMATORS[name](forward, reverse)
    moved = ESTIMATORS[name](forward + shift, reverse + shift)
    expected = numbers(plain) - shift * np.array([1.0, 0.0, 1.0, 1.0])
    np.testing.assert_allclose(numbers(moved), expected, rtol=1e-7, atol=1e-8)
    assert moved.status == plain.status


@every
@every_seed
def test_paths_have_no_order(seed, name):
    forward, reverse, rng = some_pair(seed)
    plain = ESTIMATORS[name](forward, reverse)
    mixed = ESTIMATORS[name](rng.permutation(forward), rng.permutation(reverse))
    np.testing.assert_allclose(numbers(mixed), numbers(plain), rtol=1e-8, atol=1e-9)
    assert mixed.status == plain.status


@pytest.mark.parametrize("name", list(MIRRORED))
@every_seed
def test_time_reversal_changes_the_sign(seed, name):
    """Annealing from the target to the reference estimates -log Z, and by the same numbers."""
    forward, reverse, _ = some_pair(seed)
    plain = ESTIMATORS[name](forward, reverse)
    other = ESTIMATORS[MIRRORED[name]](-reverse, -forward)
    np.testing.assert_allclose(mirrored(other), numbers(plain), rtol=1e-7, atol=1e-8)


@every
@every_seed
def test_intervals_hold_their_value(seed, name):
    forward, reverse, _ = some_pair(seed)
    found = ESTIMATORS[name](forward, reverse)
    assert found.mcse > 0.0 and found.lower < found.value < found.upper


@every_seed
def test_bounds_lie_on_their_sides(seed):
    """Jensen's inequality, for any work whatever: means of the work bound the mean weights."""
    forward, reverse, _ = some_pair(seed)
    assert lower_bound(forward).value <= jarzynski(forward).value
    assert upper_bound(reverse).value >= jarzynski_reverse(reverse).value
    assert -forward.max() <= jarzynski(forward).value <= -forward.min()
    assert -reverse.max() <= jarzynski_reverse(reverse).value <= -reverse.min()


@every_seed
def test_more_work_is_less_evidence(seed):
    """Each path's work counts against Z: bounds and means fall where any of it rises."""
    forward, reverse, rng = some_pair(seed)
    more = rng.exponential(size=forward.size) * (rng.random(forward.size) < 0.3)
    for estimate in (jarzynski, lower_bound):
        assert estimate(forward + more).value <= estimate(forward).value
    more = rng.exponential(size=reverse.size) * (rng.random(reverse.size) < 0.3)
    for estimate in (jarzynski_reverse, upper_bound):
        assert estimate(reverse + more).value <= estimate(reverse).value
    assert bar(forward, reverse + more).value <= bar(forward, reverse).value


@every_seed
def test_paths_of_weight_zero_divide_the_evidence(seed):
    """Three dead paths for each live one: Z is a quarter, by every estimate of forward paths."""
    forward, reverse, _ = some_pair(seed)
    dead = np.concatenate([forward, np.full(3 * forward.size, np.inf)])
    fourth = jarzynski(forward).value - np.log(4.0)
    assert jarzynski(dead).value == pytest.approx(fourth, abs=1e-12)
    assert importance(dead).value == pytest.approx(fourth, abs=1e-12)
    assert lower_bound(dead).value == -np.inf
    assert bar(dead, reverse).value < bar(forward, reverse).value


@every_seed
def test_bennetts_equation_is_solved(seed):
    """Bennett (1976): as many paths are found by Fermi's function in one direction as the other."""
    forward, reverse, _ = some_pair(seed)
    value = bar(forward, reverse).value
    offset = value + np.log(forward.size / reverse.size)
    there = np.sum(1.0 / (1.0 + np.exp(forward + offset)))
    back = np.sum(1.0 / (1.0 + np.exp(-reverse - offset)))
    assert there == pytest.approx(back, rel=1e-8)


@every_seed
def test_islands_of_equal_variance_have_its_root_as_error(seed):
    """With equal weights the stated variances are averaged over their number."""
    rng = np.random.default_rng(seed)
    n, variance = int(rng.integers(2, 50)), float(rng.uniform(1e-6, 0.1))
    found = single_run(np.full(n, 7.0), np.full(n, variance))
    assert found.value == pytest.approx(-7.0, abs=1e-12)
    assert found.mcse == pytest.approx(np.sqrt(variance / n), rel=1e-9)


@every_seed
def test_differences_of_independent_estimates(seed):
    """Values subtract, variances add, and the order changes the sign alone."""
    forward, _, rng = some_pair(seed)
    one, other = jarzynski(forward), jarzynski(rng.normal(4.0, 0.3, 80))
    found, back = difference(one, other), difference(other, one)
    assert found.value == pytest.approx(one.value - other.value, abs=1e-12)
    assert found.mcse == pytest.approx(np.hypot(one.mcse, other.mcse), rel=1e-12)
    np.testing.assert_allclose(mirrored(back), numbers(found), rtol=1e-12, atol=1e-12)


# --- exact Gaussian work ---


@every_seed
def test_estimators_agree_on_gaussian_work(seed):
    """Pairs of estimates of the same work lie within five combined errors, and of the truth.

    400 paths each way with a standard deviation of 0.8 nats, for the bridge in 40 islands: its
    error has 39 degrees of freedom, with which a right estimate fails with a probability of 1e-5.
    """
    forward, reverse = gaussian_pair(np.random.default_rng(seed), 0.8, 400)
    found = [ESTIMATORS[name](forward, reverse) for name in ESTIMATORS if "bound" not in name]
    islands = zip(np.split(forward, 40), np.split(reverse, 40), strict=True)
    found.append(bridge(list(islands)))
    for estimate in found:
        assert abs(estimate.value - LOG_Z) < 5.0 * estimate.mcse, estimate
    for one in found:
        for other in found:
            assert abs(one.value - other.value) < 5.0 * np.hypot(one.mcse, other.mcse)


@every_seed
def test_cumulants_of_quantiles_are_exact(seed):
    """Work at the quantiles of a normal density has its mean and, nearly, its variance."""
    sd = float(np.random.default_rng(seed).uniform(0.1, 3.0))
    z = stats.norm.ppf((np.arange(4000) + 0.5) / 4000)
    forward, reverse = -LOG_Z + sd**2 / 2 + sd * z, -LOG_Z - sd**2 / 2 + sd * z
    near = pytest.approx(LOG_Z, abs=2e-3 * sd**2)
    assert cumulant(forward, reverse).value == near
    assert cumulant_forward(forward).value == near
    assert cumulant_reverse(reverse).value == near
    assert bar(forward, reverse).value == pytest.approx(LOG_Z, abs=1e-8)
    assert histogram(forward, reverse).value == pytest.approx(LOG_Z, abs=1e-8)
    assert lower_bound(forward).value == pytest.approx(LOG_Z - sd**2 / 2, abs=1e-9)
    assert upper_bound(reverse).value == pytest.approx(LOG_Z + sd**2 / 2, abs=1e-9)


@every_seed
def test_a_whole_run_keeps_its_estimates_in_any_cut_into_blocks(seed):
    """Blocks are a matter of who computes: forward paths are independent whichever holds them."""
    forward, reverse, rng = some_pair(seed)
    cuts = [int(n) for n in rng.integers(1, 9, 2)]
    one, other = (two_sided(record(forward, reverse, n_blocks=n)) for n in cuts)
    assert [e.estimator for e in one] == [e.estimator for e in other]
    assert [e.status for e in one] == [e.status for e in other]
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(numbers(a), numbers(b))


def test_every_estimator_of_both_directions_has_its_mirror():
    """A new estimator of work has to say what it becomes when time is reversed."""
    assert set(MIRRORED) | set(MIRRORED.values()) == set(ESTIMATORS)
    assert set(BOTH) <= set(MIRRORED)
    found = bar(*gaussian_pair(np.random.default_rng(1), 0.5, 100))
    assert covers(found, LOG_Z)
