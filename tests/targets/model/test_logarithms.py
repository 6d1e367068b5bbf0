"""The logarithm of a positive graph."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pm_evidence.targets.model.log_scale import log_of

GRAPHS = {
    "itself": lambda x: x,
    "power": lambda x: x**-0.5,
    "inverse": lambda x: pt.reciprocal(x),
    "ratio": lambda x: 3.0 / x,
    "root": lambda x: pt.sqrt(x),
    "absolute value": lambda x: pt.abs(x),
    "inverse root": lambda x: 1.0 / pt.sqrt(x),
    "times its sign": lambda x: pt.sign(x) * x**-0.5,
    "row": lambda x: pt.sqrt(x)[None, :],
    "sum": lambda x: x + 2.0,
}


@pytest.mark.parametrize("name", GRAPHS)
def test_it_is_the_logarithm(name):
    x = pt.dvector("x")
    graph = GRAPHS[name](x)
    function = pytensor.function([x], [log_of(graph), pt.log(graph)], mode="FAST_COMPILE")
    found, expected = function(np.array([0.3, 2.0, 1e4]))
    np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("name", "factor"), [("power", -0.5), ("inverse", -1.0), ("inverse root", -0.5)]
)
def test_a_graph_that_rounds_to_infinity_has_one(name, factor):
    """The scale of effects whose precision is exp(-2000)."""
    z = pt.dscalar("z")
    graph = log_of(GRAPHS[name](pt.exp(z)))
    function = pytensor.function([z], graph)  # which rewrites log(exp(z))
    assert function(-2000.0) == pytest.approx(factor * -2000.0)
