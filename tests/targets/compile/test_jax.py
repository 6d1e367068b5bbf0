"""Densities that JAX evaluates, and graphs as functions that it traces.

Their values and gradients are compared with those of numba in ``test_density``.
"""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import wrap_py
from pytensor.raise_op import Assert

import pm_evidence as pe
from pm_evidence.core.exceptions import ModelError
from pm_evidence.core.jax import double_precision, load_jax
from pm_evidence.targets.compile.jax_density import (
    jax_density,
    jax_function,
    without_jax_code,
)
from pm_evidence.targets.model.cache import target_of
from pm_evidence.targets.model.upstream import with_asserted_indices
from tests.models import shared

# --- densities ---


def test_values_without_gradient_and_two_sizes():
    """A density without gradient takes the place of one whose gradient is NaN.

    JAX compiles each size anew, which takes longer than thousands of evaluations.
    """
    target = target_of(shared("several").model, backend="jax")
    rng, density, n_dim = np.random.default_rng(1), target.differentiable, target.n_dim
    x = rng.normal(size=(5, n_dim))
    values, gradient = target.density.evaluate(x)
    assert gradient is None
    np.testing.assert_allclose(values, density.values(x), rtol=1e-14)
    # a population may be empty where all draws fall outside a transform
    log_density, gradient = density.evaluate(np.empty((0, n_dim)))
    assert log_density.shape == (0, 2) and gradient.shape == (0, 2, n_dim)
    x = rng.normal(size=(5000, n_dim))
    whole, slopes = density.evaluate(x)
    for n in (*range(1, 60), 300, 500, 1111):
        found, gradient = density.evaluate(x[:n])
        np.testing.assert_allclose(found, whole[:n], rtol=1e-14)
        np.testing.assert_allclose(gradient, slopes[:n], rtol=1e-12, atol=1e-12)
    assert 1 <= density.function.compiled._cache_size() <= 2


def test_a_run_needs_few_programs():
    """A further run compiles nothing. JAX has programs of its own that copy constants."""
    jax, compiled = load_jax(), []

    def note(name, *_, fun_name="", **__):
        if name == "/jax/core/compile/backend_compile_duration" and fun_name != "jit(stage)":
            compiled.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(note)
    model = shared("schools").model
    options = {"backend": "jax", "cores": 1, "progressbar": False, "target_mcse": 0.1}
    pe.sample_evidence(model, random_seed=1, **options)
    assert 1 <= len(compiled) <= 2
    compiled.clear()
    pe.sample_evidence(model, random_seed=2, **options)
    assert not compiled


def test_other_coordinates_need_no_compilation():
    """The amounts of centring are data."""
    target, by_jax = (
        target_of(shared("schools").model, reparameterise=True, backend=name)
        for name in ("numba", "jax")
    )
    x = target.draw(20, np.random.SeedSequence(1)).x
    before = by_jax.differentiable.values(x)
    centring = type(target.centring).common(0.7, len(target.variables))
    one, other = target.centred_by(centring), by_jax.centred_by(centring)
    found, slope = other.differentiable.evaluate(x)
    log_density, gradient = one.differentiable.evaluate(x)
    np.testing.assert_allclose(found, log_density, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(slope, gradient, rtol=1e-9, atol=1e-9)
    assert np.abs(found - before).max() > 0.1
    np.testing.assert_array_equal(by_jax.differentiable.values(x), before)
    assert other.differentiable.function is by_jax.differentiable.function


def test_new_data_are_seen():
    with pm.Model() as model:
        data = pm.Data("data", [1.0, 2.0])
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1, observed=data)
    before = target_of(model, backend="jax").evaluate(np.zeros((1, 1))).log_density[0, 1]
    with model:
        pm.set_data({"data": [1.0, 3.0]})
    after = target_of(model, backend="jax").evaluate(np.zeros((1, 1))).log_density[0, 1]
    assert before - after == pytest.approx(2.5)


def test_a_shape_that_depends_on_the_variables_is_refused():
    """JAX traces a function without values; this must come to light before a run."""
    with pm.Model() as model:
        x = pm.Normal("x", shape=3)
        pm.Potential("p", pt.sum(x[: pt.cast(pt.exp(x[0]), "int64")]))
        pm.Normal("y", x[0], 1, observed=1.0)
    with pytest.raises(ModelError, match="shapes that do not depend on the variables"):
        target_of(model, backend="jax").differentiable  # noqa: B018


def test_errors_of_tracing_are_errors_of_the_model():
    def wrong(x, arrays):
        return x[:, 0], None

    with pytest.raises(ModelError, match="Leave backend out"):
        jax_density(wrong, 2, [], has_gradient=False)


# --- graphs ---


def value_of(inputs, output, *values):
    function, constants = jax_function(inputs, [output])
    with double_precision() as jax:
        (found,) = jax.jit(function)(*(jax.numpy.asarray(v) for v in values), *constants)
        return np.asarray(found)


def test_literals_are_of_double_precision():
    """PyTensor keeps them as float32, and JAX would round a whole gradient to these."""
    x = pt.dvector("x")
    literal = pt.constant(np.array([0.1], np.float32))
    weak = pt.alloc(pt.constant(0.1), 2) * pt.switch(x > 0, pt.constant(1.0), literal)
    found = value_of([x], weak, np.ones(2))
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, np.array([0.1, 0.1]))


def test_a_failed_check_gives_nan():
    """JAX cannot raise an error, and PyTensor would leave the check out."""
    x = pt.dscalar("x")
    checked = Assert("x must be positive")(x, x > 0) ** 2
    assert value_of([x], checked, 3.0) == 9.0
    assert np.isnan(value_of([x], checked, -3.0))


def test_an_index_beyond_its_array_in_a_loop_gives_nan():
    """JAX would read the last element instead."""
    array, last = pt.constant(np.arange(4.0)), pt.dscalar("last")

    def step(k, total):
        return total + array[pt.cast(pt.minimum(k, 2) + last, "int64")]

    total = pytensor.scan(
        step,
        sequences=pt.arange(3),
        outputs_info=pt.constant(np.float64(0.0)),
        return_updates=False,
    )[-1]
    (guarded,) = with_asserted_indices([total])
    assert value_of([last], guarded, 1.0) == 6.0
    assert np.isnan(value_of([last], guarded, 2.0))


def test_an_operation_without_code_is_named():
    @wrap_py(itypes=[pt.dscalar], otypes=[pt.dscalar])
    def black_box(x):
        return x

    x = pt.dscalar("x")
    with pytest.raises(ModelError, match=r"no code for .*black_box.*\. Leave backend out"):
        jax_function([x], [black_box(x)])
    assert without_jax_code([black_box, pt.exp]) == [str(black_box)]
