"""Draws in machine code, on our own streams; functions of frames."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.raise_op import Assert
from scipy import stats

from pm_evidence.targets.compile.calls import GENERATOR_SLOTS, compile_call
from tests.targets.compile.frames import call, sampler_of

# PyTensor compiles pieces in C even in FAST_COMPILE, and installed by pip it finds no BLAS to link.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


# --- our own streams, in functions that are called with frames ---

COVARIANCE = np.array([[1.0, 0.6], [0.6, 2.0]])
CONTINUOUS = {  # false-alarm rate of each: 1e-4, seed 1
    "normal": (lambda: pm.Normal.dist(1.0, 2.0), stats.norm(1, 2).cdf),
    "gamma": (lambda: pm.Gamma.dist(3.0, 2.0), stats.gamma(3, scale=0.5).cdf),
    "student": (lambda: pm.StudentT.dist(nu=4.0, mu=1.0, sigma=2.0), stats.t(4, 1, 2).cdf),
    "exponential": (lambda: pm.Exponential.dist(2.0), stats.expon(scale=0.5).cdf),
}


def distributions(parity):
    """Also counts, and mixtures and vectors whose parameters are those of the particle."""
    factor = pt.switch(parity > 0, 4.0, 1.0)
    return [
        *(make() for make, _ in CONTINUOUS.values()),
        pm.Poisson.dist(3.5),
        pm.NormalMixture.dist([0.3, 0.7], 3.0 * parity + np.array([-2.0, 1.0]), [0.5, 1.0]),
        pm.MvNormal.dist([1.0, -1.0], factor * COVARIANCE),
    ]


def mixture_cdf(x):
    return 0.3 * stats.norm.cdf(x, -2.0, 0.5) + 0.7 * stats.norm.cdf(x, 1.0, 1.0)


@pytest.mark.slow
def test_draws_from_our_streams():
    """A generator rebuilt from addresses draws what NumPy's own does, and the same again."""
    draw = sampler_of(distributions)
    *continuous, counts, mixed, vectors = drawn = draw()
    for found, again in zip(drawn, draw(), strict=True):
        np.testing.assert_array_equal(found, again)
    assert not np.any(continuous[0] == draw(seed=2)[0])
    for found, (name, (_, cdf)) in zip(continuous, CONTINUOUS.items(), strict=True):
        assert stats.kstest(found, cdf).pvalue > 1e-4, name
    # whole numbers take 32-bit draws and rejection
    seen = np.bincount(counts.astype(int), minlength=12)[:12]
    expected = stats.poisson(3.5).pmf(np.arange(12))
    assert stats.chisquare(seen, expected / expected.sum() * seen.sum()).pvalue > 1e-4
    # the component of a mixture is drawn, and a covariance decomposed, for each particle by itself
    assert stats.kstest(mixed - 3.0 * (np.arange(len(mixed)) % 2), mixture_cdf).pvalue > 1e-4
    for first, factor in ((0, 1.0), (1, 4.0)):
        mine = vectors[first::2]
        np.testing.assert_allclose(mine.mean(axis=0), [1.0, -1.0], atol=0.04 * factor)
        np.testing.assert_allclose(np.cov(mine.T), factor * COVARIANCE, atol=0.08 * factor)


def test_arguments_by_address_and_by_value():
    """Whole numbers lie in the frame, arrays where it says, with as many rows as ``n`` is."""
    n, k = pt.lscalar("n"), pt.lscalar("k")
    x = pt.TensorType("float64", shape=(None, 2))("x")
    data = np.arange(80.0).reshape(2, 40)  # large enough to be passed by address
    graph = pt.specify_shape(k * (x @ pt.constant(data)), (None, 40))
    compiled = compile_call([n, k, x], [graph])
    for rows in (1, 3):
        values, out = np.random.default_rng(rows).normal(size=(rows, 2)), np.empty((rows, 40))
        frame = compiled.frame()
        frame[GENERATOR_SLOTS : GENERATOR_SLOTS + 4] = rows, 5, values.ctypes.data, out.ctypes.data
        assert call(compiled.address, frame) == 0
        np.testing.assert_allclose(out, 5 * values @ data, rtol=1e-13)


def test_a_failure_is_told_by_the_return_value():
    """An exception cannot leave machine code that is called by address."""
    x = pt.TensorType("float64", shape=(1,))("x")
    compiled = compile_call([x], [Assert("x must be positive")(x, x[0] > 0)])
    value, out = np.array([1.0]), np.empty(1)
    frame = compiled.frame()
    frame[GENERATOR_SLOTS : GENERATOR_SLOTS + 2] = value.ctypes.data, out.ctypes.data
    assert call(compiled.address, frame) == 0 and out[0] == 1.0
    value[0] = -1.0
    assert call(compiled.address, frame) == 1
