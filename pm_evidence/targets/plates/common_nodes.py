"""Elements that differ by their data alone, at nodes that all of them have in common.

The log density of many elements is a sum of products of a constant and a function that is the same
for all of them: of a person in an item-response model, the answer (0 or 1) times the log
probability of it, which depends on item and node only. Such functions are computed once for all
elements, and a product with a matrix of constants gives the log density of each.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import AND, OR, Add, Cast, Identity, Mul, Neg, Sub, Switch
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor

from pm_evidence.targets.compile.numba_graph import shared_to_inputs
from pm_evidence.targets.compile.numpy_graph import NotBatchedError, numpy_function
from pm_evidence.targets.compile.rewrite import rewrite

Floats = NDArray[np.float64]
# A constant and a function, and what gives some of these.
_Part = tuple[Any, Variable]
_Some = Callable[[], list[_Part]]

_ONE, _ZERO, _NAN = (pt.constant(value, dtype="float64") for value in (1.0, 0.0, np.nan))


def with_common_value(
    graphs: Sequence[Variable], local: Variable
) -> tuple[Variable, list[Variable]]:
    """Return a variable with one value for all elements, and the graphs as functions of it."""
    single = pt.TensorType("float64", shape=(1,) * local.type.ndim)(local.name)
    found = clone_replace(list(graphs), {local: single}, rebuild_strict=False)
    return single, rewrite(found, _once)


def products(
    graph: Variable, free: Sequence[Variable], label: NDArray[np.int64], n: int
) -> list[tuple[Floats, Variable]]:
    """Return matrices and functions whose products add up to the log densities of ``n`` elements.

    ``label`` has the shape of the term, and says which element each of its numbers belongs to, -1
    for none. The matrices have shape ``(n, k)``, the functions ``k`` values. NotBatchedError is
    raised if the term is not such a sum.
    """
    own, factors = label >= 0, dict[Variable, Floats]()
    for factor, function in _Parts(free, label).of(graph):
        factors[function] = factors.get(function, 0.0) + np.broadcast_to(factor, label.shape)[own]
    found = list[tuple[Floats, Variable]]()
    for function, factor in factors.items():
        values, column = _columns(function, label.shape)
        matrix = np.zeros((n, *values.type.shape))
        np.add.at(matrix, (label[own], column[own]), factor)
        if matrix.any():
            found.append((matrix, values))
    return found


class _Parts:
    """Terms as sums of products of a constant and a function that all elements have in common."""

    def __init__(self, free: Sequence[Variable], label: NDArray[np.int64]) -> None:
        self.free, self.label = set(free), label
        axes = range(label.ndim)
        self.of_elements = [k for k in axes if (label != label.take([0], axis=k)).any()]

    def of(self, graph: Variable) -> list[_Part]:
        """Return constants and functions."""
        if not self.free.intersection(ancestors([graph])):
            return self._constant(graph)
        if self._is_common(graph):
            return [(1.0, graph)]
        node = graph.owner
        if node is None or not isinstance(node.op, Elemwise | Alloc | SpecifyShape):
            raise NotBatchedError("elements differ by more than constants")
        if not isinstance(node.op, Elemwise):
            if node.inputs[0].type.ndim < graph.type.ndim:
                raise NotBatchedError("elements differ by more than constants")
            return self.of(node.inputs[0])
        kind, inputs = node.op.scalar_op, node.inputs
        if isinstance(kind, Identity | Cast):
            return self.of(inputs[0])
        if isinstance(kind, Neg):
            return [(-c, f) for c, f in self.of(inputs[0])]
        if isinstance(kind, Add):
            return [part for v in inputs for part in self.of(v)]
        if isinstance(kind, Sub):
            return self.of(inputs[0]) + [(-c, f) for c, f in self.of(inputs[1])]
        if isinstance(kind, Mul):
            return self._product(inputs)
        if isinstance(kind, Switch):
            condition, yes, no = inputs
            return self._switch(condition, partial(self.of, yes), partial(self.of, no))
        raise NotBatchedError("elements differ by more than constants")

    def _product(self, inputs: Sequence[Variable]) -> list[_Part]:
        result: list[_Part] = [(1.0, _ONE)]
        for v in inputs:
            result = [(a * b, _times(f, g)) for a, f in result for b, g in self.of(v)]
        return result

    def _switch(self, condition: Any, yes: _Some, no: _Some) -> list[_Part]:
        if not self.free.intersection(ancestors([condition])):
            chosen = _evaluated(condition).astype(bool)
            if chosen.all() or not chosen.any():
                return yes() if chosen.all() else no()
            return [(chosen * c, f) for c, f in yes()] + [(~chosen * c, f) for c, f in no()]
        if self._is_common(condition):
            return [(c, _where(condition, f, _ZERO)) for c, f in yes()] + [
                (c, _where(condition, _ZERO, f)) for c, f in no()
            ]
        node = condition.owner
        kind = node.op.scalar_op if node is not None and isinstance(node.op, Elemwise) else None
        if isinstance(kind, Identity | Cast):
            return self._switch(node.inputs[0], yes, no)
        if isinstance(kind, AND | OR | Mul) and len(node.inputs) == 2:
            first, second = node.inputs
            inner = partial(self._switch, second, yes, no)
            if isinstance(kind, OR):
                return self._switch(first, yes, inner)
            return self._switch(first, inner, no)
        raise NotBatchedError("elements differ by more than constants")

    def _constant(self, graph: Variable) -> list[_Part]:
        value = np.asarray(_evaluated(graph), float)
        # where such a number counts, the elements are evaluated one by one
        return [(value, _ONE)] if np.isfinite(value).all() else [(1.0, _NAN)]

    def _is_common(self, graph: Variable) -> bool:
        shape = (1,) * (self.label.ndim - graph.type.ndim) + graph.type.shape
        return is_taken(graph) or all(shape[k] == 1 for k in self.of_elements)


def _times(first: Variable, second: Variable) -> Variable:
    if first is _ONE or second is _ONE:
        return second if first is _ONE else first
    return _joined(pt.mul, first, second)


def _where(condition: Variable, yes: Variable, no: Variable) -> Variable:
    return _joined(pt.switch, condition, yes, no)


def _joined(function: Any, *inputs: Variable) -> Variable:
    """Return a function of others, from which elements are taken afterwards."""
    graph: Variable = function(*inputs)
    found = _once(graph.owner, list(graph.owner.inputs))
    result: Variable = found[0] if found else graph
    return result


def _columns(function: Variable, shape: tuple[int, ...]) -> tuple[Any, NDArray[np.int64]]:
    """Return the values of a function as a vector, and which of them each number has."""
    if is_taken(function):
        source, index = function.owner.inputs
        return source, np.broadcast_to(np.asarray(index.data), shape)
    if None in function.type.shape:
        raise NotBatchedError("the shape of a term is not known")
    size = int(np.prod(function.type.shape, dtype=int))
    column = np.arange(size).reshape(function.type.shape)
    return pt.as_tensor(function).reshape((size,)), np.broadcast_to(column, shape)


def _evaluated(graph: Variable) -> NDArray[Any]:
    """Return the value of a graph of constants and data."""
    if isinstance(graph, Constant):
        return np.asarray(graph.data)
    outputs, data, values = shared_to_inputs([graph])
    return np.asarray(numpy_function(data, outputs)(*values)[0])


def _once(node: Any, inputs: list[Variable]) -> list[Variable] | None:
    """Take elements after an operation instead of before it, where that is less work."""
    if isinstance(node.op, AdvancedSubtensor):
        if inputs[0].type.shape == (1,) and len(inputs) == 2:
            return [pt.expand_dims(inputs[0], list(range(node.outputs[0].type.ndim - 1)))]
        return None
    if not isinstance(node.op, Elemwise) or node.outputs[0].type.ndim != 1:
        return None
    taken = [v.owner for v in inputs if is_taken(v)]
    others = [v for v in inputs if not is_taken(v)]
    if not taken or any(v.type.shape != (1,) for v in others):
        return None
    index, lengths = taken[0].inputs[1], {each.inputs[0].type.shape for each in taken}
    if len(lengths) > 1 or any(not index.equals(each.inputs[1]) for each in taken):
        return None
    before = [v.owner.inputs[0] if is_taken(v) else v for v in inputs]
    return [node.op(*before)[index]]


def is_taken(variable: Variable) -> bool:
    """Return whether a vector consists of elements of another, at constant positions."""
    owner = variable.owner
    return (
        owner is not None
        and isinstance(owner.op, AdvancedSubtensor)
        and len(owner.inputs) == 2
        and owner.inputs[0].type.ndim == owner.inputs[1].type.ndim == 1
        and owner.inputs[0].type.shape[0] is not None
        and isinstance(owner.inputs[1], Constant)
    )
