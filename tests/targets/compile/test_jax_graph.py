"""Graphs as functions that JAX traces: precision, checks, and operations that it lacks."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import wrap_py
from pytensor.raise_op import Assert

from pm_evidence.core.exceptions import ModelError
from pm_evidence.core.jax import double_precision
from pm_evidence.targets.compile.jax_graph import jax_function, no_jax_code, without_jax_code
from pm_evidence.targets.model.index_checks import with_asserted_indices


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


def test_long_reasons_are_cut():
    assert len(str(no_jax_code("x" * 5000))) < 1000
