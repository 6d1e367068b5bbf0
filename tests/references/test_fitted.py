"""The fitted density is a density, draws from itself, and finds a Gaussian's own shape."""

import numpy as np
import pytest
from scipy import stats

from pm_evidence.core.shape import Shape
from pm_evidence.references.mixture import StudentFit


def correlated(n, d):
    rng = np.random.default_rng(1)
    mix = np.tril(rng.normal(size=(d, d))) + 2 * np.eye(d)
    return 3.0 + rng.normal(size=(n, d)) @ mix.T, mix @ mix.T


@pytest.mark.parametrize("d", [1, 3])
def test_log_density_is_that_of_scipy(d):
    x, _ = correlated(2000, d)
    fit = StudentFit.to(x)
    covariance = fit.shape.factor @ fit.shape.factor.T
    exact = stats.multivariate_t(fit.shape.mean, covariance, df=fit.dof).logpdf(x[:50])
    np.testing.assert_allclose(fit.log_density(x[:50]), exact, rtol=1e-10)


def test_draws_have_the_stated_density():
    """Mean importance weight of draws under a wider normalised density is 1 within 4 errors."""
    fit = StudentFit.to(correlated(5000, 2)[0])
    x = fit.draw(200_000, np.random.default_rng(4))
    narrow = stats.multivariate_normal(fit.shape.mean, 0.5 * fit.shape.factor @ fit.shape.factor.T)
    weight = np.exp(narrow.logpdf(x) - fit.log_density(x))
    assert abs(weight.mean() - 1) < 4 * weight.std() / np.sqrt(len(x))


def test_infinite_degrees_of_freedom_are_a_normal_density():
    """The reference of Laplace's method would have another density than its draws."""
    shape = Shape(np.array([1.0, -1.0]), np.array([[1.0, 0.0], [0.5, 2.0]]))
    fit = StudentFit(shape, np.inf)
    exact = stats.multivariate_normal(shape.mean, shape.factor @ shape.factor.T)
    x = fit.draw(20_000, np.random.default_rng(5))
    np.testing.assert_allclose(fit.log_density(x[:50]), exact.logpdf(x[:50]), rtol=1e-12)
    assert fit.log_constant == pytest.approx(exact.logpdf(shape.mean))
    np.testing.assert_allclose(np.cov(x.T), exact.cov, atol=0.2)
