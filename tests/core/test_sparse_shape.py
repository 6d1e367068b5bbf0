"""Shapes by the inverse of a covariance, against dense ones."""

import numpy as np
import pytest

from pm_evidence.core.shape import Shape, SparseShape, conditioned
from tests.references.densities import lower, sparse_shape

RNG = np.random.default_rng(5)


def covariance(shape):
    """The covariance that the factor in its own order stands for."""
    d = shape.mean.size
    factor = np.diag(shape.diagonal)
    factor[shape.pattern.row, shape.pattern.column] = shape.below
    found = np.empty((d, d))
    found[np.ix_(shape.order, shape.order)] = np.linalg.inv(factor @ factor.T)
    return found


def test_it_does_what_a_dense_shape_does():
    shape = sparse_shape(6)
    sigma = covariance(shape)
    x, noise = RNG.normal(size=(4, 6)), RNG.normal(size=(4, 6))
    white = shape.whitened(x)
    squares = np.einsum("ni,ij,nj->n", x - shape.mean, np.linalg.inv(sigma), x - shape.mean)
    np.testing.assert_allclose((white**2).sum(axis=1), squares, rtol=1e-12)
    np.testing.assert_allclose(shape.mean + shape.scaled(white), x, atol=1e-12)
    np.testing.assert_allclose(shape.whitened(shape.mean + shape.scaled(noise)), noise, atol=1e-12)
    np.testing.assert_allclose(shape.covariance_times(x), x @ sigma, atol=1e-12)
    assert shape.log_volume == pytest.approx(0.5 * np.linalg.slogdet(sigma)[1])
    np.testing.assert_allclose(shape.lengths, np.diag(np.linalg.inv(sigma)) ** -0.5, rtol=1e-12)
    np.testing.assert_allclose(covariance(shape.times(1.5)), 2.25 * sigma, atol=1e-12)


def test_a_dense_shape_has_a_sparse_form():
    dense = Shape(RNG.normal(size=5), lower(5))
    shape = SparseShape.of(dense)
    np.testing.assert_allclose(covariance(shape), dense.factor @ dense.factor.T, rtol=1e-9)
    assert (shape.diagonal > 0.0).all()
    np.testing.assert_array_equal(shape.mean, dense.mean)


@pytest.mark.parametrize("k", [0, 1, 3])
def test_the_joint_density_of_variables_and_those_they_depend_on(k):
    """Its covariance is that of a linear model: variables = slope * others + noise."""
    shape, slope = sparse_shape(4), RNG.normal(size=(4, k))
    factor = lower(3)[:k, :k]
    order, mean = RNG.permutation(4 + k), RNG.normal(size=4 + k)
    joint = conditioned(shape, mean, order, slope, factor)
    expected = np.empty((4 + k, 4 + k))
    along = np.concatenate([slope @ factor, factor])
    own = along @ along.T
    own[:4, :4] += covariance(shape)
    expected[np.ix_(order, order)] = own
    np.testing.assert_allclose(covariance(joint), expected, atol=1e-10)
    np.testing.assert_array_equal(joint.mean, mean)
