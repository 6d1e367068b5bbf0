"""Normal draws from our own streams."""

import numpy as np
import pymc as pm
import pytest
from pytensor.graph.traversal import ancestors

from pm_evidence.targets.compile.normal_draws import StandardNormals, with_fast_normals
from tests.targets.compile.frames import draws_of

# PyTensor compiles pieces in C even in FAST_COMPILE, and installed by pip it finds no BLAS to link.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


@pytest.mark.parametrize("fast", [True, False])
def test_covariance_of_normal_draws(fast):
    """Scaled standard normals have the covariance asked for."""
    covariance = np.array([[1.0, 0.6], [0.6, 2.0]])
    draws = draws_of(pm.MvNormal.dist([1.0, -1.0], covariance), fast=fast)
    np.testing.assert_allclose(draws.mean(axis=0), [1.0, -1.0], atol=0.03)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.06)


def test_normal_draws_are_replaced():
    """The fast draws are used where they can be."""
    (graph,) = with_fast_normals([pm.Normal.dist(0.0, 1.0, shape=3)])
    ops = [v.owner.op for v in ancestors([graph]) if v.owner is not None]
    assert any(isinstance(op, StandardNormals) for op in ops)
