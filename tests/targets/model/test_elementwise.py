"""What the rules for elementwise operations claim holds for random compositions of them."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import io_toposort
from pytensor.printing import pprint

from pm_evidence.targets.model.concavity import known_functions

UNARY = [
    pt.exp, pt.log, pt.log1p, pt.sqr, pt.sqrt, pt.abs, pt.neg, pt.reciprocal, pt.sigmoid,
    pt.softplus, lambda x: x**3.0, lambda x: x**-0.5, lambda x: 1.0 - x,
    lambda x: pt.switch(pt.ge(x, 0.0), x, -np.inf), lambda x: pt.log(1.0 - 0.5 * x),
    lambda x: -2.0 * x, lambda x: x + 1.0, lambda x: 1.0 / x, pt.tanh,
]  # fmt: skip
BINARY = [pt.add, pt.sub, pt.mul, pt.true_div]
N_GRAPHS, N_POINTS = 150, 400


def random_graph(inputs, rng):
    """Return a random composition of elementwise functions of two vectors."""
    pool = [inputs[0] - 2.0 * inputs[1], 0.5 * inputs[1]]
    for _ in range(rng.integers(1, 6)):
        if rng.random() < 0.65:
            pool.append(UNARY[rng.integers(len(UNARY))](pool[rng.integers(len(pool))]))
        else:
            one, two = (pool[rng.integers(len(pool))] for _ in range(2))
            pool.append(BINARY[rng.integers(len(BINARY))](one, two))
    return pool[-1]


def evaluated(graph, values):
    """Return the value of a graph, operation by operation; None if a part of it overflows."""
    storage = dict(values)
    for node in io_toposort([], [graph]):
        for variable in node.inputs:
            if variable not in storage:
                storage[variable] = variable.data
        result = [None]
        with np.errstate(all="ignore"):
            node.op.perform(node, [storage[v] for v in node.inputs], [result])
        if np.isinf(result[0]).any():
            return None
        storage[node.outputs[0]] = result[0]
    return storage[graph]


def excess(at_a, at_b, between, share):
    """Return by how much a function exceeds what it would be on the line between two points."""
    line = share * at_a + (1 - share) * at_b
    return (between - line) / (1 + np.abs(at_a) + np.abs(at_b))


@pytest.mark.parametrize("seed", range(6))
def test_random_compositions(seed):
    """No rule, and no rules together, claim a curvature, a sign or a bound that does not hold."""
    rng = np.random.default_rng(seed)
    inputs = [pt.vector(name) for name in "xy"]
    a, b = rng.normal(0, 2, (2, 2, N_POINTS))
    share = rng.uniform(0.1, 0.9, N_POINTS)
    points = a, b, share * a + (1 - share) * b
    n_convex = n_concave = n_positive = 0
    for _ in range(N_GRAPHS):
        graph = random_graph(inputs, rng)
        (known,) = known_functions(inputs, [graph])
        values = [evaluated(graph, dict(zip(inputs, x, strict=True))) for x in points]
        if any(value is None for value in values):
            continue
        text = pprint(graph)
        if known.is_finite:
            assert not np.isnan(values).any(), text
            assert np.min(values) >= known.low - 1e-9, text
            assert np.max(values) <= known.high + 1e-9, text
        if known.curvature.is_convex:
            n_convex += 1
            assert (excess(*values, share) <= 1e-7).all(), text
        if known.curvature.is_concave:
            n_concave += 1
            assert (excess(*values, share) >= -1e-7).all(), text
        if known.log is not None:
            n_positive += 1
            assert np.min(values) >= 0.0, text
            normal = np.min(values, axis=0) > 1e-300
            logs = [np.log(value[normal]) for value in values]
            if known.log.is_convex:
                assert (excess(*logs, share[normal]) <= 1e-6).all(), text
            if known.log.is_concave:
                assert (excess(*logs, share[normal]) >= -1e-6).all(), text
    assert min(n_convex, n_concave, n_positive) > 3


@pytest.mark.parametrize(
    ("truth", "low", "high"),
    [
        (lambda x: pt.ge(pt.exp(x), 0.0), 1.0, 1.0),
        (lambda x: pt.gt(pt.exp(x), 0.0), 1.0, 1.0),
        (lambda x: pt.eq(pt.exp(x), 0.0), 0.0, 0.0),
        (lambda x: pt.lt(pt.sigmoid(x), 0.0), 0.0, 0.0),
        (lambda x: pt.le(pt.sigmoid(x), 1.0), 1.0, 1.0),
        (lambda x: pt.gt(x, 0.0), 0.0, 1.0),
        (lambda x: pt.isnan(pt.exp(x)), 0.0, 0.0),
        (lambda x: pt.and_(pt.ge(pt.sqr(x), 0.0), pt.gt(x, 0.0)), 0.0, 1.0),
        (lambda x: pt.and_(pt.lt(pt.sqr(x), 0.0), pt.gt(x, 0.0)), 0.0, 0.0),
        (lambda x: pt.or_(pt.ge(pt.sqr(x), 0.0), pt.gt(x, 0.0)), 1.0, 1.0),
    ],
)
def test_truth_values(truth, low, high):
    x = pt.vector("x")
    (known,) = known_functions([x], [truth(x)])
    assert (known.low, known.high) == (low, high)
