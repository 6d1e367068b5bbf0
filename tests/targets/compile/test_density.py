"""Machine code: it is the model's own density, to the last digit, and is compiled once."""

import importlib
import inspect
import json
import logging
import subprocess
import sys
import warnings

import numba as nb
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numba.core.errors import NumbaPerformanceWarning
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.raise_op import Assert
from scipy import stats

from pm_evidence.targets.compile.draws import compile_draws
from pm_evidence.targets.compile.graph import without_numba_hints
from pm_evidence.targets.compile.precision import in_double_precision
from pm_evidence.targets.layout import Layout
from pm_evidence.targets.model.target import PyMCTarget
from pm_evidence.testing import exact_systems

# PyTensor compiles pieces in C even in FAST_COMPILE, and installed by pip it finds no BLAS to link.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

SYSTEMS = exact_systems()
# one of each kind: vector, simplex, ordered, discrete, mixed, imputed, potential, pm.Data
AGREEING = (
    "dirichlet_multinomial",
    "ordered_two",
    "sprinkler",
    "change_point",
    "missing_poisson",
    "potential_and_data",
    "data_container",
)


# --- private interfaces of PyTensor and numba ---

PRIVATE = {
    "pytensor.compile.sharedvalue": ["SharedVariable"],
    "pytensor.graph.replace": ["clone_replace", "vectorize_graph"],
    "pytensor.graph.traversal": ["ancestors", "io_toposort"],
    "pytensor.link.numba.cache": ["compile_numba_function_src"],
    "pytensor.link.numba.dispatch.basic": ["numba_funcify_and_cache_key", "numba_njit"],
    "pytensor.tensor.random.type": ["RandomGeneratorType", "random_generator_type"],
    "pytensor.scalar.basic": ["Cast", "Clip", "ScalarType"],
    "pytensor.scan.op": ["Scan"],
    "pytensor.tensor.subtensor": ["AdvancedIncSubtensor", "indices_from_subtensor"],
    "pytensor.tensor.basic": ["MakeVector"],
    "pytensor.tensor.math": ["Prod", "Sum"],
    "pymc.backends.arviz": [
        "coords_and_dims_for_inferencedata",
        "find_constants",
        "find_observations",
    ],
    "pymc.data": ["MinibatchOp"],
    "pymc.distributions.custom": ["CustomDistRV", "CustomSymbolicDistRV"],
    "pymc.distributions.continuous": ["FlatRV", "HalfFlatRV"],
    "pymc.distributions.discrete": ["DiscreteUniformRV"],
    "pymc.distributions.distribution": ["DiracDeltaRV", "PartialObservedRV", "_support_point"],
    "pymc.distributions.mixture": ["MixtureRV"],
    "pymc.distributions.multivariate": ["CARRV", "ICARRV"],
    "pymc.distributions.shape_utils": ["_change_dist_size"],
    "pymc.distributions.simulator": ["SimulatorRV"],
    "pymc.distributions.transforms": ["Ordered"],
    "pymc.logprob.abstract": ["_logcdf", "_logprob"],
    "pymc.logprob.transforms": ["CircularTransform"],
    "pymc.pytensorf": ["constant_fold", "rewrite_pregrad"],
    "pymc.variational.minibatch_rv": ["MinibatchRandomVariable"],
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


# --- agreement with PyMC ---


def point_of(model, shapes, row):
    """The flat vector as the dict of unconstrained values that PyMC takes."""
    point, start = {}, 0
    for value, shape in zip(model.value_vars, shapes, strict=True):
        stop = start + int(np.prod(shape))
        point[value.name] = row[start:stop].reshape(shape).astype(value.dtype)
        start = stop
    return point


def check_agreement(model, *, gradient=True, rtol=1e-12, n=5):
    """Compare log prior, log likelihood and gradient with PyMC's at ``n`` prior draws."""
    target = PyMCTarget(model)
    x = target.draw(n, np.random.SeedSequence(1)).x
    log_density, _ = target.density.evaluate(x)
    points = [point_of(model, target.layout.shapes, row) for row in x]
    terms = model.compile_fn([model.varlogp, model.datalogp], mode="FAST_COMPILE")
    expected = np.array([terms(point) for point in points])
    np.testing.assert_allclose(log_density, expected, rtol=rtol, atol=1e-12)
    if not gradient or target.continuous.size == 0:
        return
    with_gradient, gradients = target.differentiable.evaluate(x)
    np.testing.assert_allclose(with_gradient, expected, rtol=rtol, atol=1e-12)
    slopes = model.compile_dlogp(mode="FAST_COMPILE")  # of the continuous variables
    expected = np.array([slopes(point) for point in points])
    total = gradients.sum(axis=1)[:, target.continuous]
    np.testing.assert_allclose(total, expected, rtol=max(rtol, 1e-10), atol=1e-10)


@pytest.mark.parametrize("name", AGREEING)
def test_density_and_gradient_are_pymcs(name):
    """A density that is off is the evidence of another model; a wrong gradient ruins acceptance.

    The literals of these models are powers of two and halves, whose logarithms PyMC takes in
    single precision: hence 1e-7 in the value of one term, and 1e-12 where all are float64.
    """
    check_agreement(SYSTEMS[name].build(), rtol=1e-7 if "change" in name else 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SYSTEMS if name not in AGREEING])
def test_density_of_every_system_is_pymcs(name):
    """The same on all exact systems; single-precision literals are allowed 1e-6 nats."""
    check_agreement(SYSTEMS[name].build(), gradient=SYSTEMS[name].smooth, rtol=1e-6)


@pytest.fixture(scope="module")
def regression():
    """Indices, large constants, masks and Fortran order, all as one model may have them."""
    rng = np.random.default_rng(3)
    n = 60
    design = np.asfortranarray(rng.normal(size=(n, 3)))
    group = rng.integers(0, 4, n)
    mask = rng.random(n) < 0.5
    y = rng.normal(size=n)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=3)
        effect = pm.Normal("effect", 0, 1, shape=4)
        log_scale = pm.Normal("log_scale", 0, 1)
        x = pm.Data("x", design)
        index = pm.Data("index", group)
        used = pm.Data("used", mask)
        mean = (x * beta).sum(axis=1) + effect[index] + pt.where(used, 1.0, 0.0)
        pm.Normal("y", mean, pm.math.exp(log_scale), observed=y)
    return model, (design, group, mask, y)


def log_likelihood(data, row):
    design, group, mask, y = data
    mean = design @ row[:3] + row[3:7][group] + mask
    return stats.norm.logpdf(y, mean, np.exp(row[7])).sum()


def test_data_of_every_kind(regression):
    """Arrays reach the machine code as addresses: order, dtype and length must be right."""
    model, data = regression
    target = PyMCTarget(model)
    x = np.random.default_rng(4).normal(size=(6, 8))
    log_density, gradient = target.differentiable.evaluate(x)
    np.testing.assert_allclose(log_density[:, 0], stats.norm.logpdf(x).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(
        log_density[:, 1], [log_likelihood(data, row) for row in x], rtol=1e-12
    )
    np.testing.assert_allclose(gradient[:, 0], -x, rtol=1e-12)
    step = 1e-6 * np.eye(8)
    slope = [
        [(log_likelihood(data, r + h) - log_likelihood(data, r - h)) / 2e-6 for h in step]
        for r in x
    ]
    np.testing.assert_allclose(gradient[:, 1], slope, rtol=1e-6, atol=1e-6)


def test_new_data_need_no_new_machine_code(regression):
    """The same model is fitted to many data sets: each compilation would cost seconds."""
    model, (_, group, mask, y) = regression
    rng = np.random.default_rng(5)
    first = PyMCTarget(model).density
    x = rng.normal(size=(3, 8))
    before = first.evaluate(x)[0]
    longer = rng.normal(size=(60, 3))
    with model:
        pm.set_data({"x": longer})
    try:
        second = PyMCTarget(model).density
        assert second._keep_alive[0].cache_hits == 1
        new = (longer, group, mask, y)
        np.testing.assert_allclose(
            second.evaluate(x)[0][:, 1], [log_likelihood(new, row) for row in x], rtol=1e-12
        )
        # a compiled density is frozen: it keeps the data that it was compiled with
        np.testing.assert_array_equal(first.evaluate(x)[0], before)
    finally:
        with model:
            pm.set_data({"x": regression[1][0]})


def test_other_lengths_and_other_constants_need_no_new_machine_code():
    """pm.Data may grow, and observed values are not part of the code."""

    def build(n, seed):
        rng = np.random.default_rng(seed)
        with pm.Model() as model:
            x = pm.Data("x", rng.normal(size=n))
            mu = pm.Normal("mu", 0, 1)
            pm.Normal("y", mu * x, 1, observed=pm.Data("seen", rng.normal(size=n)))
            pm.Normal("z", mu, 1, observed=rng.normal(size=50))
        return PyMCTarget(model).density

    one, two = build(40, 1), build(41, 2)
    assert two._keep_alive[0].cache_hits == 1
    assert one.evaluate(np.zeros((1, 1)))[0][0, 1] != two.evaluate(np.zeros((1, 1)))[0][0, 1]


CHILD = """
import json, sys, warnings
warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS")
import numba as nb
import numpy as np
from pm_evidence.targets.model.target import PyMCTarget
from pm_evidence.testing import exact_systems
target = PyMCTarget(exact_systems()["data_container"].build())
compiled = [target.density, target.differentiable]
values = compiled[1].evaluate(np.linspace(-1, 1, 6).reshape(3, 2))
print(json.dumps({
    "hits": [c._keep_alive[0].cache_hits for c in compiled],
    "values": [np.asarray(v).tolist() for v in values],
}))
"""


def test_machine_code_is_kept_on_disk():
    """Without it every new process compiles for seconds, and workers each once more."""
    runs = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", CHILD], capture_output=True, text=True, check=True
            ).stdout.splitlines()[-1]
        )
        for _ in range(2)
    ]
    assert runs[1]["hits"] == [1, 1]
    assert runs[0]["values"] == runs[1]["values"]


# --- double precision ---


N_ROWS = 100_000


def test_float32_literal_value_and_gradient():
    """PyTensor takes log(10) in single precision: 3e-3 nats off after 1e5 rows.

    The gradient has the literal's square in it. Both are compared with scipy in float64.
    """
    y = 3.0 + 10.0 * np.random.default_rng(0).normal(size=N_ROWS)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        pm.Normal("y", mu, 10, observed=y)
    x = np.array([[2.5], [-40.0]])
    log_density, gradient = PyMCTarget(model).differentiable.evaluate(x)
    expected = [[stats.norm.logpdf(m, 0, 3), stats.norm.logpdf(y, m, 10).sum()] for (m,) in x]
    slopes = [[-m / 9, (y - m).sum() / 100] for (m,) in x]
    np.testing.assert_allclose(log_density, expected, rtol=1e-13)
    np.testing.assert_allclose(gradient[:, :, 0], slopes, rtol=1e-11)
    # the trap is real: if this fails, PyTensor has mended it and the detour may go
    plain = model.compile_fn(model.datalogp, mode="FAST_COMPILE")({"mu": np.array(2.5)})
    assert abs(plain - expected[0][1]) > 1e-3


def test_literal_that_a_gradient_sees():
    """The derivative of a literal's power, in which single precision would be visible."""
    with pm.Model() as model:
        log_scale = pm.Normal("log_scale", 0, 1)
        pm.Normal("y", 0.1, 0.7 * pm.math.exp(log_scale), observed=np.full(1000, 0.3))
    log_density, gradient = PyMCTarget(model).differentiable.evaluate(np.array([[0.4]]))
    scale = 0.7 * np.exp(0.4)
    assert log_density[0, 1] == pytest.approx(1000 * stats.norm.logpdf(0.3, 0.1, scale), rel=1e-13)
    assert gradient[0, 1, 0] == pytest.approx(1000 * ((0.2 / scale) ** 2 - 1), rel=1e-13)


def single(values):
    return pt.constant(np.asarray(values, dtype=np.float32))


@pytest.mark.parametrize(
    ("graph", "exact"),
    [
        (lambda: pt.log(single(10.0)), np.log(10.0)),
        (lambda: pt.log(pt.constant(10, dtype="int8")), np.log(10.0)),
        (lambda: pt.exp(pt.log(single(3.0)) * single(7.0)), 3.0**7),
        (lambda: pt.sum(pt.log(single(np.full(10**5, 10.0)))), 10**5 * np.log(10.0)),
        (lambda: pt.prod(pt.exp(single([0.5, 0.25]))), np.exp(0.75)),
        (lambda: pt.mean(pt.sqrt(single([2.0, 3.0]))), (2**0.5 + 3**0.5) / 2),
        (lambda: pt.max(pt.sqrt(single([2.0, 3.0]))), 3**0.5),
        (lambda: pt.stack([pt.sqrt(single(2.0)), pt.sqrt(single(3.0))]).sum(), 2**0.5 + 3**0.5),
        (lambda: pt.stack([pt.sqrt(single(2.0)), single(3.0)]).sum(), 2**0.5 + 3),
        (lambda: pt.log(single(10.0)).sum(axis=-1), np.log(10.0)),  # as pm.CAR has it
        (lambda: pt.sum(single([16777216.0, 1.0, 1.0])), 16777218.0),
        (lambda: pt.where(pt.constant(True), pt.log(single(10.0)), single(1.0)), np.log(10.0)),
    ],
)
def test_single_precision_is_left_behind(graph, exact):
    """Each of these loses seven digits in PyTensor's own arithmetic, or in a sum that rounds."""
    (converted,) = in_double_precision([graph()])
    assert float(converted.eval(mode="FAST_COMPILE")) == pytest.approx(exact, rel=1e-14)


def test_casts_that_the_user_wrote_are_kept():
    """Rounding to float32 on purpose is part of the model."""
    value = pt.cast(pt.constant(0.1, dtype="float64"), "float32")
    (converted,) = in_double_precision([pt.cast(value, "float64")])
    assert float(converted.eval(mode="FAST_COMPILE")) == float(np.float32(0.1))


# --- what has no machine code ---


class Doubled(Op):
    """An operation that numba does not know and that has no gradient."""

    __props__ = ()

    def make_node(self, x):
        x = pt.as_tensor(x)
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(2.0 * inputs[0])


def test_operations_without_machine_code(caplog):
    """They are right but slow; the log names them, and no warning of numba's own gets through."""
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        pm.Normal("y", Doubled()(a), 1, observed=0.3)
    target = PyMCTarget(model)
    with caplog.at_level(logging.WARNING, logger="pymc.pm_evidence"):
        particles = target.draw(5, np.random.SeedSequence(1))
    assert target.density.slow_ops == ("Doubled",)
    assert "Doubled" in caplog.text and "slow" in caplog.text
    expected = stats.norm.logpdf(0.3, 2 * particles.x[:, 0], 1)
    np.testing.assert_allclose(particles.log_density[:, 1], expected, rtol=1e-12)
    assert target.differentiable is None


def test_an_exception_in_the_model_is_nan():
    """Machine code cannot raise: it must neither crash nor leave an old value behind."""
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        pm.Normal("y", Assert("a must be positive")(a, a > 0), 1, observed=0.3)
    log_density, _ = PyMCTarget(model).density.evaluate(np.array([[1.0], [-1.0], [2.0]]))
    assert np.isnan(log_density).tolist() == [[False] * 2, [True] * 2, [False] * 2]


def test_no_points_at_all():
    """Rejection may leave nothing to evaluate."""
    target = PyMCTarget(SYSTEMS["data_container"].build())
    assert target.density.evaluate(np.empty((0, 2)))[0].shape == (0, 2)
    assert target.differentiable.evaluate(np.empty((0, 2)))[1].shape == (0, 2, 2)


def test_points_in_any_memory_order():
    """A slice of a larger array is not contiguous."""
    density = PyMCTarget(SYSTEMS["data_container"].build()).density
    x = np.random.default_rng(1).normal(size=(2, 7))
    expected = density.evaluate(np.ascontiguousarray(x.T))[0]
    np.testing.assert_array_equal(density.evaluate(x.T)[0], expected)
    np.testing.assert_array_equal(density.evaluate(x.T[::2])[0], expected[::2])


# --- draws ---


def test_draws_of_a_graph_on_one_generator():
    """Joint draws: the child is drawn given the parent of the same row."""
    parent = pm.Normal.dist(10.0, 1.0)
    child = pm.Normal.dist(parent, 1e-3, size=2)
    draw = compile_draws([parent, child], Layout.of([(), (2,)]))
    out = np.empty((2000, 3))
    draw(out, np.random.default_rng(1))
    assert stats.kstest(out[:, 0], stats.norm(10, 1).cdf).pvalue > 1e-4
    noise = (out[:, 1:] - out[:, :1]) / 1e-3
    assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-4
    again = np.empty((2000, 3))
    draw(again, np.random.default_rng(1))
    np.testing.assert_array_equal(again, out)


def test_graphs_with_several_generators_are_not_compiled():
    """Threading two generators onto one would need their inner graphs: the caller must know."""
    two = pm.CustomDist.dist(
        1.0,
        dist=lambda scale, size: pm.Normal.dist(size=size) + pm.Exponential.dist(scale, size=size),
    )
    assert compile_draws([two], Layout.of([()])) is None
    assert compile_draws([pm.Normal.dist()], Layout.of([()])) is not None


def test_shared_generators_do_not_repeat_draws():
    """Two variables on one shared generator in the user's graph are still independent."""
    rng = pytensor.shared(np.random.default_rng(0))
    one, two = (pt.random.normal(0, 1, rng=rng, return_next_rng=True)[1] for _ in range(2))
    out = np.empty((1000, 2))
    compile_draws([one, two], Layout.of([(), ()]))(out, np.random.default_rng(2))
    assert abs(np.corrcoef(out.T)[0, 1]) < 0.15


def test_compiling_is_quiet():
    """Numba's hints are about code that the user did not write; all other warnings get through."""
    with without_numba_hints():
        warnings.warn(NumbaPerformanceWarning("'@' is faster on contiguous arrays"), stacklevel=1)
        warnings.warn("Numba will use object mode to run X's perform method.", stacklevel=1)
        with pytest.warns(UserWarning, match="mine"):
            warnings.warn("mine", stacklevel=1)
