"""Graphs in machine code: what is private of PyTensor and numba, and code that is generated."""

import importlib
import inspect
import logging

import numba as nb
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from pytensor.tensor.rewriting.basic import topo_constant_folding

from pm_evidence.targets.compile import numba_graph as graph
from pm_evidence.targets.compile.numba_density import offer_jax
from pm_evidence.targets.compile.numba_graph import (
    compile_graph,
    jit,
)
from pm_evidence.targets.model.log_scale import binomial_excess

# PyTensor compiles pieces in C even in FAST_COMPILE, and installed by pip it finds no BLAS to link.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

# --- what is private of PyTensor and numba, and used, is where it was and does what it did ---


def test_private_functions_are_where_they_were_and_take_what_they_took():
    """A release of PyTensor has moved what this package loads late, in the middle of users' runs.

    What it imports at once fails in every test.
    """
    basic = importlib.import_module("pytensor.link.numba.dispatch.basic")
    cache = importlib.import_module("pytensor.link.numba.cache")
    for name in (
        "generate_fallback_impl",
        "numba_funcify",
        "numba_funcify_and_cache_key",
        "register_funcify_default_op_cache_key",
    ):
        assert hasattr(basic, name), name
    source = inspect.signature(cache.compile_numba_function_src).parameters
    assert {"global_env", "cache_key"} <= source.keys()
    assert "fastmath" in inspect.signature(basic.numba_njit).parameters


# --- graphs and their arguments ---


def test_large_constants_are_arguments_of_the_jitted_graph():
    """Embedded in the code, each data set would have machine code of its own."""
    x, data = pt.dscalar("x"), np.arange(100.0)
    jitted = jit(compile_graph([x], [pt.sin(x * pt.constant(data)).sum()]), [])
    assert any(np.array_equal(array, data) for array in jitted.arrays)
    assert jitted.key is not None and jitted.slow_ops == ()
    inner = jitted.function
    (found,) = nb.njit(lambda x, a: inner(x, a))(np.array(2.0), data)
    np.testing.assert_allclose(found, np.sin(2.0 * data).sum())


def test_constants_inside_of_operations_are_computed_once():
    """Merged by PyTensor, operations of constants alone would be an error in its log."""
    w, a = pt.dvector("w"), pt.constant(np.array([0.01]))
    graph = binomial_excess(w, a, a)
    function = compile_graph([w], [graph, pt.grad(graph.sum(), w)])
    assert "log" not in pytensor.dprint(function, file="str").lower()


def counts(rng, mu):
    return pm.Poisson("y", pt.exp(mu), observed=rng.poisson(3.0, size=8))


def grouped(rng, mu):
    effect = pm.Normal("effect", 0, 1, shape=3)
    group = rng.permutation(np.arange(40) % 3)
    return pm.Normal("y", mu + effect[group], 1, observed=rng.normal(size=40))


def few(rng, mu):
    return pm.Normal("y", mu, rng.uniform(1, 2, size=2), observed=rng.normal(size=2))


@pytest.mark.parametrize("likelihood", [counts, grouped, few])
def test_other_data_of_the_same_shapes_have_the_same_code(likelihood):
    """Else, each new data set would be compiled, in each process."""

    def key(seed):
        with pm.Model() as model:
            likelihood(np.random.default_rng(seed), pm.Normal("mu", 0, 1))
        return jit(compile_graph(model.value_vars, [model.datalogp]), []).key

    assert key(1) == key(2) is not None


# --- generated lines read arrays by address and write them into rows ---


# --- operations of ours are known to PyTensor's numba backend, once ---


# --- what users are told about slow models ---


@pytest.fixture
def heard(caplog):
    with caplog.at_level(logging.INFO, logger="pymc.pm_evidence"):
        yield caplog


def test_slow_operations_are_named_and_offered_to_jax(heard):
    """JAX has no code of the user's own operations, as the message says."""
    offer_jax(("Cumsum{axis=0}",), 0.0)
    (record,) = heard.records
    assert record.levelname == "WARNING"
    assert "Cumsum{axis=0}" in record.getMessage() and "backend='jax'" in record.getMessage()


def test_slow_compilation_is_offered_to_jax(heard):
    offer_jax((), 20.0)
    assert not heard.records
    offer_jax((), 45.4)
    (record,) = heard.records
    assert "45 s" in record.getMessage() and "backend='jax'" in record.getMessage()


# --- PyTensor's rewriters are global ---


def test_compiling_leaves_the_rewriters_of_pytensor_as_they_are():
    """What is registered with a mode is renamed, and databases know their rewriters by name.

    A global one that is renamed is no longer a final one: all graphs that are rewritten later in
    this process, those of NumPy and of the user included, would have other last digits.
    """
    x = pt.dvector("x")
    compile_graph([x], [pt.exp(x).sum()])
    assert topo_constant_folding.name == "topo_constant_folding"


def test_rewriters_have_an_order_of_their_own():
    """Those of one place would be ordered by their addresses in memory, other in each process."""
    mode = graph._with_folded_constants(graph.with_ordered_sums(get_mode("NUMBA")))
    places = [position for _, position in mode.provided_optimizer.extra_rewrites]
    assert len(places) > 4 and len(set(places)) == len(places)
