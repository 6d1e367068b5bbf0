"""The exponential average: exact answers, known distributions, and intervals that hold."""

import numpy as np
import pytest
from scipy import stats

from pm_evidence.estimators import effective_sample_size, importance, jarzynski, single_run
from tests.estimators.refusals import check_refused

INF = np.inf
REPETITIONS = 500


def gaussian_work(mean, sd, shape, seed):
    """Work whose weights are lognormal: log Z is ``-mean + sd**2 / 2`` exactly."""
    return np.random.default_rng(seed).normal(mean, sd, size=shape)


def coverage(estimates, truth):
    """Share of the 95 % intervals that hold the truth."""
    inside = [estimate.lower <= truth <= estimate.upper for estimate in estimates]
    return float(np.mean(inside))


# --- jarzynski: values ---


@pytest.mark.parametrize(
    ("work", "log_z"),
    [
        ([0.0, 0.0], 0.0),
        ([31.3, 31.3, 31.3], -31.3),
        ([0.0, INF], -np.log(2)),
        ([INF, 0.0, INF, INF], -np.log(4)),
        ([-np.log(2.0), -np.log(4.0)], np.log(3.0)),
        ([-5e4, -5e4 - np.log(3)], 5e4 + np.log(2)),
        ([1e4, 1e4 - np.log(3)], -1e4 + np.log(2)),
    ],
)
def test_value_is_the_log_of_the_mean_weight(work, log_z):
    """Weights of zero count, and nothing overflows."""
    assert jarzynski(work).value == pytest.approx(log_z, rel=1e-14, abs=1e-14)


def test_mean_weight_is_unbiased():
    """The mean of exp(value) over runs is Z, also when each run has few paths. Seed 2; 1e-5."""
    mean, sd = 1.0, 1.0
    works = gaussian_work(mean, sd, (5000, 4), 2)
    z = np.exp([jarzynski(work).value for work in works])
    truth = np.exp(-mean + sd**2 / 2)
    assert abs(z.mean() - truth) < 4.4 * z.std() / np.sqrt(z.size)
    # and a mean on the log scale, the classical mistake, is caught by the same check
    assert abs(np.exp(np.log(z).mean()) - truth) > 4.4 * z.std() / np.sqrt(z.size)


def test_error_by_the_delta_method():
    """By hand for two weights, 1 and 3: mean 2, standard error 1, so 0.5 nats."""
    result = jarzynski([0.0, -np.log(3.0)])
    assert result.mcse == pytest.approx(0.5)
    half = stats.t.ppf(0.975, 1) * 0.5
    assert result.lower == pytest.approx(np.log(2) - half)
    assert result.upper == pytest.approx(np.log(2) + half)


# --- jarzynski: errors bars ---


@pytest.mark.parametrize(("sd", "n"), [(0.1, 16), (0.5, 16), (0.5, 200), (1.0, 1000)])
def test_coverage(sd, n):
    """An interval that claims 95 % holds the truth in 90 to 99 % of 500 runs. Seed 5.

    A right interval leaves that range with a probability below 1e-5.
    """
    works = gaussian_work(3.0, sd, (REPETITIONS, n), 5)
    share = coverage([jarzynski(work) for work in works], -3.0 + sd**2 / 2)
    assert 0.90 <= share <= 0.99


@pytest.mark.parametrize("factor", [0.6, 1.8])
def test_coverage_catches_planted_errors(factor):
    """Error bars that are too small or too large must not pass."""
    works = gaussian_work(3.0, 0.5, (REPETITIONS, 200), 5)
    truth, inside = -3.0 + 0.125, 0
    for work in works:
        estimate = jarzynski(work)
        inside += abs(estimate.value - truth) <= factor * (estimate.upper - estimate.value)
    assert not 0.90 <= inside / REPETITIONS <= 0.99


# --- jarzynski: what is wrong with a run ---


def test_no_support():
    """Z = 0 is an answer, but not one with an error bar."""
    result = jarzynski([INF, INF, INF])
    assert result.value == -INF and np.isnan(result.mcse)
    assert result.status == "no_support" and "support" in result.message
    assert np.isnan(result.lower) and np.isnan(result.upper)


def test_high_variance():
    """Beyond half a nat no symmetric interval holds."""
    result = jarzynski([0.0, 1.2, 20.0])
    assert result.mcse > 0.5 and result.status == "high_variance"
    assert f"{result.mcse:.2f} nats" in result.message and "more stages" in result.message
    # 24 of 30 paths dead, six alike: Z is known to a third, and that is what the error says
    result = jarzynski(np.concatenate([np.zeros(6), np.full(24, INF)]))
    assert result.status == "ok"
    assert result.mcse == pytest.approx(np.sqrt(4 / 29), rel=1e-12)


# --- jarzynski: heavy tails ---


@pytest.mark.parametrize("k", [1.2, 1.5])
def test_heavy_tail(k):
    """Pareto weights without a mean, of known shape: 45 of 50 runs at least. Seed 11."""
    rng = np.random.default_rng(11)
    found = [jarzynski(-k * rng.standard_exponential(1000)) for _ in range(50)]
    assert sum(estimate.status in ("heavy_tail", "dominated") for estimate in found) >= 45
    assert all("more stages" in e.message for e in found if e.status != "ok")
    heavy = [estimate for estimate in found if estimate.status == "heavy_tail"]
    assert all("Pareto k" in e.message and "with 1000 paths" in e.message for e in heavy)


# --- jarzynski: blocks ---


# --- importance ---

HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)


def importance_work(fitted, n, seed):
    """Work of draws from a fitted density where prior times likelihood is ``exp(-x**2 / 2)``."""
    x = fitted.rvs(n, random_state=seed)
    return fitted.logpdf(x) + x**2 / 2


def test_importance_by_hand():
    """Weights 1 and 2, as of two draws at which the density is once and twice the fitted one."""
    result = importance([0.0, -np.log(2.0)])
    assert (result.value, result.mcse) == pytest.approx((np.log(1.5), 1.0 / 3.0))
    assert (result.estimator, result.status) == ("importance", "ok")


@pytest.mark.parametrize("fitted", [stats.t(5, scale=1.1), stats.norm(0.2, 1.2)])
def test_importance_covers(fitted):
    """90 to 99 % of 500 intervals of 200 draws hold log Z, all "ok".

    Seeds 0 to 499. A right interval leaves that range with a probability below 1e-5.
    """
    found = [importance(importance_work(fitted, 200, seed)) for seed in range(REPETITIONS)]
    assert 0.90 <= coverage(found, HALF_LOG_2PI) <= 0.99
    assert sum(estimate.status != "ok" for estimate in found) <= 5


def test_importance_sees_that_the_fitted_density_is_too_narrow():
    """Five times too narrow, weights without a variance: 70 of 100 runs at least say so.

    Seeds 0 to 99. 82 did; the others show what the notes say, that the tail alone is no proof.
    """
    found = [importance(importance_work(stats.norm(0, 0.2), 1000, seed)) for seed in range(100)]
    assert sum(estimate.status in ("heavy_tail", "dominated") for estimate in found) >= 70


# --- single_run ---


def test_single_run_by_hand():
    """Two islands with weights 1 and 3: variance (1 * 0.04 + 9 * 0.01) / 2^2 of the mean 2."""
    result = single_run([0.0, -np.log(3.0)], [0.04, 0.01])
    assert result.value == pytest.approx(np.log(2))
    assert result.mcse == pytest.approx(np.sqrt(0.04 + 9 * 0.01) / 2 / 2)
    assert result.estimator == "single_run" and result.status == "within_islands"
    assert result.upper - result.value == pytest.approx(stats.norm.ppf(0.975) * result.mcse)


def test_single_run_bad_variance():
    """An error of NaN with the status ok, as a missing variance would give, hides a fault."""
    check_refused(
        lambda variance: single_run([0.0, 1.0], variance),
        [
            (([0.1],), r"relative_variance must have one value per island, got shape \(1,\) for w"),
            ((0.1,), r"relative_variance must have one value per island, got shape \(\) for work"),
            (([0.1, np.nan],), r"relative_variance must be .*not negative, got nan at island 1"),
            (([-0.1, 0.1],), r"relative_variance must be .*not negative, got -0.1 at island 0"),
        ],
    )
    for estimate in (importance, lambda work: single_run(work, work)):
        check_refused(estimate, [(([0.0, np.nan],), "got nan at 1 of 2 paths, first at index 1")])


# --- effective sample size ---


def test_effective_sample_size_by_hand():
    """Kiwaki (2015), Eq. 5, for weights 1, 2 and 3: mean 2, variance of their ratios 1/6."""
    work = 700.0 - np.log([1.0, 2.0, 3.0])
    assert effective_sample_size(work) == pytest.approx(3.0 / (1.0 + 1.0 / 6.0))
    relative = np.exp(-work + 700.0) / 2.0
    assert effective_sample_size(work) == pytest.approx(3.0 / (1.0 + relative.var()))


def test_effective_sample_size_at_its_limits():
    """Equal weights count all; a single one counts one; weights of zero count as paths."""
    assert effective_sample_size(np.full(10, -300.0)) == pytest.approx(10.0)
    assert effective_sample_size([0.0, 800.0, INF]) == pytest.approx(1.0)
    assert effective_sample_size([2.0]) == 1.0
    assert effective_sample_size([5.0, 5.0, INF, INF]) == pytest.approx(2.0)
    assert effective_sample_size([INF, INF]) == 0.0


def test_effective_sample_size_of_a_normal_work():
    """It is exp(-sd**2) of all; five standard deviations of a hundred runs at seed 9."""
    works = gaussian_work(3.0, 0.7, (100, 2000), 9)
    found = np.array([effective_sample_size(work) for work in works]) / 2000
    error = found.std(ddof=1) / 10.0
    assert abs(found.mean() - np.exp(-0.49)) < 5.0 * error < 0.02
