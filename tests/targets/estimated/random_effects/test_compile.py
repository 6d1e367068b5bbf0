"""Joint densities of data and effects in machine code, with derivatives."""

import numpy as np
import pytensor.tensor as pt
import pytest

from pm_evidence.targets.compile.calls import GENERATOR_SLOTS
from pm_evidence.targets.estimated.random_effects.compile import compile_groups
from tests.targets.compile.frames import call

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


@pytest.mark.parametrize("n_dim", [1, 2, 4])
def test_derivatives_of_a_quadratic(n_dim):
    """Up to three dimensions rows of the Hessian are graphs of their own; beyond, one Jacobian."""
    n_groups = 3
    x = pt.TensorType("float64", shape=(n_dim,))("x")
    z = pt.TensorType("float64", shape=(n_groups, n_dim))("z")
    rng = np.random.default_rng(1)
    root = rng.normal(size=(n_dim, n_dim))
    precision, scales = root @ root.T, np.arange(1.0, n_groups + 1)
    away = z - x
    log_prior = -0.5 * ((away @ precision) * away).sum(axis=1) * scales
    log_likelihood = pt.exp(x).sum() + 0 * z[:, 0]
    density = compile_groups(x, z, log_prior, log_likelihood, pt.zeros((n_groups, n_dim)) + x)
    point, at = rng.normal(size=n_dim), rng.normal(size=(n_groups, n_dim))
    parameters, start = np.empty(density.n_parameters), np.empty((n_groups, n_dim))
    value, gradient = np.empty(n_groups), np.empty((n_groups, n_dim))
    hessian = np.empty((n_dim, n_groups, n_dim))
    for number, arrays in enumerate(
        [(point, parameters, start), (at, parameters, value, gradient, hessian)]
    ):
        frame = density.frames()[number]
        slots = slice(GENERATOR_SLOTS, GENERATOR_SLOTS + len(arrays))
        frame[slots] = [a.ctypes.data for a in arrays]
        assert call(density.addresses[number], frame) == 0
    d = at - point
    np.testing.assert_allclose(start, np.tile(point, (n_groups, 1)))
    quadratic = -0.5 * np.einsum("gi,ij,gj->g", d, precision, d) * scales
    np.testing.assert_allclose(value, quadratic + np.exp(point).sum())
    np.testing.assert_allclose(gradient, -(d @ precision) * scales[:, None])
    np.testing.assert_allclose(hessian.transpose(1, 0, 2), -precision * scales[:, None, None])
