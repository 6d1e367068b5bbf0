"""Rewriting replaces what it is told to, everywhere, and leaves the given graphs alone."""

import numpy as np
import pytensor.tensor as pt
from pytensor.scalar.basic import Exp

from pm_evidence.targets.compile.rewrite import rewrite


def is_exponential(node):
    return isinstance(getattr(node.op, "scalar_op", None), Exp)


def test_nested_nodes_are_replaced_and_the_rest_follows():
    """The outer exponential is given the inner one's replacement as its input."""
    x = pt.dscalar("x")
    inner = pt.exp(x)
    outer = pt.exp(2.0 * inner)

    def doubled(node, inputs):
        return [2.0 * inputs[0]] if is_exponential(node) else None

    new_inner, new_outer = rewrite([inner, outer], doubled)
    assert float(new_inner.eval({x: 3.0})) == 6.0
    assert float(new_outer.eval({x: 3.0})) == 24.0
    np.testing.assert_allclose(outer.eval({x: 0.5}), np.exp(2 * np.exp(0.5)))


def test_graphs_without_a_match_are_the_same_objects():
    """Copies would lose what others know of these variables."""
    x = pt.dscalar("x")
    graph = x + 1.0
    found = rewrite([x, graph], lambda node, inputs: None)
    assert found[0] is x and found[1] is graph


def test_inputs_may_be_changed_in_place():
    x, y = pt.dscalar("x"), pt.dscalar("y")

    def use_y(node, inputs):
        inputs[:] = [y if v is x else v for v in inputs]

    (graph,) = rewrite([pt.exp(x) + x], use_y)
    np.testing.assert_allclose(graph.eval({y: 2.0}), np.exp(2.0) + 2.0)
