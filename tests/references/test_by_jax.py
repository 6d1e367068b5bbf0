"""A reference and a model in one density of JAX, against that of numba."""

import numpy as np
import pytest

from pm_evidence.references.by_jax import annealed_from_by_jax
from pm_evidence.references.compiled import annealed_from
from pm_evidence.references.packed import packed
from pm_evidence.targets.model.cache import target_of
from pm_evidence.testing import exact_systems
from tests.references.densities import references


@pytest.fixture(scope="module")
def models():
    model = exact_systems()["mvnormal_mean"].build()
    return [target_of(model, backend=name).differentiable for name in ("numba", "jax")]


def check_equal(models, reference, share, x):
    arrays, d = packed(reference, np.arange(3)), 3
    one = annealed_from(models[0], arrays, [], d, -0.5, share)
    other = annealed_from_by_jax(models[1], arrays, -0.5, share)
    log_density, gradient = one.evaluate(x)
    found, slope = other.evaluate(x)
    np.testing.assert_allclose(found, log_density, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(slope, gradient, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", references(3))
def test_columns_and_gradients_are_those_of_numba(models, name):
    """A wrong weight biases the evidence, and a wrong gradient makes every move fail."""
    x = np.random.default_rng(4).normal(size=(30, 3), scale=2.0)
    check_equal(models, references(3)[name], 0.1, x)


def test_far_from_the_reference(models):
    """There only the prior's share is left."""
    x = np.array([[1e3, -1e3, 0.0], [1e8, 0.0, 1.0], [-40.0, 3.0, 0.0]])
    check_equal(models, references(3)["normal"], 0.1, x)


def test_a_density_without_gradient():
    model = target_of(exact_systems()["mvnormal_mean"].build(), backend="jax").density
    compiled = annealed_from_by_jax(model, packed(references(3)["normal"], np.arange(3)), 0.0, 0.1)
    assert compiled.evaluate(np.zeros((4, 3)))[1] is None
