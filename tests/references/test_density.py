"""A reference and a model in one density, against densities of SciPy and finite differences."""

from types import SimpleNamespace

import numpy as np
import pytest

from pm_evidence.references import density
from pm_evidence.references.density import annealed_from, components_of, log_reference
from pm_evidence.targets.compile.numba_density import _evaluate
from pm_evidence.targets.model.cache import target_of
from tests.models import shared
from tests.references.densities import InPython, references

STEP = 1e-6


@pytest.fixture(scope="module", params=["numpy", "numba", "jax"])
def model(request):
    return target_of(shared("several").model, backend=request.param)


def annealed(model, reference, share=0.0, log_mass=0.0):
    """The density of a model beside a reference of all of its coordinates."""
    found, n_rows = log_reference(reference, np.arange(model.n_dim), lambda x: 0.0)
    target = SimpleNamespace(
        n_dim=model.n_dim,
        log_order_mass=log_mass,
        density=model.density,
        differentiable=model.differentiable,
    )
    return annealed_from(target, "differentiable", found, share, n_rows=n_rows)


def check_columns(compiled, model, reference, x):
    """Assert that a density has the two columns of a reference, and their gradients."""
    log_density, gradient = compiled.evaluate(x)
    log_reference = reference.log_density(x)
    target = model.evaluate(x).log_density.sum(axis=1)
    np.testing.assert_allclose(log_density[:, 0], log_reference, rtol=1e-10)
    np.testing.assert_allclose(log_density[:, 1], target - log_reference, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(compiled.values(x), log_density, rtol=1e-13)
    check_gradient(compiled, x, gradient)


def check_gradient(compiled, x, gradient):
    for j in range(x.shape[1]):
        step = STEP * np.eye(x.shape[1])[j]
        change = (compiled.values(x + step) - compiled.values(x - step)) / (2.0 * STEP)
        np.testing.assert_allclose(gradient[:, :, j], change, rtol=1e-4, atol=1e-5)


def points(model, n=30):
    return np.random.default_rng(4).normal(size=(n, model.n_dim), scale=2.0)


@pytest.mark.parametrize("name", references(2))
def test_columns_and_gradients(model, name):
    reference = references(model.n_dim)[name]
    check_columns(annealed(model, reference), model, reference, points(model))


def test_a_share_of_the_prior_and_the_mass(model):
    """Without a share weights are unbounded where the reference hardly reaches."""
    reference, x, share = references(model.n_dim)["mixture"], points(model), 0.1
    far = np.random.default_rng(5).choice([1e3, -1e3, 0.0, -40.0], size=(6, model.n_dim))
    found = annealed(model, reference, share, -0.5)
    for where in (x, far):
        prior = model.evaluate(where).log_density[:, 0] + 0.5
        fit = np.log1p(-share) + reference.log_density(where)
        expected = np.logaddexp(fit, np.log(share) + prior)
        np.testing.assert_allclose(found.values(where)[:, 0], expected, rtol=1e-10)
        target = model.evaluate(where).log_density.sum(axis=1) + 0.5
        log_density, gradient = found.evaluate(where)
        np.testing.assert_allclose(log_density.sum(axis=1), target, rtol=1e-10)
        assert np.isfinite(gradient).all()
    check_gradient(found, x, found.evaluate(x)[1])


def test_planted_errors_are_found(model):
    """The checks would not find a reference that is not subtracted, or a gradient of wrong sign."""
    reference, x = references(model.n_dim)["mixture"], points(model)
    right = annealed(model, reference)

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


def test_some_coordinates_and_others(model):
    """Discrete and circular coordinates have densities of their own, without a gradient."""
    reference, other = references(1)["normal"], references(1)["student_t"]
    found, _ = log_reference(reference, np.array([1]), lambda x: other.log_density(x[:, :1]) - 2.0)
    x = points(model)
    value, slope = found(x, True)
    expected = reference.log_density(x[:, 1:2]) + other.log_density(x[:, :1]) - 2.0
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    assert (slope[:, [0, *range(2, model.n_dim)]] == 0.0).all() and (slope[:, 1] != 0.0).all()


def test_compiled_loops_may_call_it(model):
    """Kernels that move one chain after the other call a density by its address."""
    found = annealed(model, references(model.n_dim)["mixture"])
    x, out = points(model, 3), np.empty((3, 2))
    nowhere = np.empty((3, 2, model.n_dim))
    _evaluate(found.address, found.data, x, out, nowhere, False)
    np.testing.assert_allclose(out, found.values(x), rtol=1e-12)

    class Fails:
        def log_density(self, x):
            raise RuntimeError("no")

    failing = annealed(model, Fails())
    _evaluate(failing.address, failing.data, x, out, nowhere, False)
    assert np.isnan(out).all()


def test_rows_of_which_a_users_density_fails_are_not_known(model):
    """An exception at one point must not lose the others."""

    class Fails(InPython):
        def log_density(self, x):
            if (x[:, 0] > 1.0).any():
                raise RuntimeError("no")
            return super().log_density(x)

    normal, x = references(model.n_dim)["normal"], points(model)
    found = annealed(model, Fails(normal)).values(x)
    np.testing.assert_array_equal(np.isnan(found).all(axis=1), x[:, 0] > 1.0)
    fine = x[:, 0] <= 1.0
    np.testing.assert_allclose(found[fine, 0], normal.log_density(x[fine]))


def test_a_density_without_gradient(model):
    found, n_rows = log_reference(
        references(model.n_dim)["normal"], np.arange(model.n_dim), lambda x: 0.0
    )
    made = annealed_from(model, "density", found, 0.1, n_rows=n_rows)
    assert not made.has_gradient or model.backend == "numba"
    assert made.values(points(model)).shape == (30, 2)


@pytest.mark.parametrize("limit", [0, 1000])
def test_wide_references_are_sparse_matrices(limit, monkeypatch):
    """Many coordinates would make dense matrices of mostly zeros; both forms are the same."""
    model = target_of(shared("several").model, backend="numpy")
    monkeypatch.setattr(density, "_DENSE", limit)
    for reference in references(model.n_dim).values():
        check_columns(annealed(model, reference), model, reference, points(model))


def test_which_references_have_components():
    """Those of the package; an object of the user's own is called. None are no coordinates."""
    for reference in references(3).values():
        assert len(components_of(reference)) >= 1
    assert components_of(InPython(references(3)["normal"])) is None
    assert components_of(None) == []
    value, slope = log_reference(None, np.array([], np.int64), lambda x: -1.0)[0](
        np.ones((4, 2)), True
    )
    assert (value == -1.0).all() and (slope == 0.0).all()
