"""Functions on a lattice: exact where they are linear."""

import numpy as np

from pm_evidence.references.nested import MovingLeastSquares


def test_linear_functions_are_interpolated_on_a_lattice():
    axis = np.arange(-3.0, 4.0)
    at = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    known = np.column_stack([at @ [1.0, 2.0], at @ [-0.5, 0.0] + 4.0])
    x = np.random.default_rng(1).uniform(-2.0, 2.0, (40, 2))
    expected = np.column_stack([x @ [1.0, 2.0], x @ [-0.5, 0.0] + 4.0])
    slope = np.tile([[[1.0], [2.0]]], (len(at), 1, 1))
    surface = MovingLeastSquares(at, np.ones(2), known, slope)
    np.testing.assert_allclose(surface(x), expected, atol=0.02)
