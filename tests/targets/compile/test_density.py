"""Machine code: it is the model's own density, to the last digit, and is compiled once."""

import json
import logging
import subprocess
import sys

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.raise_op import Assert
from scipy import stats

from pm_evidence.targets.compile.density import CompiledDensity, compile_density
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
