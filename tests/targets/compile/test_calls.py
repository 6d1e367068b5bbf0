"""Functions called with frames: draws come from our own streams, values from the arguments."""

import importlib

import numba as nb
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from scipy import stats

from pm_evidence.core.codegen.native import call_frame
from pm_evidence.core.random import generator_functions, seed_stream
from pm_evidence.targets.compile.batched import over_particles
from pm_evidence.targets.compile.calls import GENERATOR_SLOTS, compile_call
from pm_evidence.targets.compile.draws import on_one_generator
from pm_evidence.targets.compile.normal_draws import StandardNormals, with_fast_normals
from pm_evidence.targets.compile.parameters_only import split_parameters_only

# PyTensor compiles pieces in C even in FAST_COMPILE, and installed by pip it finds no BLAS to link.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

PRIVATE = {
    "numba.np.random.generator_core": ["_bit_gen_type"],
    "pymc.logprob.utils": ["CheckParameterValue"],
    "pymc.pytensorf": ["constant_fold", "resolve_shapes", "collect_default_updates"],
    "pytensor.compile.ops": ["DeepCopyOp"],
    "pytensor.compile.rewriting": ["inline_ofg_node"],
    "pytensor.link.numba.dispatch.basic": [
        "generate_fallback_impl",
        "numba_funcify",
        "register_funcify_default_op_cache_key",
    ],
    "pytensor.tensor.random.op": ["RNGConsumerOp"],
    "pytensor.tensor.subtensor": ["Subtensor", "indices_from_subtensor"],
}


@pytest.mark.parametrize("module", PRIVATE)
def test_private_names_are_where_they_were(module):
    """A release of PyTensor or PyMC has moved what this package leans on: see the module named."""
    loaded = importlib.import_module(module)
    assert [name for name in PRIVATE[module] if not hasattr(loaded, name)] == []


@nb.njit
def call(address, frame):
    return call_frame(address, frame)


def draws_of(distribution, n=40_000, seed=1, fast=True):
    """Draw ``n`` of a distribution of one particle."""
    size = pt.lscalar("n")
    many = over_particles(distribution, {}, size)
    many = pt.specify_shape(pt.cast(many, "float64"), (None, *many.type.shape[1:]))
    outputs = with_fast_normals([many]) if fast else [many]
    outputs, generator, last = on_one_generator(outputs)
    compiled = compile_call([size], outputs, generator, last)
    out, stream = np.empty((n, *many.type.shape[1:])), np.empty(4, np.uint64)
    seed_stream(stream, seed, 0)
    frame = compiled.frame()
    frame[0] = stream.ctypes.data
    frame[1:GENERATOR_SLOTS] = generator_functions()
    frame[GENERATOR_SLOTS] = n
    frame[GENERATOR_SLOTS + 1] = out.ctypes.data
    assert call(compiled.address, frame) == 0
    return out


DISTRIBUTIONS = {  # false-alarm rate of each: 1e-4, seed 1
    "normal": (lambda: pm.Normal.dist(1.0, 2.0), stats.norm(1, 2)),
    "gamma": (lambda: pm.Gamma.dist(3.0, 2.0), stats.gamma(3, scale=0.5)),
    "student": (lambda: pm.StudentT.dist(nu=4.0, mu=1.0, sigma=2.0), stats.t(4, 1, 2)),
    "beta": (lambda: pm.Beta.dist(2.0, 3.0), stats.beta(2, 3)),
    "exponential": (lambda: pm.Exponential.dist(2.0), stats.expon(scale=0.5)),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_draws_from_our_streams(name):
    """A generator rebuilt from addresses draws what NumPy's own does."""
    make, expected = DISTRIBUTIONS[name]
    draws = draws_of(make())
    assert stats.kstest(draws, expected.cdf).pvalue > 1e-4
    np.testing.assert_array_equal(draws, draws_of(make()))


def test_counts_from_our_streams():
    """32-bit draws and rejection on whole numbers."""
    draws = draws_of(pm.Poisson.dist(3.5)).astype(int)
    counts = np.bincount(draws, minlength=12)[:12]
    expected = stats.poisson(3.5).pmf(np.arange(12)) * len(draws)
    assert stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-4


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


def test_what_does_not_vary_is_taken_out():
    """Parameters only: once; the rest is the same function as before."""
    x, h = pt.dvector("x"), pt.dvector("h")
    x = pt.TensorType("float64", shape=(2,))("x")
    graph = (pt.exp(x[0]) * h + pt.log1p(x[1] ** 2)).sum()
    (cut,), parameters, precomputed = split_parameters_only([graph], [h])
    assert x not in set(ancestors([cut]))
    assert h not in set(ancestors([precomputed]))
    point, states = np.array([0.3, 0.7]), np.array([1.0, 2.0])
    values = precomputed.eval({x: point})
    np.testing.assert_allclose(
        cut.eval({parameters: values, h: states}), graph.eval({x: point, h: states})
    )
