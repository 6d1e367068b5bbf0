"""What of PyTensor and numba is private, and used, is where it was and does what it did."""

import importlib
import inspect
import warnings

import numba as nb
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.sparse
from numba.core.errors import NumbaPerformanceWarning
from pytensor.sparse import as_sparse_variable, structured_dot

from pm_evidence.targets.compile.graph import (
    compile_graph,
    jit,
    shared_to_inputs,
    without_numba_hints,
)
from pm_evidence.targets.model.excess import binomial_excess
from pm_evidence.targets.model.target import PyMCTarget

# PyTensor compiles pieces in C even in FAST_COMPILE, and installed by pip it finds no BLAS to link.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

PRIVATE = {
    "numba.np.random.generator_core": ["_bit_gen_type"],
    "pymc.backends.arviz": [
        "coords_and_dims_for_inferencedata",
        "find_constants",
        "find_observations",
    ],
    "pymc.data": ["MinibatchOp"],
    "pymc.distributions.continuous": ["FlatRV", "HalfFlatRV"],
    "pymc.distributions.custom": ["CustomDistRV", "CustomSymbolicDistRV"],
    "pymc.distributions.discrete": ["DiscreteUniformRV"],
    "pymc.distributions.distribution": ["DiracDeltaRV", "PartialObservedRV", "_support_point"],
    "pymc.distributions.mixture": ["MixtureRV"],
    "pymc.distributions.multivariate": ["CARRV", "ICARRV"],
    "pymc.distributions.shape_utils": ["_change_dist_size"],
    "pymc.distributions.simulator": ["SimulatorRV"],
    "pymc.distributions.transforms": ["Ordered"],
    "pymc.logprob.abstract": ["_logcdf", "_logprob"],
    "pymc.logprob.transforms": ["CircularTransform"],
    "pymc.logprob.utils": ["CheckParameterValue"],
    "pymc.pytensorf": [
        "collect_default_updates",
        "constant_fold",
        "resolve_shapes",
        "rewrite_pregrad",
    ],
    "pymc.variational.minibatch_rv": ["MinibatchRandomVariable"],
    "pytensor.compile.ops": ["DeepCopyOp"],
    "pytensor.compile.rewriting": ["inline_ofg_node"],
    "pytensor.compile.sharedvalue": ["SharedVariable"],
    "pytensor.graph.replace": ["clone_replace", "vectorize_graph"],
    "pytensor.graph.traversal": ["ancestors", "io_toposort"],
    "pytensor.link.numba.cache": ["compile_numba_function_src"],
    "pytensor.link.numba.dispatch.basic": [
        "generate_fallback_impl",
        "numba_funcify",
        "numba_funcify_and_cache_key",
        "numba_njit",
        "register_funcify_default_op_cache_key",
    ],
    "pytensor.scalar.basic": ["Cast", "Clip", "ScalarType"],
    "pytensor.scan.op": ["Scan"],
    "pytensor.tensor.basic": ["MakeVector"],
    "pytensor.tensor.math": ["Prod", "Sum"],
    "pytensor.tensor.random.op": ["RNGConsumerOp"],
    "pytensor.tensor.random.type": ["RandomGeneratorType", "random_generator_type"],
    "pytensor.tensor.rewriting.basic": ["topo_constant_folding"],
    "pytensor.tensor.rewriting.fused_elemwise": ["FusedElemwise"],
    "pytensor.tensor.rewriting.ofg": ["inline_symbolic_for_fusion"],
    "pytensor.tensor.rewriting.scalarize": ["ScalarizedElemwise"],
    "pytensor.tensor.subtensor": [
        "AdvancedIncSubtensor",
        "AdvancedSubtensor",
        "Subtensor",
        "indices_from_subtensor",
    ],
}


@pytest.mark.parametrize("module", PRIVATE)
def test_private_names_are_where_they_were(module):
    """A release of PyTensor or PyMC has moved what this package leans on: see the module named."""
    loaded = importlib.import_module(module)
    assert [name for name in PRIVATE[module] if not hasattr(loaded, name)] == []


def test_private_functions_take_what_they_took():
    """The same names with other arguments would fail inside of users' runs."""
    basic = importlib.import_module("pytensor.link.numba.dispatch.basic")
    cache = importlib.import_module("pytensor.link.numba.cache")
    source = inspect.signature(cache.compile_numba_function_src).parameters
    assert {"global_env", "cache_key"} <= source.keys()
    assert "fastmath" in inspect.signature(basic.numba_njit).parameters


def test_private_behaviour():
    """What is returned, and what is attached to it, is what the wrapper is written for."""
    basic = importlib.import_module("pytensor.link.numba.dispatch.basic")
    x = pt.vector("x")
    function = pm.compile([x], [2.0 * x], mode="NUMBA")
    jitable, key = basic.numba_funcify_and_cache_key(function.maker.fgraph)
    assert isinstance(key, str)
    inner = nb.njit(inline="always")(jitable.py_func)
    (out,) = nb.njit(lambda x: inner(x))(np.ones(3))
    np.testing.assert_array_equal(out, [2.0, 2.0, 2.0])


def test_shared_arrays_become_inputs_and_whole_numbers_constants():
    """New data of another length then need no new machine code."""
    shared, count = pytensor.shared(np.arange(3.0)), pytensor.shared(2)
    (graph,), inputs, values = shared_to_inputs([(shared * count).sum()])
    assert len(inputs) == 1 and values[0] is shared.get_value(borrow=True)
    assert float(graph.eval({inputs[0]: np.ones(5)})) == 10.0


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


def test_compiling_is_quiet():
    """Numba's hints are about code that the user did not write; all other warnings get through."""
    with without_numba_hints():
        warnings.warn(NumbaPerformanceWarning("'@' is faster on contiguous arrays"), stacklevel=1)
        warnings.warn("Numba will use object mode to run X's perform method.", stacklevel=1)
        with pytest.warns(UserWarning, match="mine"):
            warnings.warn("mine", stacklevel=1)


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


@pytest.mark.parametrize("kind", ["constant", "shared"])
def test_sparse_matrices_stay_in_the_graph(kind):
    """Only the entries of a dense array can be passed by address."""
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(6, 3)) * (rng.random((6, 3)) < 0.5)
    sparse = scipy.sparse.csr_matrix(dense)
    matrix = pytensor.shared(sparse) if kind == "shared" else as_sparse_variable(sparse)
    y = rng.normal(size=6)

    def target(predictor):
        with pm.Model() as model:
            slope = pm.Normal("slope", shape=3)
            pm.Normal("y", predictor(slope), 1.0, observed=y)
        return PyMCTarget(model)

    x = rng.normal(size=(2, 3))
    found = target(lambda b: structured_dot(matrix, b[:, None])[:, 0]).differentiable.evaluate(x)
    expected = target(lambda b: dense @ b).differentiable.evaluate(x)
    for each, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(each, right, rtol=1e-12, atol=1e-12)
