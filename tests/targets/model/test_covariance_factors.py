"""Coordinates of Cholesky factors with an LKJ prior: standard deviations and correlations."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pm_evidence as pe
from pm_evidence.targets.model.cache import target_of
from pm_evidence.targets.model.coordinates import covariance_factors
from pm_evidence.targets.model.vectorised import RowFunction
from tests.targets.values import in_python

RNG = np.random.default_rng(1)


def build(n=3, eta=1.5):
    with pm.Model() as model:
        sds = pm.HalfNormal.dist(1.0, shape=n)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=n, eta=eta, sd_dist=sds)
        pm.MvNormal("y", np.zeros(n), chol=chol, observed=np.eye(n))
    return model


@pytest.fixture(scope="module")
def model():
    return build()


@pytest.fixture(scope="module")
def factor(model):
    (found,) = covariance_factors(model)
    return found


@pytest.fixture(scope="module")
def target(model):
    return in_python(model, target_of, rewritten=True, reparameterise=True)


@pytest.fixture(scope="module")
def own(model):
    """The same in the coordinates of the model."""
    return in_python(model)


def unpacked(value):
    """Cholesky factors of rows of PyMC's unconstrained values."""
    factors = np.zeros((len(value), 3, 3))
    factors[:, *np.tril_indices(3)] = value
    diagonal = np.arange(3)
    factors[:, diagonal, diagonal] = np.exp(factors[:, diagonal, diagonal])
    return factors


def to_model(factor, z):
    """Return rows of values, and log Jacobians."""
    at = pt.vector("z")
    return RowFunction([at], list(factor.value_of(at)), [])([z], [])


def test_coordinates_are_log_deviations_and_partial_correlations(factor):
    z = RNG.normal(size=(50, 6))
    lower = unpacked(to_model(factor, z)[0])
    covariance = lower @ lower.swapaxes(1, 2)
    sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    np.testing.assert_allclose(np.log(sd), z[:, [0, 2, 5]], atol=1e-12)
    correlation = covariance / (sd[:, :, None] * sd[:, None, :])
    one, two, three = correlation[:, 1, 0], correlation[:, 2, 0], correlation[:, 2, 1]
    np.testing.assert_allclose(np.tanh(z[:, 1]), one, atol=1e-12)
    np.testing.assert_allclose(np.tanh(z[:, 3]), two, atol=1e-12)
    partial = (three - one * two) / np.sqrt((1 - one**2) * (1 - two**2))
    np.testing.assert_allclose(np.tanh(z[:, 4]), partial, atol=1e-10)


def test_the_maps_are_inverse_and_the_jacobian_right(factor):
    z = RNG.normal(size=(5, 6))
    value, log_jacobian = to_model(factor, z)
    np.testing.assert_allclose(factor.from_model(value), z, atol=1e-12)
    steps = 1e-6 * np.eye(6)
    for row, expected in zip(z, log_jacobian, strict=True):
        change = to_model(factor, row + steps)[0] - to_model(factor, row - steps)[0]
        assert np.linalg.slogdet(change / 2e-6)[1] == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
def test_prior_draws_are_independent_and_have_the_density(own, target):
    """The prior of correlations is that of Lewandowski, Kurowicka and Joe (2009)."""
    z = target.finite_prior_points(2000, np.random.SeedSequence(1))
    apart = np.corrcoef(z.T) - np.eye(6)
    assert np.abs(apart).max() < 5.0 / np.sqrt(len(z))
    for column, b in ((1, 2.0), (3, 2.0), (4, 1.5)):
        share = 0.5 * (np.tanh(z[:, column]) + 1.0)
        assert stats.kstest(share, stats.beta(b, b).cdf).pvalue > 1e-3
    x = target.coordinates.to_model(z[:20], target.centring)
    log_jacobian = target.coordinates.log_jacobian(z[:20], target.centring)
    expected = own.evaluate(x).log_density
    found = target.evaluate(z[:20]).log_density
    np.testing.assert_allclose(found[:, 0], expected[:, 0] + log_jacobian, atol=1e-9)
    np.testing.assert_allclose(found[:, 1], expected[:, 1], atol=1e-9)


def test_the_prior_where_deviations_differ_much(target):
    """PyMC's own log density is infinite there: it takes differences of sums of squares."""
    z = np.array([[0.75, -11.3, -21.0, 0.5, 9.0, 3.0], [-30.0, 0.1, 2.0, 20.0, -20.0, -25.0]])
    log_sd, twice, shape = z[:, [0, 2, 5]], 2.0 * z[:, [1, 3, 4]], np.array([2.0, 2.0, 1.5])
    of_sd = stats.halfnorm.logpdf(np.exp(log_sd)) + log_sd
    of_partial = shape * (special.log_expit(twice) + special.log_expit(-twice))
    of_partial += np.log(2.0) - special.betaln(shape, shape)
    expected = (of_sd + of_partial).sum(axis=1)
    np.testing.assert_allclose(target.evaluate(z).log_density[:, 0], expected, rtol=1e-12)


def test_parameters_of_the_prior_may_be_variables():
    """Also one that is sampled in other coordinates itself."""
    with pm.Model() as model:
        sd = pm.HalfNormal("sd", 1.0)
        mu = pm.Normal("mu", 0.0, sd)
        eta = pm.Gamma("eta", 2.0, 1.0)
        given = {"eta": eta + 0.5, "sd_dist": pm.LogNormal.dist(mu, sd)}
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, **given)
        pm.MvNormal("y", np.zeros(2), chol=chol, observed=np.eye(2))
    own, target = in_python(model), in_python(model, target_of, reparameterise=True)
    assert [found.rv.name for found in target.variables] == ["mu"]
    z = target.finite_prior_points(20, np.random.SeedSequence(1))
    x = target.coordinates.to_model(z, target.centring)
    found, expected = target.density.values(z), own.density.values(x)
    expected[:, 0] += target.coordinates.log_jacobian(z, target.centring)
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_draws_of_users_are_mapped_there_and_back(own, target):
    z = target.finite_prior_points(10, np.random.SeedSequence(2))
    values = target.posterior(z)
    given = {"chol": values["chol"][None]}
    np.testing.assert_allclose(target.rows_of(given, "idata"), z, atol=1e-9)
    np.testing.assert_allclose(
        target.sample_stats(z)["lp"],
        own.sample_stats(target.coordinates.to_model(z, target.centring))["lp"],
    )


@pytest.mark.slow
def test_the_evidence_is_the_same_in_both_coordinates(model):
    given = {"target_mcse": 0.05, "cores": 1, "random_seed": 1, "progressbar": False}
    found = [
        pe.log_evidence(pe.sample_evidence(model, reparameterise=own, **given))
        for own in (True, False)
    ]
    assert all(each.status == "ok" for each in found)
    error = np.hypot(found[0].mcse, found[1].mcse)
    assert abs(found[0].value - found[1].value) < 4.0 * error
