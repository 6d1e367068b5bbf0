"""Graphs are computed in double precision, whatever the types of their literals."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

from pm_evidence.targets.compile.precision import in_double_precision
from pm_evidence.targets.model.target import PyMCTarget

# PyTensor compiles pieces in C even in FAST_COMPILE, and installed by pip it finds no BLAS to link.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

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
