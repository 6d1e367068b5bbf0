"""Graphs of one particle, and which rows of the data are missing."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pm_evidence.targets.estimated.state_space.graphs import (
    COMPLETE,
    MISSING,
    PARTIAL,
    FilterGraphs,
    StateSpaceGraphs,
    row_kinds,
)


def test_kinds_of_rows():
    assert row_kinds(np.array([1.0, np.nan])).tolist() == [COMPLETE, MISSING]
    rows = np.array([[1.0, 2.0], [np.nan, 2.0], [np.nan, np.nan]])
    assert row_kinds(rows).tolist() == [COMPLETE, PARTIAL, MISSING]


def local_level(scale):
    h, t, y = pt.dscalar("h"), pt.lscalar("t"), pt.dscalar("y")
    return StateSpaceGraphs(
        h, t, y, pm.Normal.dist(0, 1), pm.Normal.dist(h, scale), pm.Normal.dist(h, 0.5)
    )


def test_graphs_given_values_are_functions_of_these():
    scale, other = pt.dscalar("scale"), pt.dscalar("other")
    graphs = local_level(scale).given({scale: other})
    assert set(graphs.named()) == {"init", "transition", "emission"}
    assert graphs.transition.owner.op.dist_params(graphs.transition.owner)[1] is other


def test_weights_of_many_particles():
    """Log densities of the observation, one for every particle; zero where it is missing."""
    many = FilterGraphs(local_level(pt.constant(1.0)))
    states = np.array([-1.0, 0.0, 2.0])
    weights = many.look_ahead()[0].eval({many.h: states, many.y: 0.7})
    expected = pm.logp(pm.Normal.dist(states, 0.5), 0.7).eval()
    np.testing.assert_allclose(weights, expected)
    assert not many.move(MISSING)[1].eval({many.n: 3}).any()
