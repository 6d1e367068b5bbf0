"""Machine code: it is the model's own density, to the last digit, and is compiled once."""

import json
import logging
import subprocess
import sys
from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.sparse
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.raise_op import Assert
from pytensor.sparse import as_sparse_variable, structured_dot
from scipy import stats

from pm_evidence.targets.compile.numba_density import CompiledDensity, compile_density
from pm_evidence.targets.model.cache import target_of
from pm_evidence.targets.model.target import PyMCTarget
from pm_evidence.targets.model.upstream import in_double_precision
from tests.systems.exact import exact_systems

# PyTensor compiles pieces in C even in FAST_COMPILE, and installed by pip it finds no BLAS to link.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

SYSTEMS = exact_systems()
# one of each kind: discrete, potential, pm.Data; slower ones: simplex, mixed and imputed
AGREEING_FAST = ("sprinkler", "potential_and_data", "data_container")
AGREEING = (*AGREEING_FAST, "dirichlet_multinomial", "missing_poisson")
# models of every family whose variables are continuous
BY_JAX = (
    "dirichlet_multinomial",
    "mvnormal_mean",
    "random_walk",
    "uniform_width",
    "von_mises",
    "truncated_normal",
    "zero_sum",
    "lkj_covariance",
    "ordered_unequal",
    "student_t_likelihood",
    "eight_schools_half_cauchy_centred",
    "funnel",
    "gaussian_shells",
    "label_switching",
    "potential_and_data",
    "missing_normal",
    "data_container",
)


@cache
def target(name):
    return PyMCTarget(SYSTEMS[name].build())


# --- agreement with PyMC ---


def point_of(model, shapes, row):
    """The flat vector as the dict of unconstrained values that PyMC takes."""
    point, start = {}, 0
    for value, shape in zip(model.value_vars, shapes, strict=True):
        stop = start + int(np.prod(shape))
        point[value.name] = row[start:stop].reshape(shape).astype(value.dtype)
        start = stop
    return point


def check_agreement(target, *, gradient=True, rtol=1e-12):
    """Compare log prior, log likelihood and gradient with PyMC's at five prior draws."""
    model = target.model
    x = target.draw(5, np.random.SeedSequence(1)).x
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


def check_jax(target):
    """Compare JAX's values and gradients with those of numba, far from the prior's mass too."""
    by_jax = target_of(target.model, backend="jax").differentiable
    x = target.draw(40, np.random.SeedSequence(1)).x
    x = np.concatenate([x, 5.0 * x, np.random.default_rng(2).normal(size=x.shape, scale=30.0)])
    log_density, gradient = target.differentiable.evaluate(x)
    found, slope = by_jax.evaluate(x)
    np.testing.assert_allclose(found, log_density, rtol=1e-11, atol=1e-11)
    assert found.flags.writeable and slope.dtype == np.float64
    possible = np.isfinite(log_density).all(axis=1)
    np.testing.assert_allclose(
        slope[possible], gradient[possible], rtol=1e-9, atol=1e-9 * np.abs(gradient[possible]).max()
    )
    np.testing.assert_allclose(by_jax.values(x), found, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in AGREEING_FAST else pytest.mark.slow) for n in AGREEING],
)
def test_density_and_gradient_are_pymcs(name):
    """A density that is off is the evidence of another model; a wrong gradient ruins acceptance."""
    check_agreement(target(name))
    if name in BY_JAX:
        check_jax(target(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SYSTEMS if name not in AGREEING])
def test_density_of_every_system_is_pymcs(name):
    """The same on all exact systems; single-precision literals are allowed 1e-6 nats."""
    check_agreement(target(name), gradient=SYSTEMS[name].smooth, rtol=1e-6)
    if name in BY_JAX:
        check_jax(target(name))


def test_functions_of_our_own_keep_density_and_gradient():
    """Vectorised exponentials and products of matrices: PyMC's are those of the C library."""
    rng = np.random.default_rng(2)
    design, y = rng.normal(size=(50, 3)), rng.integers(0, 2, 50)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=3)
        scale = pm.Normal("scale", 0, 1, shape=(3, 3))
        predictor = pt.dot(design, scale @ b)
        pm.Bernoulli("y", logit_p=predictor, observed=y)
        pm.Poisson("n", pm.math.exp(design @ b), observed=y)
    x = np.random.default_rng(2).normal(size=12)
    density = PyMCTarget(model).differentiable
    log_density, gradient = density.evaluate(x[None])
    point = {"b": x[:3], "scale": x[3:].reshape(3, 3)}
    expected = model.compile_logp()(point)
    assert log_density.sum() == pytest.approx(float(expected), rel=1e-13)
    np.testing.assert_allclose(gradient[0].sum(axis=0), model.compile_dlogp()(point), rtol=1e-10)
    assert density.slow_ops == ()  # they would run in Python, hundreds of times slower


@pytest.mark.parametrize("gradient", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_products_inside_of_a_loop(gradient):
    """Density and gradient are those of the loop written out."""
    rng = np.random.default_rng(1)
    design, y = rng.normal(size=(30, 3)), rng.normal(size=30)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=3)
        scale = pm.Normal("scale", 0, 1, shape=(3, 3))
        steps = pytensor.scan(
            lambda v, m: m @ v, outputs_info=[b], non_sequences=[scale], n_steps=4,
            return_updates=False,
        )  # fmt: skip
        pm.Normal("y", design @ steps[-1], 1, observed=y)
    x = np.random.default_rng(2).normal(size=12)
    matrix = x[3:].reshape(3, 3)
    mean = design @ np.linalg.matrix_power(matrix, 4) @ x[:3]
    expected = [stats.norm.logpdf(x).sum(), stats.norm.logpdf(y, mean).sum()]
    made = PyMCTarget(model)
    if not gradient:
        np.testing.assert_allclose(made.density.evaluate(x[None])[0][0], expected, rtol=1e-12)
        return
    log_density, slopes = made.differentiable.evaluate(x[None])
    np.testing.assert_allclose(log_density[0], expected, rtol=1e-12)
    point = {"b": x[:3], "scale": matrix}
    np.testing.assert_allclose(slopes[0].sum(axis=0), model.compile_dlogp()(point), rtol=1e-10)


@pytest.mark.parametrize("kind", ["constant", pytest.param("shared", marks=pytest.mark.slow)])
def test_sparse_matrices_stay_in_the_graph(kind):
    """Only the entries of a dense array can be passed by address."""
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(6, 3)) * (rng.random((6, 3)) < 0.5)
    sparse = scipy.sparse.csr_matrix(dense)
    matrix = pytensor.shared(sparse) if kind == "shared" else as_sparse_variable(sparse)
    y = rng.normal(size=6)
    with pm.Model() as model:
        slope = pm.Normal("slope", shape=3)
        pm.Normal("y", structured_dot(matrix, slope[:, None])[:, 0], 1.0, observed=y)
    x = rng.normal(size=(2, 3))
    log_density, gradient = PyMCTarget(model).differentiable.evaluate(x)
    expected = [stats.norm.logpdf(x).sum(axis=1), stats.norm.logpdf(y - x @ dense.T).sum(axis=1)]
    np.testing.assert_allclose(log_density.T, expected, rtol=1e-12)
    np.testing.assert_allclose(gradient[:, 0], -x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(gradient[:, 1], (y - x @ dense.T) @ dense, rtol=1e-12, atol=1e-12)


# --- precision: graphs are computed in double precision, whatever the types of their literals ---


def test_literals_of_single_precision():
    """PyTensor takes log(10) in single precision: 3e-3 nats off after 1e5 rows.

    The gradients have the literals' squares and powers in them. All is compared in float64.
    """
    y = 3.0 + 10.0 * np.random.default_rng(0).normal(size=100_000)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        log_scale = pm.Normal("log_scale", 0, 1)
        pm.Normal("y", mu, 10, observed=y)
        pm.Normal("z", 0.1, 0.7 * pm.math.exp(log_scale), observed=np.full(1000, 0.3))
    x = np.array([[2.5, 0.4], [-40.0, 0.4]])
    log_density, gradient = PyMCTarget(model).differentiable.evaluate(x)
    scale = 0.7 * np.exp(0.4)
    z = 1000 * stats.norm.logpdf(0.3, 0.1, scale)
    prior = [stats.norm.logpdf(m, 0, 3) + stats.norm.logpdf(s) for m, s in x]
    likelihood = [stats.norm.logpdf(y, m, 10).sum() + z for m, _ in x]
    np.testing.assert_allclose(log_density.T, [prior, likelihood], rtol=1e-13)
    np.testing.assert_allclose(gradient[:, 0], x * [-1 / 9, -1.0], rtol=1e-13)
    np.testing.assert_allclose(gradient[:, 1, 0], [(y - m).sum() / 100 for m, _ in x], rtol=1e-11)
    np.testing.assert_allclose(gradient[:, 1, 1], 1000 * ((0.2 / scale) ** 2 - 1), rtol=1e-13)
    # the trap is real: if this fails, PyTensor has mended it and the detour may go
    point = {"mu": x[0, 0], "log_scale": x[0, 1]}
    assert abs(model.compile_fn(model.datalogp, mode="FAST_COMPILE")(point) - likelihood[0]) > 1e-3


def single(values):
    return pt.constant(np.asarray(values, dtype=np.float32))


LOSING_DIGITS = [
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
]


def test_single_precision_is_left_behind():
    """Each of these loses seven digits in PyTensor's own arithmetic, or in a sum that rounds.

    Rounding to float32 that a user wrote on purpose is a part of the model.
    """
    converted = in_double_precision([graph() for graph, _ in LOSING_DIGITS])
    found = pytensor.function([], converted, mode="FAST_COMPILE")()
    np.testing.assert_allclose(found, [exact for _, exact in LOSING_DIGITS], rtol=1e-14)
    value = pt.cast(pt.constant(0.1, dtype="float64"), "float32")
    (converted,) = in_double_precision([pt.cast(value, "float64")])
    assert float(converted.eval(mode="FAST_COMPILE")) == float(np.float32(0.1))


# --- data, and code that is kept ---


def regression(n, seed):
    """Indices, large constants, masks and Fortran order, all as one model may have them."""
    rng = np.random.default_rng(seed)
    data = {
        "x": np.asfortranarray(rng.normal(size=(n, 3))),
        "index": rng.integers(0, 4, n),
        "used": rng.random(n) < 0.5,
        "seen": rng.normal(size=n),
    }
    constant = rng.normal(size=50)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=3)
        effect = pm.Normal("effect", 0, 1, shape=4)
        log_scale = pm.Normal("log_scale", 0, 1)
        x, index, used, seen = (pm.Data(name, value) for name, value in data.items())
        mean = (x * beta).sum(axis=1) + effect[index] + pt.where(used, 1.0, 0.0)
        pm.Normal("y", mean, pm.math.exp(log_scale), observed=seen)
        pm.Normal("z", beta[0], 1, observed=constant)
    return model, data, constant


def log_likelihood(data, constant, row):
    mean = data["x"] @ row[:3] + row[3:7][data["index"]] + data["used"]
    y = stats.norm.logpdf(data["seen"], mean, np.exp(row[7])).sum()
    return y + stats.norm.logpdf(constant, row[0]).sum()


def test_data_of_every_kind():
    """Arrays reach the machine code as addresses: order, dtype and length must be right."""
    model, data, constant = regression(60, 3)
    x = np.random.default_rng(4).normal(size=(6, 8))
    log_density, gradient = PyMCTarget(model).differentiable.evaluate(x)
    np.testing.assert_allclose(log_density[:, 0], stats.norm.logpdf(x).sum(axis=1), rtol=1e-12)
    expected = [log_likelihood(data, constant, row) for row in x]
    np.testing.assert_allclose(log_density[:, 1], expected, rtol=1e-12)
    np.testing.assert_allclose(gradient[:, 0], -x, rtol=1e-12)

    def difference(row, h):
        return log_likelihood(data, constant, row + h) - log_likelihood(data, constant, row - h)

    slope = [[difference(row, h) / 2e-6 for h in 1e-6 * np.eye(8)] for row in x]
    np.testing.assert_allclose(gradient[:, 1], slope, rtol=1e-6, atol=1e-6)


def test_new_data_need_no_new_machine_code():
    """The same model is fitted to many data sets: each compilation would cost seconds.

    ``pm.Data`` may grow, and constants are not part of the code.
    """
    model, _, constant = regression(60, 3)
    first = PyMCTarget(model).density
    x = np.random.default_rng(5).normal(size=(3, 8))
    before = first.evaluate(x)[0]
    other, longer, changed = regression(61, 6)
    pm.set_data(longer, model=model)
    for made, values in ((model, constant), (other, changed)):
        second = PyMCTarget(made).density
        assert second._keep_alive[0].cache_hits == 1
        expected = [log_likelihood(longer, values, row) for row in x]
        np.testing.assert_allclose(second.evaluate(x)[0][:, 1], expected, rtol=1e-12)
    # a compiled density is frozen: it keeps the data that it was compiled with
    np.testing.assert_array_equal(first.evaluate(x)[0], before)


CHILD = """
import json, sys, warnings
warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS")
import numba as nb
import numpy as np
from pm_evidence.targets.model.target import PyMCTarget
from tests.systems.exact import exact_systems
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
    made = target("data_container")
    made.density  # noqa: B018
    values = made.differentiable.evaluate(np.linspace(-1, 1, 6).reshape(3, 2))
    child = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, check=True
    )
    found = json.loads(child.stdout.splitlines()[-1])
    assert found["hits"] == [1, 1]
    assert found["values"] == [value.tolist() for value in values]


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
    made = PyMCTarget(model)
    with caplog.at_level(logging.WARNING, logger="pymc.pm_evidence"):
        particles = made.draw(5, np.random.SeedSequence(1))
    assert made.density.slow_ops == ("Doubled",)
    assert "Doubled" in caplog.text and "slow" in caplog.text
    expected = stats.norm.logpdf(0.3, 2 * particles.x[:, 0], 1)
    np.testing.assert_allclose(particles.log_density[:, 1], expected, rtol=1e-12)
    assert made.differentiable is None


def test_an_exception_in_the_model_is_nan():
    """Machine code cannot raise: it must neither crash nor leave an old value behind."""
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        pm.Normal("y", Assert("a must be positive")(a, a > 0), 1, observed=0.3)
    log_density, _ = PyMCTarget(model).density.evaluate(np.array([[1.0], [-1.0], [2.0]]))
    assert np.isnan(log_density).tolist() == [[False] * 2, [True] * 2, [False] * 2]


# --- compiled from graphs directly ---


def test_the_flat_vector_is_the_parts_one_after_the_other():
    """A number, a row and a matrix, each with its own gradient; one gradient is zero."""
    parts = [
        pt.TensorType("float64", shape=shape)(name)
        for name, shape in (("a", ()), ("b", (2,)), ("c", (2, 2)))
    ]
    a, b, c = parts
    terms = [a * b.sum(), (c * np.array([[1.0, 2.0], [3.0, 4.0]])).sum() + a**2]
    gradient = [pt.grad(term, parts, disconnected_inputs="ignore") for term in terms]
    density = compile_density(parts, terms, gradient)
    assert isinstance(density, CompiledDensity) and density.has_gradient
    x = np.array([[3.0, 5.0, 7.0, 1.0, 1.0, 1.0, 2.0]])
    values, slopes = density.evaluate(x)
    np.testing.assert_allclose(values, [[36.0, 23.0]])
    np.testing.assert_allclose(slopes[0, 0], [12.0, 3.0, 3.0, 0.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(slopes[0, 1], [6.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(density.values(x), values)
