"""States and data drawn from a state-space model, given its parents."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pm_evidence.core.random import generator_functions
from pm_evidence.targets.estimated.state_space.compile import MOVE, START, compile_functions
from pm_evidence.targets.estimated.state_space.filter_loop import N_CALLS
from pm_evidence.targets.estimated.state_space.graphs import FilterGraphs, StateSpaceGraphs
from pm_evidence.targets.estimated.state_space.simulate import Simulator

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


def graphs_of(phi):
    h, t, y = pt.dscalar("h"), pt.lscalar("t"), pt.dscalar("y")
    step, noise = pm.Normal.dist(pt.exp(phi) * h, 0.5), pm.Normal.dist(h, 0.2)
    return StateSpaceGraphs(h, t, y, pm.Normal.dist(1.0, 0.1), step, noise)


def test_moments_of_paths():
    """Mean and variance of an autoregression, within four standard errors."""
    phi = pt.dscalar("phi")
    value = np.array(np.log(0.5))
    simulator = Simulator(graphs_of(phi), [phi], [value])
    states, drawn = simulator.draw([value], 3, seed=1, n_paths=4000)
    assert states.shape == drawn.shape == (3, 4000)
    variance = np.array([0.01, 0.2525, 0.313125])
    mean = np.array([1.0, 0.5, 0.25])
    assert np.abs((states.mean(axis=1) - mean) / np.sqrt(variance / 4000)).max() < 4
    np.testing.assert_allclose((drawn - states).std(axis=1), 0.2, rtol=0.05)
    again, _ = simulator.draw([value], 3, seed=1, n_paths=4000)
    np.testing.assert_array_equal(states, again)


def test_what_depends_on_parameters_only_is_computed_once():
    """The functions of a filter take it as an argument, and draw from our streams."""
    phi = pt.TensorType("float64", shape=())("phi")
    many = FilterGraphs(graphs_of(phi))
    functions = {START: many.start(0), MOVE: many.move(0)}
    code, precomputed = compile_functions(functions, many.inputs)
    assert code.calls.shape == (N_CALLS,) and (code.calls[[START, MOVE]] != 0).all()
    assert np.exp(0.3) in precomputed.eval({phi: 0.3})
    assert code.n_precomputed == len(precomputed.eval({phi: 0.3}))
    np.testing.assert_array_equal(code.frames[START, 1:4], generator_functions())
