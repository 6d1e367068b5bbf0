"""By how much convex functions exceed their tangents."""

from decimal import Decimal, localcontext

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pm_evidence.targets.model.log_scale import binomial_excess, exponential_excess

STEPS = [0.0, 1e-12, 1e-5, 9.99e-4, 1.01e-3, 0.1, 2.0, 30.0]
W = np.array([-each for each in STEPS[1:]] + STEPS)
SHAPES = [(1.0, 1.0), (3.0, 0.2), (1e-8, 2.0), (1e12, 5.0), (1e20, 3e20)]


def exponential_exactly(w):
    with localcontext(prec=60):
        return float(Decimal(w).exp() - 1 - Decimal(w))


def binomial_exactly(w, a, b):
    with localcontext(prec=80):
        w, a, b = Decimal(w), Decimal(a), Decimal(b)
        return float((a + b) * ((b + a * w.exp()) / (a + b)).ln() - a * w)


def test_of_the_exponential():
    w = pt.dvector("w")
    found = pytensor.function([w], exponential_excess(w))(W)
    np.testing.assert_allclose(found, [exponential_exactly(x) for x in W], rtol=1e-9)
    with np.errstate(all="ignore"):  # the usual form has no digits left at small numbers
        usual = np.exp(W) - 1 - W
    assert not np.allclose(usual, found, rtol=0.01, atol=0.0)


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_of_the_binomial_distribution(a, b):
    w, x, y = pt.dvector("w"), pt.dscalar("x"), pt.dscalar("y")
    found = pytensor.function([w, x, y], binomial_excess(w, x, y))(W, a, b)
    expected = [binomial_exactly(each, a, b) for each in W]
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-300)


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_gradients_are_finite_far_out(a, b):
    """One of the two branches overflows where the other is chosen."""
    w = pt.dvector("w")
    graphs = [exponential_excess(w).sum(), binomial_excess(w, pt.constant(a), pt.constant(b)).sum()]
    slopes = pytensor.function([w], [pt.grad(graph, w) for graph in graphs])
    far = np.array([-1e100, -1e3, 0.0, 600.0])
    exponential, binomial = slopes(far)
    assert exponential[:3] == pytest.approx([-1.0, -1.0, 0.0])
    assert binomial[2] == pytest.approx(0.0, abs=1e-9)
    assert binomial[[0, 3]] == pytest.approx([-a, b], rel=1e-6)
