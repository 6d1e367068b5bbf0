"""Functions called with frames: draws come from our own streams, values from the arguments."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.raise_op import Assert
from scipy import stats

from pm_evidence.targets.compile.calls import GENERATOR_SLOTS, compile_call
from tests.targets.compile.frames import call, draws_of

# PyTensor compiles pieces in C even in FAST_COMPILE, and installed by pip it finds no BLAS to link.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

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
