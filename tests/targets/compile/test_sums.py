"""Sums of a model's terms: in order where that pays, and the same value everywhere."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode

from pm_evidence.targets.compile.sums import OrderedSum, with_ordered_sums

# PyTensor compiles pieces in C even in FAST_COMPILE, and installed by pip it finds no BLAS to link.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

RNG = np.random.default_rng(1)
LONG, SHORT = RNG.normal(size=300), RNG.normal(size=30)


def compiled(inputs, output):
    """The function, and whether it takes a sum in order."""
    function = pm.compile(inputs, output, mode=with_ordered_sums(get_mode("NUMBA")))
    ops = [node.op for node in function.maker.fgraph.toposort()]
    return function, any(isinstance(op, OrderedSum) for op in ops)


@pytest.mark.parametrize(
    ("graph", "in_order"),
    [
        (lambda x, s: (((LONG - x[0]) / s) ** 2).sum(), True),
        (lambda x, s: ((RNG.normal(size=(20, 15)) - x[0]) / s).sum(), True),
        (lambda x, s: ((RNG.normal(size=(20, 15)).T - x[0]) / s).sum(axis=(0, 1)), True),
        (lambda x, s: pt.outer(x, x / s).sum(), True),  # of a length that is not known
        (lambda x, s: (((SHORT - x[0]) / s) ** 2).sum(), False),
        (lambda x, s: (RNG.normal(size=(20, 15)) * x[0]).sum(axis=1).max() / s, False),
        (lambda x, s: (LONG * x[RNG.integers(3, size=300)] / s).sum(), False),
        (lambda x, s: (x[0] < LONG).sum() + s, False),
    ],
    ids=["long", "matrix", "transposed", "unknown", "short", "rows", "indexed", "whole numbers"],
)
def test_value(graph, in_order):
    """Which sums are taken in order is a matter of speed; what they are is not."""
    x, s = pt.vector("x"), pt.scalar("s")
    output = graph(x, s)
    function, found = compiled([x, s], output)
    plain = pm.compile([x, s], output, mode="FAST_COMPILE")
    at = np.array([0.3, -1.0, 2.0]), 0.7
    assert found == in_order
    np.testing.assert_allclose(function(*at), plain(*at), rtol=1e-13)


def test_division_by_zero():
    """A scale of zero is infinite terms, as it was before division became multiplication."""
    s = pt.scalar("s")
    function, _ = compiled([s], (LONG**2 / s).sum())
    assert function(0.0) == np.inf


def test_in_python():
    """Where PyTensor runs the operation without numba."""
    x = pt.matrix("x")
    function = pm.compile([x], OrderedSum()(x), mode="FAST_COMPILE")
    assert function(np.ones((3, 4)).T) == 12.0
