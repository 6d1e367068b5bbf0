"""Functions and sums of our own have the values of those whose place they take."""

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from scipy import special

from pm_evidence.targets.compile import numba_graph as elementary
from pm_evidence.targets.compile.numba_graph import (
    OrderedSum,
    compile_graph,
    with_ordered_sums,
)

# PyTensor compiles pieces in C even in FAST_COMPILE, and installed by pip it finds no BLAS to link.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

# --- elementary functions ---

EDGES = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 5e-324, 1e-310, 1e308, -1e308])
SMALL = np.array([1e-300, 1e-20, 1e-16, -1e-16, 1e-8, -1e-8, 0.5, -0.5, 37.0, -37.0, 709.0, -745.0])


def softplus(x):
    return np.logaddexp(0.0, x)


FUNCTIONS = [
    (pt.exp, np.exp, elementary.VECTORISED[type(ps.exp)]),
    (pt.log, np.log, elementary.VECTORISED[type(ps.log)]),
    (pt.log1p, np.log1p, elementary.VECTORISED[type(ps.log1p)]),
    (pt.sigmoid, special.expit, elementary.VECTORISED[type(ps.sigmoid)]),
    (pt.softplus, softplus, elementary.VECTORISED[type(ps.softplus)]),
]


def scalar_ops(function):
    """The types of all operations on scalars in a compiled graph, also in merged loops."""
    found = set()
    for node in function.maker.fgraph.apply_nodes:
        op = getattr(node.op, "scalar_op", None)
        found.add(type(op))
        if hasattr(op, "fgraph"):
            found |= {type(inner.op) for inner in op.fgraph.apply_nodes}
    return found


def test_values_are_those_of_numpy():
    """A wrong bit in a series, or an edge that is not handled, shows in an evidence."""
    rng = np.random.default_rng(1)
    at = np.concatenate(
        [EDGES, SMALL, rng.normal(0, 3, 4000), np.exp(rng.uniform(-700, 700, 4000))]
    )
    x = pt.dvector("x")
    made = compile_graph([x], [function(x) for function, _, _ in FUNCTIONS])
    assert {kind for _, _, kind in FUNCTIONS} <= scalar_ops(made)
    for found, (_, exact, kind) in zip(made(at), FUNCTIONS, strict=True):
        with np.errstate(all="ignore"):
            expected = exact(at)
        normal = np.abs(expected) > 2.3e-308
        name = kind.__name__
        np.testing.assert_allclose(found[normal], expected[normal], rtol=2e-15, err_msg=name)
        np.testing.assert_allclose(found[~normal], expected[~normal], atol=1e-300, err_msg=name)


# --- sums: in order where that pays, and the same value everywhere ---

RNG = np.random.default_rng(1)
LONG, SHORT = RNG.normal(size=300), RNG.normal(size=30)
MATRIX, INDICES = RNG.normal(size=(20, 15)), RNG.integers(3, size=300)
IN_ORDER = [
    lambda x, s: (((LONG - x[0]) / s) ** 2).sum(),
    lambda x, s: ((MATRIX - x[0]) / s).sum(),
    lambda x, s: ((MATRIX.T - x[1]) / s).sum(axis=(0, 1)),
    lambda x, s: pt.outer(x, x / s).sum(),  # of a length that is not known
]
AS_USUAL = [
    lambda x, s: (((SHORT - x[0]) / s) ** 2).sum(),
    lambda x, s: (MATRIX * x[0]).sum(axis=1).max() / s,
    lambda x, s: (LONG * x[INDICES] / s).sum(),
    lambda x, s: (x[0] < LONG).sum() + s,
]


@pytest.mark.parametrize("in_order", [True, False])
def test_sums(in_order):
    """Which sums are taken in order is a matter of speed; what they are is not."""
    x, s = pt.vector("x"), pt.scalar("s")
    outputs = [graph(x, s) for graph in (IN_ORDER if in_order else AS_USUAL)]
    function = pm.compile([x, s], outputs, mode=with_ordered_sums(get_mode("NUMBA")))
    ops = [node.op for node in function.maker.fgraph.toposort()]
    assert sum(isinstance(op, OrderedSum) for op in ops) == (4 if in_order else 0)
    plain = pm.compile([x, s], outputs, mode="FAST_COMPILE")
    at = np.array([0.3, -1.0, 2.0]), 0.7
    np.testing.assert_allclose(function(*at), plain(*at), rtol=1e-13)
    if in_order:  # a scale of zero is infinite terms, as it was before division was multiplication
        assert function(at[0], 0.0)[0] == np.inf
