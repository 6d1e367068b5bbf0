"""Where variables lie in a flat vector: splitting and joining are each other's inverse."""

import numpy as np
import pytensor.tensor as pt

from pm_evidence.targets.layout import Layout

LAYOUT = Layout.of([(2, 3), (), (0,), (4,)], list("abcd"), ["float64", "int64", "float64", "bool"])


def test_positions():
    assert LAYOUT.size == 11
    assert [v.start for v in LAYOUT.variables] == [0, 6, 7, 7]
    assert [v.positions for v in LAYOUT.variables] == [
        slice(0, 6),
        slice(6, 7),
        slice(7, 7),
        slice(7, 11),
    ]
    assert LAYOUT.shapes == [(2, 3), (), (0,), (4,)]


def test_split_and_join():
    x = np.arange(33.0).reshape(3, 11)
    parts = LAYOUT.split(x)
    assert [part.shape for part in parts] == [(3, 2, 3), (3,), (3, 0), (3, 4)]
    np.testing.assert_array_equal(parts[0][1], x[1, :6].reshape(2, 3))
    for row in x:
        np.testing.assert_array_equal(LAYOUT.join(LAYOUT.split(row)), row)


def test_graphs_of_the_parts_have_shape_and_type():
    x = pt.TensorType("float64", shape=(11,))("x")
    values = np.array([*range(6), 7, 0, 1, 1, 0], float)
    for graph, variable, part in zip(
        LAYOUT.split_graph(x), LAYOUT.variables, LAYOUT.split(values), strict=True
    ):
        assert graph.type.shape == variable.shape and graph.type.dtype == variable.dtype
        np.testing.assert_array_equal(graph.eval({x: values}, on_unused_input="ignore"), part)
