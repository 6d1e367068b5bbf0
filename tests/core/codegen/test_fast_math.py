"""Exponentials and logarithms without branches are those of the library, to the last digits."""

import numba as nb
import numpy as np
import pytest

from pm_evidence.core.codegen.vectors import fast_exp, fast_log

ULP = 2.0**-52


@nb.njit
def exps(x):
    """Return exponentials, many at a time."""
    out = np.empty_like(x)
    for k in range(x.size):
        out[k] = fast_exp(x[k])
    return out


@nb.njit
def logs(x):
    """Return logarithms, many at a time."""
    out = np.empty_like(x)
    for k in range(x.size):
        out[k] = fast_log(x[k])
    return out


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 30.0, 708.0])
def test_exp(scale):
    """Over all magnitudes, and where the rest after the power of two is largest."""
    rng = np.random.default_rng(1)
    halves = np.log(2.0) * (np.arange(-1000, 1000) + 0.5)
    x = np.concatenate([scale * rng.uniform(-1.0, 1.0, 10_001), halves[np.abs(halves) < 700.0]])
    np.testing.assert_allclose(exps(x), np.exp(x), rtol=2 * ULP)


def test_exp_beyond_the_range_of_normal_numbers():
    """Nothing turns into another number's bits: weights of zero stay zero, and NaN is NaN."""
    x = np.array([-np.inf, -1e300, -750.0, -708.5, 709.5, 720.0, 1e300, np.inf, np.nan, 0.0])
    np.testing.assert_array_equal(exps(x), [0.0] * 4 + [np.inf] * 4 + [np.nan, 1.0])
    np.testing.assert_allclose(exps(np.array([-708.0, 709.0])), np.exp([-708.0, 709.0]), rtol=1e-15)


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 30.0, 700.0])
def test_log(scale):
    """Near 1 the logarithm is small, and still right in all digits."""
    x = np.exp(scale * np.random.default_rng(2).uniform(-1.0, 1.0, 10_001))
    expected = np.log(np.longdouble(x)).astype(float)
    np.testing.assert_allclose(logs(x), expected, rtol=2 * ULP)
    powers = 2.0 ** np.arange(-1000, 1000)
    np.testing.assert_allclose(logs(powers), np.log(powers), rtol=ULP)
