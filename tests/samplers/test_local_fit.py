"""Densities fitted to the curvature at a point."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from pm_evidence.core.shape import Shape
from pm_evidence.samplers.peaks import fit_locally
from tests.samplers.modes import posterior_of

COVARIANCE = np.array([[4.0, 1.0, 0.0], [1.0, 1.0, 0.02], [0.0, 0.02, 0.01]])


@pytest.fixture(scope="module")
def normal():
    """A correlated normal of integral ``exp(2)``; the prior is flat on its scale."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1e5, shape=3)
        pm.Potential("l", pm.logp(pm.MvNormal.dist(np.arange(3.0), cov=COVARIANCE), x) + 2.0)
    return posterior_of(model)


@pytest.mark.parametrize("scale", [1e-3, 5.0, 1e4])
def test_a_normal_has_its_integral_and_its_shape(normal, scale):
    """Whatever scale the population had."""
    local = fit_locally(normal, np.arange(3.0), Shape(np.zeros(3), np.full((3, 1), scale)))
    if scale < 0.1:  # broader directions than the population's are cut off at its scale
        assert local.log_mass < 2.0
        return
    of_prior = 3 * stats.norm.logpdf(0.0, 0, 1e5)
    assert local.log_mass == pytest.approx(2.0 + of_prior, abs=1e-3)
    factor = local.fit.shape.factor
    np.testing.assert_allclose(factor @ factor.T, COVARIANCE, rtol=1e-3, atol=1e-5)
    x = np.random.default_rng(1).multivariate_normal(np.arange(3.0), COVARIANCE, size=20)
    np.testing.assert_allclose(local.predicted(x), normal.log_density(x), atol=0.02)


def test_a_direction_that_rises_gets_the_populations_scale():
    """Half-way between two peaks the curvature has the wrong sign along the line between them."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 10, shape=2)
        pm.Potential("l", pm.math.logaddexp(-((x[0] - 3) ** 2), -((x[0] + 3) ** 2)) - x[1] ** 2)
    local = fit_locally(posterior_of(model), np.zeros(2), Shape(np.zeros(2), np.full((2, 1), 4.0)))
    sds = np.sqrt(np.diag(local.fit.shape.factor @ local.fit.shape.factor.T))
    np.testing.assert_allclose(sds, [4.0, 0.7], rtol=0.02)


def test_peaks_that_are_the_same(normal):
    local = fit_locally(normal, np.arange(3.0), Shape(np.zeros(3), np.ones((3, 1))))
    near = np.arange(3.0) + 0.2 * np.linalg.cholesky(COVARIANCE)[:, 0]
    points, height = np.array([near, near, near + 5.0]), local.height
    same = local.covers(points, np.array([height - 0.02, height + 5.0, height - 100.0]))
    assert same.tolist() == [True, False, False]


def test_nothing_can_be_fitted_where_there_is_no_density():
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=2)
        pm.Potential("l", pm.math.log(x[0]))
    shape = Shape(np.zeros(2), np.ones((2, 1)))
    assert fit_locally(posterior_of(model), np.array([-1.0, 0.0]), shape) is None
