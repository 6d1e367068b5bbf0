"""Densities of hyperparameters, and of normal variables given them."""

import numpy as np
import pytest
from scipy import stats

from pm_evidence.core.shape import Shape
from pm_evidence.references.mixture import StudentFit
from pm_evidence.references.nested import MovingLeastSquares, NestedNormal, functions_of

GIVEN, REST = np.array([1]), np.array([0, 2])
CURVATURE = np.array([[1.0, 0.0], [0.4, 0.7]])


def moments(h):
    """Mean and Cholesky factor, which change smoothly with the hyperparameter."""
    return np.array([2.0 * h, -h]), np.exp(0.3 * h) * CURVATURE


def density(points, spacing=1.0):
    hyper = StudentFit(Shape(np.zeros(1), np.ones((1, 1))), np.inf)
    at = np.asarray(points, float)[:, None]
    known, pattern = functions_of([Shape(*moments(h)) for h in points])
    slope = np.tile([[2.0, -1.0]], (len(at), 1, 1))
    surface = MovingLeastSquares(at, np.array([spacing]), known, slope)
    return NestedNormal(GIVEN, REST, hyper, surface, pattern)


def exact(x):
    """The log density of which the points are a sample."""
    found = stats.norm.logpdf(x[:, 1])
    for i, h in enumerate(x[:, 1]):
        mean, factor = moments(h)
        found[i] += stats.multivariate_normal(mean, factor @ factor.T).logpdf(x[i, REST])
    return found


def test_log_linear_scales_are_reproduced():
    """Inside the lattice, mean and log scale are linear in the hyperparameter: no error is left."""
    x = density(np.arange(-4.0, 5.0)).draw(200, np.random.default_rng(1))
    x = x[np.abs(x[:, 1]) < 2.5]
    np.testing.assert_allclose(density(np.arange(-4.0, 5.0)).log_density(x), exact(x), atol=0.02)


@pytest.mark.parametrize("points", [[0.0], [-1.0, 0.0, 1.0], [0.0, 1.0, 3.0]])
def test_draws_have_the_density(points):
    """Means of exp(log q - log p) over draws of q are 1 for any normalised p in its place."""
    nested = density(points)
    x = nested.draw(10_000, np.random.default_rng(2))
    other = StudentFit.to(x[:2000])
    ratio = np.exp(
        nested.log_density(y := other.draw(10_000, np.random.default_rng(5))) - other.log_density(y)
    )
    assert ratio.mean() == pytest.approx(1.0, abs=5.0 * ratio.std() / 100.0)


def test_rows_are_computed_in_parts_and_none_is_nothing(monkeypatch):
    nested = density([-1.0, 0.0, 1.0])
    x = nested.draw(50, np.random.default_rng(3))
    whole = nested.log_density(x)
    monkeypatch.setattr("pm_evidence.references.nested._MOST_ELEMENTS", 20)
    np.testing.assert_allclose(nested.log_density(x), whole, rtol=1e-12)
    np.testing.assert_array_equal(nested.draw(50, np.random.default_rng(3)), x)
    assert nested.log_density(x[:0]).shape == (0,) and nested.draw(
        0, np.random.default_rng(3)
    ).shape == (0, 3)


def test_far_from_all_points_it_stays_finite():
    nested = density(np.arange(-2.0, 3.0))
    found = nested.log_density(np.array([[0.0, 30.0, 0.0], [0.0, -400.0, 5.0]]))
    assert np.isfinite(found).all()


def skewed(third):
    """One coordinate given the hyperparameter, of mean 0 and variance 1."""
    known, pattern = functions_of([Shape(np.zeros(1), np.ones((1, 1)))], [np.array([third])])
    hyper = StudentFit(Shape(np.zeros(1), np.ones((1, 1))), np.inf)
    surface = MovingLeastSquares(np.zeros((1, 1)), np.ones(1), known, np.zeros((1, 1, 1)))
    return NestedNormal(np.array([0]), np.array([1]), hyper, surface, pattern, is_skewed=True)


@pytest.mark.parametrize("third", [-0.3, 0.0, 0.7, 5.0])
def test_skewed_densities(third):
    """They have mean 0 and variance 1, and a skewness that is near the third derivative."""
    nested = skewed(third)
    grid = np.linspace(-12.0, 12.0, 20_001)
    x = np.column_stack([np.zeros_like(grid), grid])
    density = np.exp(nested.log_density(x) - stats.norm.logpdf(0.0)) * (grid[1] - grid[0])
    moments = [(density * grid**power).sum() for power in range(4)]
    np.testing.assert_allclose(moments[:3], [1.0, 0.0, 1.0], atol=1e-5)
    if abs(third) < 1.0:
        assert moments[3] == pytest.approx(0.9 * third, abs=0.05)
    draws = nested.draw(20_000, np.random.default_rng(3))[:, 1]
    shares = np.interp(draws, grid, np.cumsum(density))
    assert stats.kstest(shares, "uniform").pvalue > 1e-3
