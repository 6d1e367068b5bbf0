"""The one function that multiplies matrices for all models."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pm_evidence.targets.compile import products as matrix_products
from pm_evidence.targets.model.target import PyMCTarget


def layouts(rng, n_rows, n_columns):
    """Matrices of one shape in every layout that NumPy gives them."""
    yield rng.normal(size=(n_rows, n_columns))
    yield rng.normal(size=(n_columns, n_rows)).T
    yield rng.normal(size=(2 * n_rows, 3 * n_columns))[::2, ::3]
    yield rng.normal(size=(n_rows, n_columns))[::-1]
    yield rng.normal(size=(n_rows, n_columns))[:, ::-1]
    yield rng.normal(size=(n_rows, n_columns + 2))[:, 1:-1]
    yield np.broadcast_to(rng.normal(size=(n_rows, 1)), (n_rows, n_columns))
    yield np.broadcast_to(rng.normal(), (n_rows, n_columns))


@pytest.mark.parametrize("n_columns", [1, 4])
@pytest.mark.parametrize("n_inner", [0, 1, 3])
@pytest.mark.parametrize("n_rows", [1, 2, 5])
def test_all_layouts(n_rows, n_inner, n_columns):
    """Vectors, matrices and empty ones, however they lie in memory."""
    matrix_products._export()
    rng = np.random.default_rng(n_rows + 10 * n_inner + 100 * n_columns)
    for a in layouts(rng, n_rows, n_inner):
        for b in layouts(rng, n_inner, n_columns):
            np.testing.assert_allclose(matrix_products._call(a, b), a @ b, rtol=1e-12, atol=1e-14)


def test_shapes_must_fit():
    matrix_products._export()
    with pytest.raises(ValueError, match="product must fit"):
        matrix_products._call(np.ones((2, 3)), np.ones((2, 3)))


def regression(in_a_loop):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 3))
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=3)
        scale = pm.Normal("scale", 0, 1, shape=(3, 3))
        mean = pt.dot(X, scale @ b)
        if in_a_loop:
            steps = pytensor.scan(
                lambda v, m: m @ v, outputs_info=[b], non_sequences=[scale], n_steps=4,
                return_updates=False,
            )  # fmt: skip
            mean = X @ steps[-1]
        pm.Normal("y", mean, 1, observed=rng.normal(size=30))
    return model


@pytest.mark.parametrize("in_a_loop", [False, True])
def test_density_and_gradient_of_a_model(in_a_loop):
    """They are PyMC's, inside of loops too, and PyTensor's own product is in none of them."""
    model = regression(in_a_loop)
    target = PyMCTarget(model)
    x = np.random.default_rng(2).normal(size=12)
    log_density, gradient = target.differentiable.evaluate(x[None])
    point = dict(zip(("b", "scale"), (x[:3], x[3:].reshape(3, 3)), strict=True))
    np.testing.assert_allclose(log_density.sum(), model.compile_logp()(point), rtol=1e-12)
    np.testing.assert_allclose(gradient[0].sum(axis=0), model.compile_dlogp()(point), rtol=1e-10)
