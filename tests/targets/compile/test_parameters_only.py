"""What depends on parameters only is computed once."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable

from pm_evidence.targets.compile.parameters_only import (
    depends_on,
    evaluated_shapes,
    split_parameters_only,
)


def test_what_does_not_vary_is_taken_out():
    """Parameters only: once; the rest is the same function as before."""
    x, h = pt.dvector("x"), pt.dvector("h")
    x = pt.TensorType("float64", shape=(2,))("x")
    graph = (pt.exp(x[0]) * h + pt.log1p(x[1] ** 2)).sum()
    (cut,), parameters, precomputed = split_parameters_only([graph], [h])
    assert x not in set(ancestors([cut]))
    assert h not in set(ancestors([precomputed]))
    point, states = np.array([0.3, 0.7]), np.array([1.0, 2.0])
    values = precomputed.eval({x: point})
    np.testing.assert_allclose(
        cut.eval({parameters: values, h: states}), graph.eval({x: point, h: states})
    )


def test_parts_keep_shape_and_type():
    """What is taken out goes through one flat vector of float64, integers and matrices too."""
    x, h = pt.TensorType("float64", shape=(4,))("x"), pt.dvector("h")
    k, matrix = pt.cast(pt.floor(pt.exp(x[0])), "int64"), pt.tanh(x).reshape((2, 2))
    graph = (pt.zeros(5)[k] + (h @ matrix)).sum()
    (cut,), parameters, precomputed = split_parameters_only([graph], [h])
    assert not depends_on(cut, x) and parameters.type.shape == (5,)
    point, state = np.array([0.9, -0.3, 0.4, 2.0]), np.array([1.0, -2.0])
    found = cut.eval({parameters: precomputed.eval({x: point}), h: state})
    np.testing.assert_allclose(found, (state @ np.tanh(point).reshape(2, 2)).sum(), rtol=1e-14)


def test_draws_are_not_taken_out():
    """A draw that was made once would be the same for every particle."""
    h = pt.dvector("h")
    drawn = pm.Normal.dist()
    (cut,), _, _ = split_parameters_only([h + drawn], [h])
    ops = [v.owner.op for v in ancestors([cut]) if v.owner is not None]
    assert any(isinstance(op, RandomVariable) for op in ops)


def test_shapes_of_graphs():
    assert evaluated_shapes([pt.zeros((2, 3)), pt.constant(1.0)]) == [(2, 3), ()]
