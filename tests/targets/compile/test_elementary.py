import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special

from pm_evidence.targets.compile import elementary
from pm_evidence.targets.compile.graph import compile_graph
from pm_evidence.targets.model.target import PyMCTarget

EDGES = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 5e-324, 1e-310, 1e308, -1e308])
SMALL = np.array([1e-300, 1e-20, 1e-16, -1e-16, 1e-8, -1e-8, 0.5, -0.5, 37.0, -37.0, 709.0, -745.0])


def softplus(x):
    return np.logaddexp(0.0, x)


FUNCTIONS = [
    (pt.exp, np.exp, elementary.VectorExp),
    (pt.log, np.log, elementary.VectorLog),
    (pt.log1p, np.log1p, elementary.VectorLog1p),
    (pt.sigmoid, special.expit, elementary.VectorSigmoid),
    (pt.softplus, softplus, elementary.VectorSoftplus),
]
NAMES = ["exp", "log", "log1p", "sigmoid", "softplus"]


def compiled(function, shape):
    x = pt.tensor("x", shape=shape, dtype="float64")
    return compile_graph([x], [function(x)])


def scalar_ops(function):
    """The types of all operations on scalars in a compiled graph, also in merged loops."""
    found = set()
    for node in function.maker.fgraph.apply_nodes:
        op = getattr(node.op, "scalar_op", None)
        found.add(type(op))
        if hasattr(op, "fgraph"):
            found |= {type(inner.op) for inner in op.fgraph.apply_nodes}
    return found


@pytest.mark.parametrize(("function", "exact", "kind"), FUNCTIONS, ids=NAMES)
def test_values_are_those_of_numpy(function, exact, kind):
    """A wrong bit in a series, or an edge that is not handled, shows in an evidence."""
    rng = np.random.default_rng(1)
    x = np.concatenate([EDGES, SMALL, rng.normal(0, 3, 4000), np.exp(rng.uniform(-700, 700, 4000))])
    made = compiled(function, (None,))
    assert kind in scalar_ops(made)
    found = made(x)[0]
    with np.errstate(all="ignore"):
        expected = exact(x)
    normal = np.abs(expected) > 2.3e-308
    np.testing.assert_allclose(found[normal], expected[normal], rtol=2e-15)
    np.testing.assert_allclose(found[~normal], expected[~normal], atol=1e-300)


@pytest.mark.parametrize("shape", [(), (3,), (100, 2)])
def test_short_rows_keep_the_usual_functions(shape):
    """Vector instructions cost more than they save there."""
    assert elementary.VectorExp not in scalar_ops(compiled(pt.exp, shape))


def test_a_model_keeps_its_density_and_gradient():
    """Both are compared with PyMC's own, which the C library computes."""
    rng = np.random.default_rng(2)
    design, y = rng.normal(size=(50, 3)), rng.integers(0, 2, 50)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=3)
        pm.Bernoulli("y", logit_p=design @ b, observed=y)
        pm.Poisson("n", pm.math.exp(design @ b), observed=y)
    point = {"b": np.array([0.3, -1.2, 2.0])}
    log_density, gradient = PyMCTarget(model).differentiable.evaluate(point["b"][None])
    expected = model.compile_logp()(point)
    assert log_density.sum() == pytest.approx(float(expected), rel=1e-13)
    np.testing.assert_allclose(gradient.sum(axis=1)[0], model.compile_dlogp()(point), rtol=1e-11)


def test_the_code_has_no_slow_part():
    """Without its entry in the table, a function would run in Python, hundreds of times slower."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Bernoulli("y", logit_p=x * np.ones(50), observed=np.ones(50, int))
    assert PyMCTarget(model).differentiable.slow_ops == ()
