"""PyTensor graphs of one point as functions of many that NumPy evaluates; nothing is compiled."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.conditional.op import IfElse
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.loop import ScalarLoop
from pytensor.scan.op import Scan
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce

from pm_evidence.targets.compile.numpy_ops import Form, numpy_form
from pm_evidence.targets.compile.rewrite import rewrite, without_check, without_traces

# Operations that are done one step after the other.
_IN_STEPS = (Scan, IfElse)
# Rewritings for compiled code: merged elementwise operations, results in the place of inputs, calls
# of BLAS that write into their arguments.
_FOR_COMPILED_CODE = ("fusion", "inplace", "BlasOpt")
# PyTensor copies the graph of a shape for each constant that it spreads over this shape, which took
# four fifths of the time of a model of a hundred terms. NumPy broadcasts instead.
_COPYING = ("local_second_to_alloc", "local_careduce_of_alloc")


class NotBatchedError(Exception):
    """A graph has an operation that is not evaluated for many points at once."""


class LoopError(NotBatchedError):
    """A graph has a loop that depends on the points."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation: its function, the places of inputs and outputs, and those not used again."""

    function: Form
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    free: tuple[int, ...]
    node: Any  # that of the graph

    @property
    def in_loop(self) -> bool:
        """Whether it is a loop of scalars, such as a series of a derivative of ``betainc``."""
        return isinstance(getattr(self.node.op, "scalar_op", None), ScalarLoop)

    def freeing(self, places: tuple[int, ...]) -> "Operation":
        """Return the operation with other values that are not used again."""
        return replace(self, free=places)

    def write(self, values: list[Any]) -> None:
        """Carry it out on the values at the places of its inputs."""
        found = self.function(*[values[k] for k in self.inputs])
        if len(self.outputs) > 1:
            for place, value in zip(self.outputs, found, strict=True):
                values[place] = value
        else:
            values[self.outputs[0]] = found
        for place in self.free:
            values[place] = None


@dataclass(frozen=True, slots=True)
class Program:
    """The operations of a graph, one after the other, on a list of values."""

    values: list[Any]  # the values of constants at their places; inputs come first
    steps: list[Operation]  # the operations
    results: list[int]  # places of the outputs
    # The operations that the first of the outputs need, by their number
    shorter: dict[int, list[Operation]] = field(default_factory=dict)

    def __call__(self, *inputs: Any, n_results: int | None = None) -> list[Any]:
        """Return the outputs, or the first of them."""
        values = self._after(inputs, self.steps_for(n_results))
        return [values[place] for place in self.results[:n_results]]

    def sizes(self, *inputs: Any) -> list[int]:
        """Return the numbers of elements of the results of all operations."""
        sizes: list[int] = []
        self._after(inputs, self.steps, sizes)
        return sizes

    @property
    def in_loops(self) -> list[bool]:
        """Which of the results are those of loops of scalars, in the order of ``sizes``."""
        return [step.in_loop for step in self.steps for _ in step.outputs]

    def _after(
        self, inputs: Sequence[Any], steps: Sequence[Operation], sizes: list[int] | None = None
    ) -> list[Any]:
        """Return the values after some steps, and add the sizes of their results to a list."""
        values = [*inputs, *self.values[len(inputs) :]]
        with np.errstate(all="ignore"):
            for step in steps:
                step.write(values)
                if sizes is not None:
                    sizes.extend(np.size(values[place]) for place in step.outputs)
        return values

    def steps_for(self, n_results: int | None) -> list[Operation]:
        """Return the steps that the first outputs need, or all outputs."""
        if n_results is None:
            return self.steps
        if n_results not in self.shorter:
            needed, kept = set(self.results[:n_results]), list[Operation]()
            for step in reversed(self.steps):
                if needed.intersection(step.outputs):
                    needed.update(step.inputs)
                    kept.append(step)
            self.shorter[n_results] = kept[::-1]
        return self.shorter[n_results]


@without_traces()
def batched(
    parts: Sequence[Variable], outputs: Sequence[Variable]
) -> tuple[list[Variable], list[Variable]]:
    """Return variables of many points, and graphs of these."""
    graphs = inlined(rewrite(outputs, _without_check))
    _check_loops(parts, graphs)
    many = [pt.TensorType(part.type.dtype, shape=(None, *part.type.shape))() for part in parts]
    try:
        return many, list(vectorize_graph(graphs, dict(zip(parts, many, strict=True))))
    except (NotImplementedError, ValueError, TypeError) as error:
        raise NotBatchedError(str(error)) from error


def _check_loops(parts: Sequence[Variable], graphs: Sequence[Variable]) -> None:
    """Raise LoopError for a loop that depends on ``parts``, before seconds of rewriting."""
    dependent = set(parts)
    for node in io_toposort(parts, graphs):
        if not dependent.isdisjoint(node.inputs):
            if isinstance(node.op, Scan):
                raise LoopError("Scan is done step by step")
            dependent.update(node.outputs)


def numpy_function(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Program:
    """Return a function of arrays that evaluates graphs."""
    fgraph = FunctionGraph(list(inputs), list(outputs), clone=True)
    # where nodes were made is copied from node to node, and grows without end in long graphs
    for variable in fgraph.variables:
        variable.tag.trace = []
    with without_traces():
        _mode().optimizer.rewrite(fgraph)
    _evaluate_with_gradient(fgraph)
    for node in fgraph.apply_nodes:
        op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
        if isinstance(op, _IN_STEPS):
            raise NotBatchedError(f"{type(op).__name__} is done step by step")
    return _program(fgraph)


def _evaluate_with_gradient(fgraph: Any) -> None:
    """Take the values of operations from those that give the gradient with the value."""
    with_gradient = {
        tuple(node.inputs): node for node in fgraph.apply_nodes if gives_gradient(node) is True
    }
    for node in list(fgraph.apply_nodes):
        other = with_gradient.get(tuple(node.inputs))
        if other is not None and gives_gradient(node) is False:
            fgraph.replace(node.outputs[0], other.outputs[0])


def gives_gradient(node: Any) -> bool | None:
    """Return whether a sum over rows on workers gives its gradient too; None of other nodes."""
    return getattr(getattr(node.op, "core_op", node.op), "sum_with_gradient", None)


def _program(fgraph: Any) -> Program:
    """Return the operations of a graph as functions."""
    order = fgraph.toposort()
    places = {variable: k for k, variable in enumerate(fgraph.inputs)}
    values: list[Any] = [None] * len(places)

    def place_of(variable: Variable) -> int:
        if variable not in places:
            places[variable] = len(values)
            values.append(variable.data if isinstance(variable, Constant) else None)
        return places[variable]

    last_use: dict[Variable, Any] = {v: node for node in order for v in node.inputs}
    kept, steps = set(fgraph.outputs), []
    for node in order:
        unused = (v for v in node.inputs if last_use[v] is node and v not in kept)
        free = {place_of(v) for v in unused if not isinstance(v, Constant)}
        at = tuple(map(place_of, node.inputs)), tuple(map(place_of, node.outputs))
        steps.append(Operation(numpy_form(node.op, node), *at, tuple(sorted(free)), node))
    return Program(values, steps, [place_of(v) for v in fgraph.outputs])


def inlined(graphs: list[Variable]) -> list[Variable]:
    """Return graphs in which operations made of others are written out."""

    def written_out(node: Any, inputs: list[Variable]) -> Sequence[Variable] | None:
        if not isinstance(node.op, OpFromGraph):
            return None
        inner = node.op.fgraph
        written: Sequence[Variable] = inner.bind(dict(zip(inner.inputs, inputs, strict=True)))
        return written

    while any(isinstance(node.op, OpFromGraph) for node in io_toposort([], graphs)):
        graphs = rewrite(graphs, written_out)
    return graphs


@numpy_form.register
def _made_of_others(op: OpFromGraph, node: Any) -> Form:
    """Return the form of an operation that PyTensor's rewriting has put in."""
    program = _program(op.fgraph)
    return program if len(node.outputs) > 1 else lambda *inputs: program(*inputs)[0]


@cache
def _mode() -> Mode:
    return Mode(linker="py", optimizer="fast_run").excluding(*_FOR_COMPILED_CODE, *_COPYING)


def _without_check(node: Any, inputs: list[Variable]) -> list[Variable] | None:
    if isinstance(node.op, CAReduce) and inputs[0].type.ndim == 0:  # in the density of pm.CAR
        return [pt.cast(inputs[0], node.outputs[0].type.dtype)]
    return without_check(node, inputs)
