"""Compilation of the graphs of a state-space model to the functions that its filter calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from pytensor.graph.basic import Variable

from pm_evidence.core.exceptions import ModelError
from pm_evidence.core.random import generator_functions
from pm_evidence.targets.compile.batched import inline_symbolic
from pm_evidence.targets.compile.calls import CompiledCall, compile_call
from pm_evidence.targets.compile.draws import on_one_generator
from pm_evidence.targets.compile.normal_draws import with_fast_normals
from pm_evidence.targets.compile.parameters_only import split_parameters_only
from pm_evidence.targets.compile.precision import in_double_precision
from pm_evidence.targets.estimated.state_space.filter_loop import (
    LOOK_AHEAD,
    MOVE,
    N_CALLS,
    SETUP,
    START,
)
from pm_evidence.targets.estimated.state_space.graphs import (
    COMPLETE,
    FilterGraphs,
    StateSpaceGraphs,
)

__all__ = ["MOVE", "START", "FilterCode", "compile_filter", "compile_functions"]


@dataclass(frozen=True, eq=False)
class FilterCode:
    """The compiled functions of a state-space model.

    Parameters
    ----------
    calls : ndarray of int64, shape (n_calls,)
        Addresses of the functions, 0 for those that are not needed.
    frames : ndarray of int64, shape (n_calls, n_slots)
        Their frames.
    n_precomputed : int
        Length of the vector of values that do not vary within a filter.
    slow_ops : tuple of str
        Operations without a numba implementation: correct, but slow and under Python's lock.
    """

    calls: NDArray[np.int64]
    frames: NDArray[np.int64]
    n_precomputed: int
    slow_ops: tuple[str, ...]
    _keep_alive: tuple[CompiledCall, ...]

    def with_call(self, number: int, call: CompiledCall) -> "FilterCode":
        """Return the code with a further function."""
        frame = call.frame()
        calls = self.calls.copy()
        calls[number] = call.address
        width = max(self.frames.shape[1], frame.size)
        frames = np.pad(self.frames, ((0, 0), (0, width - self.frames.shape[1])))
        frames[number, : frame.size] = frame
        frames[START:, 1:4] = generator_functions()
        slow_ops = tuple(sorted({*self.slow_ops, *call.slow_ops}))
        kept = (*self._keep_alive, call)
        return replace(self, calls=calls, frames=frames, slow_ops=slow_ops, _keep_alive=kept)


def compile_functions(
    functions: Mapping[int, Sequence[Variable]], inputs: Sequence[Variable]
) -> tuple[FilterCode, Variable]:
    """Compile functions of the same inputs, without the parts that do not depend on these.

    Returns
    -------
    code : FilterCode
        The functions.
    precomputed : TensorVariable, shape (n_precomputed,)
        Graph of the values of these parts.
    """
    compiled = _compile_functions(functions, inputs, True)
    # operations that run in Python need a NumPy generator, which the fast draws do not support
    return compiled if not compiled[0].slow_ops else _compile_functions(functions, inputs, False)


def _compile_functions(
    functions: Mapping[int, Sequence[Variable]], inputs: Sequence[Variable], fast: bool
) -> tuple[FilterCode, Variable]:
    graphs = inline_symbolic([graph for outputs in functions.values() for graph in outputs])
    graphs = in_double_precision(with_fast_normals(graphs) if fast else graphs)
    graphs, parameters, precomputed = split_parameters_only(graphs, inputs)
    empty = np.zeros((N_CALLS, 0), np.int64)
    code = FilterCode(np.zeros(N_CALLS, np.int64), empty, parameters.type.shape[0], (), ())
    for number, outputs in functions.items():
        own, graphs = graphs[: len(outputs)], graphs[len(outputs) :]
        threaded = on_one_generator(own)
        if threaded is None:
            raise ModelError(
                "distributions of a state-space model must draw with one random generator each, "
                "got an operation that holds several; write it with PyMC's own distributions."
            )
        own, generator, last = threaded
        drawn = (generator, last) if last is not generator else ()
        code = code.with_call(number, compile_call([*inputs, parameters], own, *drawn))
    return code, precomputed


def compile_filter(
    graphs: StateSpaceGraphs, kinds: NDArray[np.int64], x: Variable, *, look_ahead: bool
) -> FilterCode:
    """Compile the functions that a filter needs.

    Parameters
    ----------
    graphs : StateSpaceGraphs
        Graphs of one particle, functions of ``x``.
    kinds : ndarray of int64, shape (n_times,)
        Which rows of the data are complete.
    x : TensorVariable, shape (n_dim,)
        Flat vector of the free variables' unconstrained values.
    look_ahead : bool
        Whether the filter looks ahead.
    """
    many = FilterGraphs(graphs)
    first = int(kinds[0])
    functions = {START + first: many.start(first)}
    for kind in map(int, np.unique(kinds[1:])):
        functions[MOVE + kind] = many.move(kind)
    if look_ahead and COMPLETE in kinds[1:]:
        functions[LOOK_AHEAD] = many.look_ahead()
    code, precomputed = compile_functions(functions, many.inputs)
    return code.with_call(SETUP, compile_call([x], [precomputed]))
