"""Functions of a few variables: exact where they are quadratic or linear, and bounded far away."""

import numpy as np
import pytest

from pm_evidence.core.shape import Shape
from pm_evidence.references.nested import MovingLeastSquares, QuadraticSurface, n_coefficients

RNG = np.random.default_rng(1)
SHAPE = Shape(np.array([1.0, -2.0, 0.5]), np.diag([0.5, 2.0, 1.0]) + np.tri(3, k=-1) * 0.3)


def quadratic(x):
    return np.column_stack([1.0 + x[:, 0] * x[:, 1], x[:, 2] ** 2 - x[:, 1], 0.0 * x[:, 0] + 3.0])


def points(n, scale=1.0):
    return SHAPE.mean + SHAPE.scaled(scale * RNG.uniform(-1.0, 1.0, (n, 3)))


def test_quadratic_functions_are_reproduced():
    at = points(n_coefficients(3) + 5)
    surface = QuadraticSurface.through(SHAPE, at, quadratic(at))
    x = points(50, 2.4)
    np.testing.assert_allclose(surface(x), quadratic(x), rtol=1e-9, atol=1e-9)
    assert surface.n_weights == n_coefficients(3) == 10


def test_functions_are_bounded_far_from_the_points():
    at = points(30)
    surface = QuadraticSurface.through(SHAPE, at, quadratic(at))
    far, farther = (SHAPE.mean + SHAPE.scaled(np.full((1, 3), c)) for c in (2.5, 1e6))
    np.testing.assert_allclose(surface(farther), surface(far), rtol=1e-9)


@pytest.mark.parametrize("with_slopes", [False, True])
def test_linear_functions_are_interpolated_on_a_lattice(with_slopes):
    axis = np.arange(-3.0, 4.0)
    at = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    known = np.column_stack([at @ [1.0, 2.0], at @ [-0.5, 0.0] + 4.0])
    slope = np.tile([[[1.0], [2.0]]], (len(at), 1, 1))[:, :, : int(with_slopes)]
    surface = MovingLeastSquares(at, np.ones(2), known, slope)
    x = RNG.uniform(-2.0, 2.0, (40, 2))
    expected = np.column_stack([x @ [1.0, 2.0], x @ [-0.5, 0.0] + 4.0])
    np.testing.assert_allclose(surface(x), expected, atol=0.02)
