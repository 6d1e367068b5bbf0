"""A reference and a model in one compiled density, against NumPy and finite differences."""

from dataclasses import replace

import numpy as np
import pytest

from pm_evidence.references import compiled
from pm_evidence.references.compiled import (
    annealed_from,
    annealed_from_by_numpy,
    density_in_python,
    packed,
)
from pm_evidence.targets.model.cache import target_of
from tests.models import shared
from tests.references.densities import references

STEP = 1e-6


@pytest.fixture(scope="module")
def model():
    return target_of(shared("several").model)


def check_columns(compiled, model, reference, x):
    """Assert that a density has the two columns of a reference, and their gradients."""
    log_density, gradient = compiled.evaluate(x)
    log_reference = reference.log_density(x)
    target = model.evaluate(x).log_density.sum(axis=1)
    np.testing.assert_allclose(log_density[:, 0], log_reference, rtol=1e-10)
    np.testing.assert_allclose(log_density[:, 1], target - log_reference, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(compiled.values(x), log_density)
    for j in range(x.shape[1]):
        step = STEP * np.eye(x.shape[1])[j]
        change = (compiled.values(x + step) - compiled.values(x - step)) / (2.0 * STEP)
        np.testing.assert_allclose(gradient[:, :, j], change, rtol=1e-4, atol=1e-5)


def points(model, n=30):
    return np.random.default_rng(4).normal(size=(n, model.n_dim), scale=2.0)


@pytest.mark.parametrize("name", references(2))
def test_columns_and_gradients(model, name):
    reference = references(model.n_dim)[name]
    arrays = packed(reference, np.arange(model.n_dim))
    compiled = annealed_from(model.differentiable, arrays, [], model.n_dim, 0.0)
    check_columns(compiled, model, reference, points(model))


def test_a_share_of_the_prior(model):
    """Without it weights are unbounded where the reference hardly reaches."""
    reference, x, share = references(model.n_dim)["mixture"], points(model), 0.1
    arrays = packed(reference, np.arange(model.n_dim))
    compiled = annealed_from(model.differentiable, arrays, [], model.n_dim, -0.5, share)
    prior = model.evaluate(x).log_density[:, 0] + 0.5
    expected = np.logaddexp(np.log1p(-share) + reference.log_density(x), np.log(share) + prior)
    np.testing.assert_allclose(compiled.values(x)[:, 0], expected, rtol=1e-10)
    target = model.evaluate(x).log_density.sum(axis=1) + 0.5
    log_density, gradient = compiled.evaluate(x)
    np.testing.assert_allclose(log_density.sum(axis=1), target, rtol=1e-10)
    for j in range(x.shape[1]):
        step = STEP * np.eye(x.shape[1])[j]
        change = (compiled.values(x + step) - compiled.values(x - step)) / (2.0 * STEP)
        np.testing.assert_allclose(gradient[:, :, j], change, rtol=1e-4, atol=1e-5)


def test_planted_errors_are_found(model):
    """The checks would not find a reference that is not subtracted, or a gradient of wrong sign."""
    reference, x = references(model.n_dim)["mixture"], points(model)
    arrays = packed(reference, np.arange(model.n_dim))
    right = annealed_from(model.differentiable, arrays, [], model.n_dim, 0.0)

    class Wrong:
        def __init__(self, sign, subtracted):
            self.sign, self.subtracted = sign, subtracted

        def values(self, x):
            found = right.values(x)
            found[:, 1] += 0.0 if self.subtracted else found[:, 0]
            return found

        def evaluate(self, x):
            gradient = right.evaluate(x)[1].copy()
            gradient[:, 0] *= self.sign
            return self.values(x), gradient

    check_columns(Wrong(1.0, True), model, reference, x)
    for wrong in (Wrong(-1.0, True), Wrong(1.0, False)):
        with pytest.raises(AssertionError):
            check_columns(wrong, model, reference, x)


def test_some_coordinates_further_factors_and_the_mass(model):
    """Discrete and circular coordinates, and ordered transforms, need these parts."""
    reference = references(1)["normal"]
    arrays = packed(reference, np.array([1]), n_circular=1)
    other = references(1)["student_t"]
    factor = density_in_python(other, np.array([0]), model.n_dim)
    compiled = annealed_from(model.density, arrays, [factor], model.n_dim, -0.5)
    x = points(model)
    log_density = compiled.values(x)
    expected = reference.log_density(x[:, 1:2]) + other.log_density(x[:, :1]) - np.log(2 * np.pi)
    np.testing.assert_allclose(log_density[:, 0], expected, rtol=1e-10)
    target = model.evaluate(x).log_density.sum(axis=1) + 0.5
    np.testing.assert_allclose(log_density.sum(axis=1), target, rtol=1e-10)
    assert not compiled.has_gradient and "StudentT" in compiled.slow_ops


def test_what_is_pointed_to_is_kept(model):
    """Machine code would read arrays that are freed."""
    compiled = annealed_from(
        model.density, packed(references(2)["dense"], np.arange(2)), [], model.n_dim, 0.0
    )
    before = compiled.values(points(model))
    alive = replace(compiled)
    del compiled
    junk = [np.random.default_rng(0).normal(size=50) for _ in range(2000)]
    np.testing.assert_array_equal(alive.values(points(model)), before)
    assert len(junk) == 2000


def test_failures_of_the_model_are_passed_on(model):
    """A point where the model fails would otherwise have the densities of the point before."""
    arrays = packed(references(2)["dense"], np.arange(2))
    failing = density_in_python(None, np.arange(2), 2)
    compiled = annealed_from(failing, arrays, [], 2, 0.0)
    assert np.isnan(compiled.values(points(model))).all()


# --- by JAX and by NumPy ---


@pytest.fixture(scope="module", params=["jax", "numpy"])
def other(request):
    """The model by another backend."""
    return target_of(shared("several").model, backend=request.param)


def test_columns_and_gradients_are_those_of_numba(model, other):
    """A wrong weight biases the evidence, and a wrong gradient makes every move fail.

    Far from the reference only the prior's share is left.
    """
    d = model.n_dim
    far = np.random.default_rng(5).choice([1e3, -1e3, 0.0, 1e8, -40.0], size=(6, d))
    x = np.concatenate([points(model), far])
    for name in references(d):
        arrays = packed(references(d)[name], np.arange(d))
        one = annealed_from(model.differentiable, arrays, [], d, -0.5, 0.1)
        same = annealed_from_by_numpy(other.differentiable, arrays, -0.5, 0.1)
        for found, expected in zip(same.evaluate(x), one.evaluate(x), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(same.values(x), one.values(x), rtol=1e-9, err_msg=name)


def test_without_a_share_of_the_prior(model):
    """Its logarithm is minus infinity: nothing may become NaN."""
    x, arrays = points(model), packed(references(model.n_dim)["mixture"], np.arange(model.n_dim))
    one = annealed_from(model.differentiable, arrays, [], model.n_dim, 0.0)
    by = target_of(shared("several").model, backend="numpy").differentiable
    same = annealed_from_by_numpy(by, arrays, 0.0, 0.0)
    for found, expected in zip(same.evaluate(x), one.evaluate(x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_a_density_without_gradient(other):
    arrays = packed(references(other.n_dim)["normal"], np.arange(other.n_dim))
    compiled = annealed_from_by_numpy(other.density, arrays, 0.0, 0.1)
    assert compiled.evaluate(np.zeros((4, other.n_dim)))[1] is None


@pytest.mark.parametrize("limit", [0, 1000])
def test_wide_references_are_sparse_matrices_for_numpy(model, limit, monkeypatch):
    """Many coordinates would make dense matrices of mostly zeros; both forms are the same."""
    monkeypatch.setattr(compiled, "_DENSE", limit)
    by, d = target_of(shared("several").model, backend="numpy"), model.n_dim
    for name in references(d):
        arrays = packed(references(d)[name], np.arange(d))
        one = annealed_from(model.differentiable, arrays, [], d, -0.5, 0.1)
        same = annealed_from_by_numpy(by.differentiable, arrays, -0.5, 0.1)
        for found, expected in zip(
            same.evaluate(points(model)), one.evaluate(points(model)), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=name)
