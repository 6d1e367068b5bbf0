"""The path of moving Gaussians: its densities, their derivative, and its exact draws.

Statistical tests have a false-alarm rate of 1e-6 each, at fixed seeds.
"""

import numpy as np
import pytest
from scipy import stats

import pm_evidence as pe
from pm_evidence.core.contracts import Bridgeable, HasPosterior
from pm_evidence.families.gaussian import (
    GeometricGaussian,
    MomentAveragedGaussian,
    MovingGaussian,
)
from pm_evidence.testing import check_kernel, check_path

GAUSSIANS = [
    pe.mixtures.Gaussian(),
    pe.mixtures.Gaussian(-1.0, 0.5, 2.0, 3.0),
    pe.mixtures.Gaussian(0.0, 1.0, 5.0, 1.0),
]
BETAS = [0.0, 0.1, 0.5, 0.93, 1.0]
FALSE_ALARM = 1e-6
every_gaussian = pytest.mark.parametrize("gaussian", GAUSSIANS, ids=["narrow", "wide", "move"])


def points(gaussian, n=200):
    """Points that go beyond both ends."""
    low = min(gaussian.start_mean - 4 * gaussian.start_sd, gaussian.mean - 4 * gaussian.sd)
    high = max(gaussian.start_mean + 4 * gaussian.start_sd, gaussian.mean + 4 * gaussian.sd)
    return np.linspace(low, high, n)


@every_gaussian
def test_ratios_are_those_of_the_normal_densities(gaussian):
    """Weights are made from them alone."""
    path, x = MovingGaussian(gaussian), points(gaussian)

    def log_density(beta):
        mean, sd = gaussian.mean_at(beta), gaussian.sd_at(beta)
        return stats.norm.logpdf(x, mean, sd) + 0.5 * np.log(2.0 * np.pi) + np.log(sd)

    for start in BETAS:
        for stop in BETAS:
            found = path.log_ratio(path.at(x[:, None]), start, stop)
            exact = log_density(stop) - log_density(start)
            np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-9)


@every_gaussian
def test_energy_is_the_slope_of_the_density(gaussian):
    """Schedules and the thermodynamic picture are made from it."""
    path = MovingGaussian(gaussian)
    state = path.at(points(gaussian)[:, None])
    step = 1e-5
    for beta in (0.05, 0.5, 0.95):
        slope = path.log_ratio(state, beta - step, beta + step) / (2.0 * step)
        np.testing.assert_allclose(path.energy(state, beta), -slope, rtol=1e-6, atol=1e-6)


def test_a_wrong_slope_would_be_noticed():
    # the planted error: the energy at a beta next to it
    path = MovingGaussian(pe.mixtures.Gaussian())
    state, step = path.at(points(pe.mixtures.Gaussian())[:, None]), 1e-5
    slope = path.log_ratio(state, 0.5 - step, 0.5 + step) / (2.0 * step)
    wrong = np.abs(path.energy(state, 0.501) + slope)
    assert (wrong > 1e-6 * np.abs(slope) + 1e-6).mean() > 0.9


@every_gaussian
def test_draws_are_those_of_the_reference(gaussian):
    path = MovingGaussian(gaussian)
    x = path.draw(50_000, np.random.SeedSequence(3)).x
    assert x.shape == (50_000, 1)
    reference = stats.norm(gaussian.start_mean, gaussian.start_sd)
    assert stats.kstest(x[:, 0], reference.cdf).pvalue > FALSE_ALARM
    # the planted error
    beside = stats.norm(gaussian.start_mean, 1.05 * gaussian.start_sd)
    assert stats.kstest(x[:, 0], beside.cdf).pvalue < FALSE_ALARM


def test_given_draws_are_taken_as_they_are():
    path, draws = MovingGaussian(pe.mixtures.Gaussian()), np.array([[3.0], [-1.0], [2.0]])
    state = path.at(draws)
    assert np.array_equal(state.to_draws(), draws)
    assert list(path.order(state)) == [1, 2, 0]  # neighbours lie side by side
    draws[0] = 0.0
    assert state.x[0, 0] == 3.0  # a copy: the user's array may change
    assert not isinstance(path, Bridgeable | HasPosterior)  # there is no fitted density


# --- other paths between the same ends ---


@pytest.mark.parametrize("path", [GeometricGaussian, MomentAveragedGaussian])
@every_gaussian
def test_other_paths_have_the_same_ends_and_leave_the_kernel_right(path, gaussian):
    check_path(path(gaussian))
    check_kernel(gaussian.annealing_setup("auto").kernel, path(gaussian))
    x = path(gaussian).at(points(gaussian)[:, None])
    straight = MovingGaussian(gaussian).log_ratio(x, 0.0, 1.0)
    np.testing.assert_allclose(path(gaussian).log_ratio(x, 0.0, 1.0), straight, rtol=1e-9)


def test_what_is_linear_in_beta():
    """The log density on the geometric path, up to a constant; two moments on the other one."""
    gaussian = pe.mixtures.Gaussian(-1.0, 0.5, 2.0, 3.0)
    geometric, averaged = GeometricGaussian(gaussian), MomentAveragedGaussian(gaussian)
    for beta in BETAS:
        shares = np.array([1.0 - beta, beta])
        precision = shares @ [0.5**-2, 3.0**-2]
        assert geometric.moments(beta)[1] == pytest.approx(precision**-0.5)
        mean = shares @ [-1.0 * 0.5**-2, 2.0 * 3.0**-2] / precision
        assert geometric.moments(beta)[0] == pytest.approx(mean)
        second = shares @ [0.5**2 + 1.0, 3.0**2 + 4.0]
        mean, sd, _, _ = averaged.moments(beta)
        assert mean == gaussian.mean_at(beta)
        assert sd**2 + mean**2 == pytest.approx(second)


def test_equal_steps_cost_the_same_on_both_paths_and_learnt_ones_do_not():
    """Grosse, Maddison and Salakhutdinov (2013), Theorem 2; the docs draw conclusions from it.

    With a distance of d standard deviations both costs are d**2. The shortest schedule leaves the
    geometric path at that, as its variance is the same everywhere.
    """
    gaussian, betas = pe.mixtures.Gaussian(0.0, 1.0, 20.0, 1.0), np.linspace(0.0, 1.0, 100_001)
    found = {}
    for path in (GeometricGaussian(gaussian), MomentAveragedGaussian(gaussian)):
        _, sd, mean_slope, sd_slope = np.array([path.moments(beta) for beta in betas]).T
        variance = (mean_slope**2 + 2.0 * sd_slope**2) / sd**2
        costs = np.trapezoid(variance, betas), np.trapezoid(np.sqrt(variance), betas) ** 2
        found[type(path)] = costs
    np.testing.assert_allclose(found[GeometricGaussian], (400.0, 400.0), rtol=1e-6)
    np.testing.assert_allclose(found[MomentAveragedGaussian], (400.0, 59.31), rtol=1e-4)


def test_a_run_along_another_path():
    gaussian = pe.mixtures.Gaussian()
    options = {"random_seed": 1, "target_mcse": None, "progressbar": False}
    for path in ("geometric", "moment_average", GeometricGaussian(pe.mixtures.Gaussian())):
        found = pe.log_evidence(pe.sample_evidence(gaussian, path=path, **options))
        assert found.status == "ok", path
        assert abs(found.value - gaussian.log_evidence) < 4 * found.mcse, path
