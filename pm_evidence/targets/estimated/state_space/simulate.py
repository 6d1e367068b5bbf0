"""Data drawn from a state-space model, for prior and posterior predictive sampling."""

from copy import deepcopy
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.random.op import RNGConsumerOp

from pm_evidence.core.codegen.native import call_frame
from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.random import seed_stream
from pm_evidence.targets.compile.implementations import implement_in_python
from pm_evidence.targets.estimated.state_space.compile import (
    MOVE,
    START,
    FilterCode,
    compile_functions,
)
from pm_evidence.targets.estimated.state_space.filter_loop import H_OUT, PARAMETERS, WEIGHT, H, N, T
from pm_evidence.targets.estimated.state_space.graphs import FilterGraphs, StateSpaceGraphs

__all__ = ["SimulateOp", "Simulator"]

Floats = NDArray[np.float64]


class Simulator:
    """Draws states and observations, given the parents of a state-space model.

    Parameters
    ----------
    graphs : StateSpaceGraphs
        Graphs of one particle.
    parents : sequence of Variable
        Variables that the graphs are functions of.
    values : sequence of ndarray
        Values of the parents, of which only the shapes matter.
    """

    def __init__(self, graphs: StateSpaceGraphs, parents: Any, values: Any) -> None:
        shaped = [
            pt.TensorType(parent.dtype, shape=np.shape(value))(parent.name)
            for parent, value in zip(parents, values, strict=True)
        ]
        graphs = graphs.given(dict(zip(parents, shaped, strict=True)))
        many = FilterGraphs(graphs)
        functions = {START: many.emit(graphs.init), MOVE: many.emit(graphs.transition)}
        self._code, precomputed = compile_functions(functions, many.inputs)
        self._precompute = pm.compile(
            shaped, precomputed, mode="FAST_COMPILE", on_unused_input="ignore"
        )
        self._shapes = graphs.h.type.shape, graphs.emission.type.shape

    def draw(self, values: Any, n_times: int, seed: int, n_paths: int = 1) -> tuple[Floats, Floats]:
        """Return paths of the state and the data observed along them.

        Parameters
        ----------
        values : sequence of ndarray
            Values of the parents.
        n_times : int
            Length of the paths.
        seed : int
            Seed of the random numbers, 64 bits.
        n_paths : int
            Number of independent paths.

        Returns
        -------
        states : ndarray, shape (n_times, n_paths, ...)
        observations : ndarray, shape (n_times, n_paths, ...)
        """
        state, row = self._shapes
        states = np.empty((n_times, n_paths, *state))
        drawn = np.empty((n_times, n_paths, *row))
        flat = np.ascontiguousarray(self._precompute(*values), np.float64)
        code: FilterCode = self._code
        status = _simulate(code.calls, code.frames, flat, np.uint64(seed), states, drawn)
        if status != 0:
            raise ValueError(
                "the model cannot be simulated at these parameters: look for parameters out of "
                "range, such as a negative standard deviation."
            )
        return states, drawn


def _simulate(calls: Any, frames: Any, precomputed: Any, seed: Any, states: Any, drawn: Any) -> int:
    n_times, n = states.shape[:2]
    result: int = _simulate_flat(
        calls,
        frames,
        precomputed,
        seed,
        states.reshape(n_times, n, -1),
        drawn.reshape(n_times, n, -1),
    )
    return result


@njit
def _simulate_flat(
    calls: Any, frames: Any, precomputed: Any, seed: Any, states: Any, drawn: Any
) -> Any:
    frames = frames.copy()
    stream = np.empty(4, np.uint64)
    frames[:, 0] = stream.ctypes.data
    frames[:, N] = states.shape[1]
    frames[:, PARAMETERS] = precomputed.ctypes.data
    for t in range(states.shape[0]):
        function = START if t == 0 else MOVE
        seed_stream(stream, seed, t)
        frames[function, T] = t
        frames[function, H] = states[max(t - 1, 0)].ctypes.data
        frames[function, H_OUT] = states[t].ctypes.data
        frames[function, WEIGHT] = drawn[t].ctypes.data
        if call_frame(calls[function], frames[function]) != 0:
            return 1
    return 0


class SimulateOp(RNGConsumerOp):
    """Draws of a whole data set, as an operation in a graph.

    Parameters
    ----------
    spec : StateSpaceSpec
        The model, with ``parents``, ``graphs`` and ``n_times``.
    """

    __props__ = ("spec",)

    def __init__(self, spec: Any) -> None:
        self.spec = spec
        self._simulators: dict[Any, Simulator] = {}
        implement_in_python(SimulateOp)

    def __reduce__(self) -> tuple[Any, ...]:
        return SimulateOp, (self.spec,)

    def make_node(self, rng: Variable, *parents: Variable) -> Apply:
        """Return the node that draws with ``rng``."""
        emission = self.spec.graphs.emission
        n_times = self.spec.length if self.spec.shared is None else None
        drawn = pt.TensorType(emission.dtype, shape=(n_times, *emission.type.shape))
        return Apply(self, [rng, *parents], [rng.type(), drawn()])

    def update(self, node: Apply) -> dict[Variable, Variable]:
        """Return the generator that replaces the one before the draws."""
        return {node.inputs[0]: node.outputs[0]}

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Draw."""
        rng, *values = inputs
        rng = deepcopy(rng)
        shapes = tuple(np.shape(value) for value in values)
        if shapes not in self._simulators:
            self._simulators[shapes] = Simulator(self.spec.graphs, self.spec.parents, values)
        seed = int(rng.integers(2**64, dtype=np.uint64))
        _, drawn = self._simulators[shapes].draw(values, self.spec.n_times, seed)
        outputs[0][0] = rng
        outputs[1][0] = drawn[:, 0].astype(node.outputs[1].dtype)
