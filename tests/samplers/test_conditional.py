"""Normal approximations given hyperparameters, where they are exact and where there are none."""

import warnings

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import digamma, gammaln, polygamma

from pm_evidence.core.shape import learn_shape
from pm_evidence.paths.geometric import Posterior
from pm_evidence.samplers.conditional import ConditionalFits
from pm_evidence.targets.model.cache import target_of

Y, NOISE = np.array([1.0, -2.0, 0.5]), 0.7


def conditional(model, given):
    target = target_of(model, backend="numpy")
    posterior = Posterior(target)
    positions = target.layout.positions_of(v for v in target.layout.variables if v.name in given)
    prior = posterior.draw_prior(50, np.random.default_rng(1))
    shape = learn_shape(prior, dense=False)
    return ConditionalFits(posterior, positions, shape), prior


@pytest.fixture(scope="module")
def groups():
    """Effects of scale exp(t), which are normal given t."""
    with pm.Model() as model:
        t = pm.Normal("t", 0, 1)
        effect = pm.Normal("effect", t, pm.math.exp(t), shape=3)
        pm.Normal("y", effect, NOISE, observed=Y)
    return conditional(model, {"t"})


def exact(t):
    """Mean and variance of the effects, and log posterior density of t up to the evidence."""
    precision = np.exp(-2 * t) + NOISE**-2
    mean = (t * np.exp(-2 * t) + Y * NOISE**-2) / precision
    spread = np.hypot(np.exp(t), NOISE)
    log_density = stats.norm.logpdf(t) + stats.norm.logpdf(Y, t, spread).sum()
    return mean, 1 / precision, log_density


@pytest.mark.parametrize("t", [-2.0, 0.3, 1.5])
def test_normal_effects(groups, t):
    fits, prior = groups
    start = prior[0].copy()
    start[0] = t
    first = fits.first(start)
    (near,) = fits.near([(first, np.array([t + 0.5]))])
    for found, value in ((first, t), (near, t + 0.5)):
        mean, variance, log_density = exact(value)
        np.testing.assert_allclose(found.values, [value])
        np.testing.assert_allclose(found.shape.mean, mean, atol=2e-3)
        np.testing.assert_allclose(np.diag(found.shape.factor) ** 2, [variance] * 3, rtol=1e-3)
        assert found.log_mass == pytest.approx(log_density, abs=1e-3)
        moved = exact(value + 1e-4)[0] - exact(value - 1e-4)[0]
        np.testing.assert_allclose(found.slope[:, 0], moved / 2e-4, atol=2e-2)


@pytest.mark.parametrize("t", [-300.0, -400.0])
def test_where_slopes_overflow_there_is_none(groups, t):
    """And no warning of NumPy is printed."""
    fits, prior = groups
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert fits.near([(fits.first(prior[0]), np.array([t]))]) == [None]


def test_approximations_side_by_side_are_those_made_one_by_one(groups):
    """More of them than are made at once, some of them far from where they start."""
    fits, prior = groups
    first = fits.first(prior[0])
    values = np.linspace(-3.0, 3.0, 70)[:, None]
    together = fits.near([(first, each) for each in values])
    for each, found in zip(values, together, strict=True):
        (alone,) = fits.near([(first, each)])
        np.testing.assert_allclose(found.values, each)
        np.testing.assert_allclose(found.shape.mean, alone.shape.mean, rtol=1e-9)
        assert found.log_mass == pytest.approx(alone.log_mass, abs=1e-9)


def test_a_prediction_is_compared_with_what_is_there(groups):
    """The divergence of two normal densities, one of them moved along its slope."""
    fits, prior = groups
    here = fits.first(prior[0])
    (there,) = fits.near([(here, here.values + 0.7)])
    predicted = here.shape.mean + 0.7 * here.slope[:, 0]
    scale = np.diag(here.shape.factor)
    ratio = np.diag(there.shape.factor) / scale
    apart = (there.shape.mean - predicted) / scale
    expected = 0.5 * (ratio**2 + apart**2 - 1).sum() - np.log(ratio).sum()
    assert fits.divergence(there, here) == pytest.approx(expected, rel=1e-6)
    assert fits.divergence(here, here) == pytest.approx(0.0, abs=1e-9)


def test_scales_far_from_those_of_the_prior_are_found():
    with pm.Model() as model:
        x = pm.Normal("x", 0, 100.0, shape=2)
        pm.Normal("y", x, np.array([1e-2, 10.0]), observed=[3.0, -5.0])
    fits, prior = conditional(model, ())
    found = fits.first(prior[0])
    np.testing.assert_allclose(np.diag(found.shape.factor), [1e-2, 9.9504], rtol=1e-3)


def test_the_mean_of_a_skewed_density():
    """The log of a Gamma variable: the mean is digamma(a), the peak log(a), to order 1/a."""
    shape = np.array([15.0, 30.0])
    with pm.Model() as model:
        t = pm.Normal("t", 0.0, 1.0, shape=2)
        pm.Potential("gamma", (shape * t - pm.math.exp(t) + 0.5 * t**2).sum())
    fits, prior = conditional(model, ())
    found = fits.first(prior[0])
    ((skewed, gain),) = fits.skewed([found])
    shift = skewed.shape.mean - found.shape.mean
    np.testing.assert_allclose(found.shape.mean, np.log(shape), atol=2e-3)
    np.testing.assert_allclose(shift, digamma(shape) - np.log(shape), rtol=0.06)
    variance = np.diag(skewed.shape.covariance_times(np.eye(2)))
    np.testing.assert_allclose(variance, polygamma(1, shape), rtol=0.01)
    np.testing.assert_allclose(skewed.skewness, -(shape**-0.5), rtol=0.1)
    exact = gammaln(shape) - 0.5 * np.log(2 * np.pi) - (shape - 0.5) * np.log(shape) + shape
    assert skewed.log_mass - found.log_mass == pytest.approx(exact.sum(), rel=0.1)
    assert gain == pytest.approx(0.5 * (shift**2 * shape).sum(), rel=1e-3)


def test_there_is_none_without_a_peak():
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=2)
        pm.Potential("rises", pm.math.sum(pm.math.exp(pm.math.abs(x))))
    fits, prior = conditional(model, ())
    assert fits.first(prior[0]) is None and fits.n_evaluations > 0


def effects_of_many_groups(n_groups=60):
    """Poisson counts of groups whose effects share a mean: few second derivatives are not zero."""
    counts = np.random.default_rng(1).poisson(2.0, n_groups)
    with pm.Model() as model:
        t = pm.Normal("t", 0, 1)
        mu = pm.Normal("mu", 0, 2)
        effect = pm.Normal("effect", mu, pm.math.exp(t), shape=n_groups)
        pm.Poisson("y", pm.math.exp(effect), observed=counts)
    return model


@pytest.fixture(scope="module")
def sparse_and_dense():
    """Approximations at two values, with and without knowledge of what is zero."""
    found = []
    for is_measured in (False, True):
        fits, prior = conditional(effects_of_many_groups(), {"t"})
        fits._is_measured = is_measured
        start = prior[0].copy()
        start[0] = 0.2
        first = fits.first(start)
        found.append((fits, first, *fits.near([(first, np.array([-0.6]))])))
    return found


def test_sparse_second_derivatives_give_the_same_approximation(sparse_and_dense):
    (fits, *sparse), (others, *dense) = sparse_and_dense
    assert fits.sparsity is not None and others.sparsity is None
    assert fits.n_evaluations < 0.6 * others.n_evaluations
    back = np.argsort(fits.rest)
    for one, other in zip(sparse, dense, strict=True):
        np.testing.assert_allclose(one.shape.mean[back], other.shape.mean, atol=2e-3)
        np.testing.assert_allclose(one.slope[back], other.slope, atol=5e-3)
        assert one.log_mass == pytest.approx(other.log_mass, abs=5e-3)
        covariance = one.shape.covariance_times(np.eye(61))[np.ix_(back, back)]
        expected = other.shape.covariance_times(np.eye(61))
        np.testing.assert_allclose(covariance, expected, atol=2e-3)
    divergence = fits.divergence(*sparse), others.divergence(*dense)
    assert divergence[0] == pytest.approx(divergence[1], rel=0.1)


def test_the_mean_is_estimated_from_random_directions(sparse_and_dense):
    (fits, first, _), (others, other, _) = sparse_and_dense
    before = fits.n_evaluations
    ((found, gain),), ((expected, expected_gain),) = fits.skewed([first]), others.skewed([other])
    assert fits.n_evaluations - before < 80 < others.rest.size * 2
    assert gain == pytest.approx(expected_gain, rel=0.2)
    back = np.argsort(fits.rest)
    shift = (found.shape.mean - first.shape.mean)[back]
    assert np.corrcoef(shift, expected.shape.mean - other.shape.mean)[0, 1] > 0.97
    # the coordinates of covariance 1 depend on the order: all but two are an effect given the rest
    np.testing.assert_allclose(found.skewness[back][1:-1], expected.skewness[1:-1], atol=0.05)
    assert found.log_mass == pytest.approx(expected.log_mass, abs=0.05)


def test_none_is_made_where_it_would_have_to_be_dense():
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=30)
        pm.Normal(
            "y",
            pm.math.dot(np.random.default_rng(1).normal(size=(40, 30)), x),
            observed=np.zeros(40),
        )
    target = target_of(model, backend="numpy")
    posterior = Posterior(target)
    prior = posterior.draw_prior(50, np.random.default_rng(1))
    shape = learn_shape(prior, dense=False)
    given = np.empty(0, np.int64)
    fits = ConditionalFits(posterior, given, shape, may_be_dense=False)
    assert fits.first(prior[0]) is None
    spent = fits.n_evaluations
    assert fits.first(prior[1]) is None and fits.n_evaluations == spent


def test_no_skewness_is_known_where_a_gradient_is_not_finite():
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=2)
        pm.Potential("wall", pm.math.sum(pm.math.sqrt(0.8 - x)))
    fits, _ = conditional(model, ())
    ((found, gain),) = fits.skewed([fits.first(np.full(2, -0.5))])
    assert found is None and not gain <= 0.05
