"""The pooled work density against its own equations, and its posterior against exact ones."""

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.interpolate import BSpline

from pm_evidence.estimators import (
    bar,
    histogram,
    histogram_draws,
    histogram_posterior,
    work_density,
)
from tests.estimators.work import (
    LOG_Z,
    annealed_pair,
    covers,
    gamma_log_z,
    gamma_pair,
    gaussian_pair,
)


def iterate(forward, reverse, n_sweeps=3000):
    """Habeck (2017), Eq. 15 and 16, as printed: probabilities of all work values, and Z."""
    weight = np.exp(-np.concatenate([forward, reverse]))
    z = weight.mean()
    for _ in range(n_sweeps):
        p = 1.0 / (len(forward) + len(reverse) * weight / z)
        z = np.sum(p * weight) / np.sum(p)
    return p, z


# --- the density ---


@pytest.mark.parametrize(
    ("sd", "n_forward", "n_reverse"), [(0.5, 20, 20), (1.5, 100, 30), (2.0, 15, 200)]
)
def test_fixed_point(sd, n_forward, n_reverse):
    """Plain iteration of the paper's equations ends where Newton's method does. Seed 1."""
    forward, reverse = gaussian_pair(np.random.default_rng(1), sd, n_forward, n_reverse)
    p, z = iterate(forward, reverse)
    work, log_p = work_density(forward, reverse)
    np.testing.assert_array_equal(work, np.concatenate([forward, reverse]))
    np.testing.assert_allclose(np.exp(log_p), p, rtol=1e-9)
    assert histogram(forward, reverse).value == pytest.approx(np.log(z), abs=1e-9)
    # and the numbers of paths the wrong way round, a slip in Eq. 15, are caught
    wrong, _ = iterate(reverse, forward)
    if n_forward != n_reverse:
        assert abs(np.log(wrong.max() / p.max())) > 0.1


def test_histogram_is_bennetts_ratio():
    """The same root, error, interval and status; under its own name. Seed 6."""
    forward, reverse = annealed_pair(np.random.default_rng(6), 300)
    blocks = np.repeat(np.arange(30), 10)
    one = histogram(forward, reverse, forward_blocks=blocks, reverse_blocks=blocks)
    other = bar(forward, reverse, forward_blocks=blocks, reverse_blocks=blocks)
    assert one.estimator == "histogram"
    assert (one.value, one.mcse, one.lower, one.upper) == (
        other.value,
        other.mcse,
        other.lower,
        other.upper,
    )
    assert (one.status, one.message) == (other.status, other.message)


# --- the posterior: exact ---


def exact_posterior(forward, reverse, power=None):
    """Distribution function of log Z under a flat prior on the logs of the probabilities.

    On the simplex that posterior is ``(sum_j p_j exp(-W_j)) ** -n_reverse``. The sum has a
    B-spline with knots ``exp(-W_j)`` as its density where p is uniform (Curry and Schoenberg
    1966), so one quadrature gives what the Gibbs sampler has to find.
    """
    knots = np.sort(np.exp(-np.concatenate([forward, reverse])))
    z = np.linspace(knots[0], knots[-1], 4001)
    spline = np.nan_to_num(BSpline.basis_element(knots, extrapolate=False)(z))
    density = spline * z ** -(len(reverse) if power is None else power)
    share = integrate.cumulative_simpson(density, x=z, initial=0.0)
    return lambda log_z: np.interp(np.exp(log_z), z, share / share[-1])


@pytest.mark.parametrize(
    ("forward", "reverse"),
    [
        ([0.0], [1.0]),
        ([0.3, 1.5], [-0.7]),
        ([0.3, 1.5, 0.9], [-0.7, 0.1]),
        ([0.0], [1.0, -1.0, 0.5]),
        ([2.0, 3.0, 2.5, 4.0], [0.0, 1.0, 2.2]),
    ],
)
def test_gibbs_sampler_finds_the_exact_posterior(forward, reverse):
    """Kolmogorov-Smirnov on every fifth of 10,000 draws, below 1e-3 by chance. Seed 7.

    One reverse path more or fewer in the posterior, as a prior flat in the probabilities or a
    slip in a gamma variable would give, is caught by the same check.
    """
    draws = histogram_draws(forward, reverse, draws=10_000, random_seed=7)[::5]
    assert stats.kstest(draws, exact_posterior(forward, reverse)).pvalue > 1e-3
    for power in (len(reverse) - 1, len(reverse) + 1):
        assert stats.kstest(draws, exact_posterior(forward, reverse, power)).pvalue < 1e-5


# --- the posterior: against Bennett's ratio ---


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "truth"),
    [
        (lambda rng: gaussian_pair(rng, 1.0, 50), LOG_Z),
        (lambda rng: gaussian_pair(rng, 2.0, 400), LOG_Z),
        (lambda rng: gamma_pair(rng, 2.0, 1.0, 50), gamma_log_z(2.0, 1.0)),
    ],
    ids=["gaussian", "broad gaussian", "gamma"],
)
def test_posterior_coverage(make, truth):
    """90 to 99 % of 200 intervals hold the truth. Seed 12."""
    rng = np.random.default_rng(12)
    found = [histogram_posterior(*make(rng), random_seed=rng) for _ in range(200)]
    assert 0.90 <= np.mean([covers(estimate, truth) for estimate in found]) <= 0.99


# --- the posterior: arguments ---
