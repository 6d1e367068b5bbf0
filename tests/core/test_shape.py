"""Shapes of populations: kernels step and fitted densities draw by them."""

import numpy as np
import pytest

from pm_evidence.core.shape import Shape, learn_shape

COVARIANCE = np.array([[4.0, 1.2, 0.0], [1.2, 1.0, -0.3], [0.0, -0.3, 0.25]])


def population(n, seed=1):
    return np.random.default_rng(seed).multivariate_normal([1.0, -2.0, 5.0], COVARIANCE, n)


def covariance(shape):
    return shape.factor @ shape.factor.T if shape.is_dense else np.diag(shape.factor[:, 0] ** 2)


def test_mean_and_covariance_of_a_normal_population():
    """50,000 members: the standard error of an entry is below 0.02. Seed 1."""
    shape = learn_shape(population(50_000))
    assert shape.is_dense and np.array_equal(shape.factor, np.tril(shape.factor))
    np.testing.assert_allclose(shape.mean, [1.0, -2.0, 5.0], atol=0.05)
    np.testing.assert_allclose(covariance(shape), COVARIANCE, atol=0.1)


def test_without_correlations_the_factor_is_a_column_of_deviations():
    x = population(1000)
    shape = learn_shape(x, dense=False)
    assert not shape.is_dense and shape.factor.shape == (3, 1)
    np.testing.assert_allclose(shape.factor[:, 0], x.std(axis=0), rtol=1e-12)


def test_few_members_and_unrelated_coordinates_have_no_correlations():
    """They would be noise, and each step costs the square of the dimension."""
    assert not learn_shape(population(14)).is_dense
    assert not learn_shape(np.random.default_rng(2).normal(size=(400, 20))).is_dense


@pytest.mark.parametrize("seed", range(3))
def test_it_moves_and_scales_with_the_population(seed):
    """Units of the variables must not change how well a kernel moves."""
    rng = np.random.default_rng(seed)
    x = rng.standard_t(4, size=(300, 3)) @ rng.normal(size=(3, 3))
    shift, scale = rng.normal(size=3), np.exp(rng.normal(size=3))
    plain, changed = learn_shape(x, dense=True), learn_shape(x * scale + shift, dense=True)
    np.testing.assert_allclose(changed.mean, plain.mean * scale + shift, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(changed.factor, plain.factor * scale[:, None], rtol=1e-7, atol=1e-9)


def test_a_far_tail_does_not_set_the_scale():
    """One prior draw of a HalfCauchy at 1e12 would else freeze all others."""
    x = np.random.default_rng(3).normal(size=(1000, 1))
    x[0] = 1e12
    assert learn_shape(x).factor[0, 0] < 1.5


def test_coordinates_that_do_not_vary_have_scale_one():
    """A division by zero would make every later proposal NaN."""
    x = np.column_stack([np.full(100, 2.0), np.arange(100.0)])
    shape = learn_shape(x, dense=False)
    assert shape.mean[0] == 2.0 and shape.factor[0, 0] == 1.0


def test_copies_are_no_new_members():
    """Resampling leaves copies: correlations of two distinct members are shrunk to nothing."""
    x = np.repeat(population(2, seed=4), 500, axis=0)
    shape = learn_shape(x, dense=True)
    distinct = learn_shape(population(1000, seed=4), dense=True)

    def correlation(shape):
        c = covariance(shape)
        return c[0, 1] / np.sqrt(c[0, 0] * c[1, 1])

    assert abs(correlation(shape)) < 0.8 < 0.99 < abs(np.corrcoef(x.T)[0, 1])
    assert correlation(distinct) == pytest.approx(0.6, abs=0.08)


def test_a_shape_of_one_dimension_is_dense():
    assert Shape(np.zeros(1), np.ones((1, 1))).is_dense


@pytest.mark.parametrize("columns", [1, 4])
def test_products_with_the_covariance_and_with_numbers(columns):
    rng = np.random.default_rng(3)
    factor = np.tril(rng.normal(size=(4, 4))) + 3.0 * np.eye(4)
    dense = np.diag(factor[:, 0]) if columns == 1 else factor
    shape = Shape(np.zeros(4), factor[:, :1] if columns == 1 else factor)
    rows = rng.normal(size=(2, 4))
    np.testing.assert_allclose(shape.covariance_times(rows), rows @ dense @ dense.T)
    np.testing.assert_allclose(shape.times(3.0).scaled(rows), 3.0 * shape.scaled(rows))
