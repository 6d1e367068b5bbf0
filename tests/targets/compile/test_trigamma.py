"""The derivative of the digamma function."""

import numpy as np
import pytensor.tensor as pt
import pytest
from scipy import special

from pm_evidence.targets.compile.graph import compile_graph, jit
from pm_evidence.targets.compile.trigamma import trigamma


@pytest.mark.parametrize("x", [1e-300, 1e-8, 0.3, 1.0, 14.99, 15.0, 80.0, 1e8, 1e300, np.inf])
def test_positive_arguments(x):
    assert trigamma(x) == pytest.approx(special.polygamma(1, x), rel=1e-13)


@pytest.mark.parametrize("x", [-0.3, -2.5, -1e-3])
def test_negative_arguments(x):
    expected = special.polygamma(1, x + 4.0) + sum(1 / (x + k) ** 2 for k in range(4))
    assert trigamma(x) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("x", [0.0, -1.0, -20.0])
def test_poles(x):
    assert trigamma(x) == np.inf


def test_not_a_number():
    assert np.isnan(trigamma(np.nan))


def test_second_derivatives_are_compiled():
    x = pt.dvector("x")
    second = pt.grad(pt.grad(pt.gammaln(x).sum(), x).sum(), x)
    function = compile_graph([x], [second])
    assert jit(function, []).slow_ops == ()
    at = np.array([0.4, 30.0])
    np.testing.assert_allclose(function(at)[0], special.polygamma(1, at), rtol=1e-13)
