"""Approximations on a lattice of hyperparameters: exact where they should be, or none."""

from functools import cache

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import logsumexp

from pm_evidence.core.numerics import ess_share
from pm_evidence.paths.geometric import Posterior
from pm_evidence.samplers import conditional, nested_laplace
from pm_evidence.samplers.conditional import ConditionalFits
from pm_evidence.samplers.nested_laplace import explore
from pm_evidence.targets.model.cache import target_of
from tests.kernels.exact import gaussian
from tests.samplers.test_conditional import effects_of_many_groups
from tests.systems.exact import deceptive_systems, exact_systems

SYSTEMS, SLOW = exact_systems() | deceptive_systems(), pytest.mark.slow


@cache
def built(name):
    """A model that is compiled once in all tests."""
    return SYSTEMS[name].build()


def explored(model, given=None, n_starts=6, n_searched=0, seed=1):
    """Return a posterior and its approximation, by default given the known hyperparameters."""
    target = target_of(model, reparameterise=True, backend="numpy")
    known = target.hyperparameters
    if given is not None:
        known = [each for each in target.layout.variables if each.name in given]
    posterior, positions = Posterior(target), target.layout.positions_of(known)
    rng = np.random.default_rng(seed)
    return posterior, explore(posterior, positions, n_starts, n_searched, rng)


def share_and_value(posterior, found, n=2000):
    """Return the effective share of draws from the approximation, and their log evidence."""
    (density,) = found.components
    x = density.draw(n, np.random.default_rng(2))
    log_weight = posterior.log_density(x) - density.log_density(x)
    return float(ess_share(log_weight)), logsumexp(log_weight) - np.log(n)


@pytest.mark.parametrize(
    "name",
    [
        None,
        "gaussian_10",
        pytest.param("random_walk", marks=SLOW),
        pytest.param("correlated_gaussian_50", marks=SLOW),
    ],
)
def test_a_normal_posterior_is_found(name):
    """Every weight of an exact fit is the evidence; the wide component has 5 % of the draws."""
    system = SYSTEMS[name] if name else gaussian()
    posterior, found = explored(built(name) if name else system.path.target.model)
    assert found.complete and found.n_peaks == 1
    assert found.n_evaluations < 4 * posterior.target.n_dim + 100
    (density,) = found.components
    peak, wide = density.components
    np.testing.assert_allclose(np.exp(density.log_weight), [0.95, 0.05])
    x = peak.draw(200, np.random.default_rng(2))
    log_weight = posterior.log_density(x) - peak.log_density(x)
    np.testing.assert_allclose(log_weight, system.log_evidence, atol=1e-2)
    assert wide.dof == 4 and peak.dof == np.inf


@pytest.mark.parametrize(
    ("name", "least"),
    [
        pytest.param("one_way_centred", 0.6, marks=SLOW),
        ("funnel", 0.85),
        pytest.param("normal_inverse_gamma", 0.9, marks=SLOW),
        pytest.param("radiata_pine_like", 0.9, marks=SLOW),
        pytest.param("eight_schools_half_cauchy_centred", 0.9, marks=SLOW),
        pytest.param("eight_schools_half_normal_noncentred", 0.9, marks=SLOW),
        pytest.param("banana", 0.85, marks=SLOW),
    ],
)
def test_normal_conditional_densities(name, least):
    """Where they are normal, the approximate evidence is right but for the sum over the lattice."""
    system = SYSTEMS[name]
    posterior, found = explored(built(name))
    assert found.log_mass[0] == pytest.approx(system.log_evidence, abs=0.02)
    share, value = share_and_value(posterior, found)
    assert share > least
    assert value == pytest.approx(system.log_evidence, abs=4 * np.sqrt((1 / share - 1) / 2000))


@SLOW
def test_two_peaks_of_the_hyperparameters():
    """The scale is near 0.05 or near 3: the prior of its logarithm has two narrow modes."""
    log_scale, sd = np.log([0.05, 3.0]), 0.15
    y = np.array([0.3, -0.2, 0.1])
    with pm.Model() as model:
        modes = pm.NormalMixture("t", [0.5, 0.5], log_scale, sd)
        effect = pm.Normal("effect", 0, pm.math.exp(modes), shape=3)
        pm.Normal("y", effect, 0.5, observed=y)
    grid = np.linspace(-6, 4, 20_001)
    log_prior = logsumexp(stats.norm.logpdf(grid[:, None], log_scale, sd), axis=1) - np.log(2)
    spread = np.sqrt(np.exp(2 * grid) + 0.25)
    log_density = log_prior + stats.norm.logpdf(y[:, None], 0, spread).sum(axis=0)
    exact = logsumexp(log_density) + np.log(grid[1] - grid[0])
    for seed in range(2):
        posterior, found = explored(model, seed=seed)
        share, value = share_and_value(posterior, found)
        assert found.n_peaks == 2 and share > 0.8
        assert value == pytest.approx(exact, abs=4 * np.sqrt((1 / share - 1) / 2000))


def one_value_for_each_group():
    """Effects whose data determine them where the noise is small; what is left are narrow arms."""
    with pm.Model() as model:
        tau, sigma = pm.HalfNormal("tau", 3), pm.HalfNormal("sigma", 3)
        theta = pm.Normal("theta", pm.Normal("mu", 0, 5), tau, shape=8)
        pm.Normal("y", theta, sigma, observed=2.0 * np.random.default_rng(1).normal(size=8))
    return model


@pytest.mark.slow
def test_approximations_have_to_predict_their_neighbours():
    """In non-centred coordinates they do not, where the noise is small; in centred ones they do."""
    target = target_of(one_value_for_each_group(), reparameterise=True, backend="numpy")
    positions = target.layout.positions_of(target.hyperparameters)
    complete = []
    for form in (target, target.centred()):
        found = explore(Posterior(form), positions, 6, 0, np.random.default_rng(1))
        assert found.n_peaks == 1
        complete.append(found.complete)
    assert complete == [False, True]
    assert share_and_value(Posterior(target.centred()), found)[0] > 0.6


def test_a_density_that_rises_has_no_approximation():
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0)
        pm.Potential("rises", pm.math.exp(pm.math.abs(x)))
    _, found = explored(model, given=())
    assert found.n_peaks == 0 and not found.components and found.n_evaluations > 0


def test_too_many_points_are_no_approximation(monkeypatch):
    monkeypatch.setattr(nested_laplace, "_FEW_POINTS", 8)
    monkeypatch.setattr(nested_laplace, "_GRADIENTS", 1)
    _, found = explored(built("one_way_centred"))
    assert found.n_peaks == 0 and not found.components


def test_a_covariance_that_has_no_factor_is_no_approximation(monkeypatch):
    """A run goes on from the prior instead of ending with an error of linear algebra."""

    def fails(self, found):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(nested_laplace.HyperparameterGrid, "fit", fails)
    _, found = explored(built("funnel"))
    assert found.n_peaks == 0 and found.n_evaluations > 0


def test_many_dimensions_are_explored_where_few_second_derivatives_are_not_zero():
    """A thousand means: gradients that show what is zero, and a few for each approximation."""
    system = SYSTEMS["many_means"]
    posterior, found = explored(built("many_means"))
    assert found.complete and found.n_evaluations < 3 * posterior.target.n_dim
    share, value = share_and_value(posterior, found)
    assert share > 0.6
    assert value == pytest.approx(system.log_evidence, abs=4 * np.sqrt((1 / share - 1) / 2000))


@SLOW
def test_more_dimensions_are_not_explored_where_most_are_not_zero():
    """The covariance would have to be stored at every point."""
    x = np.random.default_rng(1).normal(size=(350, 310))
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1)
        beta = pm.Normal("beta", 0, tau, shape=310)
        pm.Normal("y", pm.math.dot(x, beta), 1.0, observed=x[:, 0])
    posterior, found = explored(model)
    assert found.n_peaks == 0 and found.n_evaluations < 3 * posterior.target.n_dim


def test_a_lattice_is_made_closer_where_neighbours_differ(monkeypatch):
    """As those of a random walk of 2,000 states do, whose scales change by a little each."""
    counts = np.random.default_rng(1).poisson(np.exp(1 + np.sin(np.arange(100) / 8)))
    with pm.Model() as model:
        scale, start = pm.HalfNormal("scale", 1), pm.Normal.dist(0, 1)
        state = pm.GaussianRandomWalk("state", sigma=scale, init_dist=start, shape=100)
        pm.Poisson("y", pm.math.exp(state), observed=counts)
    monkeypatch.setattr(nested_laplace, "_WORST_DIVERGENCE", 1.0)
    monkeypatch.setattr(nested_laplace, "_AIM", np.inf)
    _, uneven = explored(model)
    monkeypatch.setattr(nested_laplace, "_AIM", 0.5)
    posterior, closer = explored(model)
    assert closer.complete and not uneven.complete
    assert share_and_value(posterior, closer)[0] > 0.8


@SLOW
def test_all_approximations_are_skewed_or_none_is(monkeypatch):
    """They are interpolated together. Far from a peak, a gradient may not be finite."""
    monkeypatch.setattr(nested_laplace, "_SKEWED", 0.01)
    skewed, calls = ConditionalFits.skewed, iter(range(10_000))

    def sometimes(self, fits):
        found = skewed(self, fits)
        return [(None if next(calls) == 3 else fit, gain) for fit, gain in found]

    model = effects_of_many_groups()
    _, whole = explored(model)
    monkeypatch.setattr(ConditionalFits, "skewed", sometimes)
    posterior, found = explored(model)
    assert whole.components[0].components[0].is_skewed
    assert not found.components[0].components[0].is_skewed
    assert found.complete and share_and_value(posterior, found)[0] > 0.1


def test_zeros_that_are_none_do_not_make_a_wrong_value(monkeypatch):
    """If the coupling of the effects with their mean is overlooked, the weights show it."""
    posterior, right = explored(built("many_means"))
    monkeypatch.setattr(conditional, "_ZERO", 0.9)
    _, wrong = explored(built("many_means"))
    shares = [share_and_value(posterior, found)[0] for found in (right, wrong) if found.components]
    assert shares[0] > 0.6
    assert len(shares) == 1 or shares[1] < 0.1
