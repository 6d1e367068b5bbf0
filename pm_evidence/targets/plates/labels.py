"""Which elements of some variables every number in a graph depends on.

Every number of every operation's result gets a label: that of one element that it depends on, or
-1. Where numbers that depend on different elements meet, the elements are joined. Operations that
move numbers about are carried out on the labels themselves.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.basic import (
    Alloc,
    ExtractDiag,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from pm_evidence.targets.compile.numpy_ops import numpy_form

Labels = NDArray[np.int64]

# Operations whose first input is moved about as the others say.
MOVES = (
    DimShuffle,
    Reshape,
    Subtensor,
    AdvancedSubtensor,
    Alloc,
    SpecifyShape,
    ExtractDiag,
    DeepCopyOp,
    ViewOp,
    TensorFromScalar,
    ScalarFromTensor,
)


class Labelled:
    """The labels of graphs, and the pairs of elements that meet in them."""

    def __init__(self, values: Mapping[Variable, Any]) -> None:
        self._values: dict[Variable, Any] = dict(values)
        self._varying = set(values)

    def of(
        self, graphs: Sequence[Variable], labels: Mapping[Variable, Labels]
    ) -> tuple[list[Labels], Labels, dict[int, str]]:
        """Return the labels of graphs, given those of inputs."""
        known: dict[Variable, Labels | None] = dict(labels)
        pairs, where = list[Labels](), dict[int, str]()
        for node in io_toposort(list(labels), list(graphs)):
            inputs = [self._value(v) for v in node.inputs]
            if any(v not in self._values for v in node.outputs):
                with np.errstate(all="ignore"):
                    found = numpy_form(node.op, node)(*inputs)
                results = found if len(node.outputs) > 1 else [found]
                self._values.update(zip(node.outputs, results, strict=True))
                if not isinstance(node.op, Shape | Shape_i) and self._varying & set(node.inputs):
                    self._varying.update(node.outputs)
            given = [known.get(v) for v in node.inputs]
            if all(each is None for each in given) or isinstance(node.op, Shape | Shape_i):
                continue
            met = list[Labels]()
            outputs = [np.shape(self._values[v]) for v in node.outputs]
            fixed = [v not in self._varying for v in node.inputs]
            try:
                found = _propagated(node, inputs, given, fixed, outputs, met)
            except (IndexError, ValueError):  # in doubt, everything meets
                found = _merged(given, outputs, met)
            known.update(zip(node.outputs, found, strict=True))
            for each in met:
                for label in np.unique(each):
                    where.setdefault(int(label), str(node.op))
            pairs += met
        none = [np.full(np.shape(self._value(g)), -1) for g in graphs]
        every = [
            each if (label := known.get(graph)) is None else label
            for graph, each in zip(graphs, none, strict=True)
        ]
        return every, np.concatenate(pairs) if pairs else np.empty((0, 2), np.int64), where

    def _value(self, variable: Variable) -> Any:
        if isinstance(variable, Constant):
            return variable.data
        if variable not in self._values and hasattr(variable, "get_value"):
            self._values[variable] = variable.get_value(borrow=True)
        return self._values[variable]


def _propagated(
    node: Any,
    inputs: Sequence[Any],
    labels: Sequence[Labels | None],
    fixed: Sequence[bool],
    shapes: Sequence[tuple[int, ...]],
    met: list[Labels],
) -> list[Labels | None]:
    """Return the labels of a node's outputs, and add the pairs that meet to a list."""
    op = node.op
    if isinstance(op, Elemwise):
        given = [each for each in labels if each is not None]
        return [_together(given, shape, met) for shape in shapes]
    if isinstance(op, CAReduce):
        axes = tuple(range(np.ndim(inputs[0]))) if op.axis is None else tuple(op.axis)
        assert labels[0] is not None
        return [_reduced(labels[0], axes, met)]
    if isinstance(op, MOVES) and labels[0] is not None and all(fixed[1:]):
        return [_moved(node, [labels[0], *inputs[1:]])]
    is_chosen = isinstance(op, AdvancedSubtensor) and labels[0] is None
    if is_chosen and all(np.asarray(each).dtype.kind != "b" for each in inputs[1:]):
        aligned = _aligned(op, inputs[1:], labels[1:], len(shapes[0]))
        return [_together(aligned, shapes[0], met)]
    if isinstance(op, MakeVector | Join | Split):
        n = 1 if isinstance(op, Split) else len(inputs)
        full = [
            np.full(np.shape(value), -1) if each is None else each
            for value, each in zip(inputs[:n], labels[:n], strict=True)
        ]
        if isinstance(op, MakeVector):
            return [np.array(full)]
        if isinstance(op, Join):
            return [np.concatenate(full, axis=op.axis)]
        return list(np.split(full[0], np.cumsum(inputs[1])[:-1], axis=op.axis))
    is_set = isinstance(op, IncSubtensor | AdvancedIncSubtensor) and op.set_instead_of_inc
    if is_set and all(fixed[2:]):
        both = [
            np.full(np.shape(value), -1) if each is None else each
            for value, each in zip(inputs[:2], labels[:2], strict=True)
        ]
        return [_moved(node, [*both, *inputs[2:]])]
    core = op.core_op if isinstance(op, Blockwise) else op
    if isinstance(core, Dot) and any(each is None for each in labels):
        return [_product(inputs, labels, any(fixed), shapes[0], met)]
    if isinstance(op, Blockwise):
        return _by_block(op, labels, inputs, shapes, met)
    return _merged(labels, shapes, met)


def _aligned(
    op: AdvancedSubtensor, indices: Sequence[Any], labels: Sequence[Labels | None], n_axes: int
) -> list[Labels]:
    """Return the labels of indices along those axes of a result that belong to the indices.

    These come where the first of the indices is, or first if there are slices between them.
    """
    at = [k for k, part in enumerate(op.idx_list) if not isinstance(part, slice)]
    together = at == list(range(at[0], at[-1] + 1))
    n_chosen = np.broadcast(*(np.asarray(indices[op.idx_list[k]]) for k in at)).ndim
    n_after = n_axes - n_chosen - (at[0] if together else 0)
    return [each[(..., *[None] * n_after)] for each in labels if each is not None]


def _moved(node: Any, arguments: Sequence[Any]) -> Labels:
    found: list[list[Any]] = [[None]]
    node.op.perform(node, [np.array(arguments[0]), *arguments[1:]], found)
    return np.array(found[0][0], np.int64)


def _together(given: Sequence[Labels], shape: tuple[int, ...], met: list[Labels]) -> Labels:
    """Return the labels of numbers each of which depends on one number of every array."""
    result = np.full(shape, -1)
    for each in given:
        whole = np.broadcast_to(each, shape)
        differ = (result >= 0) & (whole >= 0) & (result != whole)
        if differ.any():
            met.append(np.unique(np.stack([result[differ], whole[differ]], axis=1), axis=0))
        result = np.where(result < 0, whole, result)
    return result


def _reduced(labels: Labels, axes: tuple[int, ...], met: list[Labels]) -> Labels:
    """Return the labels of numbers each of which depends on all numbers along some axes."""
    if not axes:
        return labels
    if 0 in (labels.shape[axis] for axis in axes):
        return np.full([n for k, n in enumerate(labels.shape) if k not in axes], -1)
    top = labels.max(axis=axes, keepdims=True)
    _together([labels, np.broadcast_to(top, labels.shape)], labels.shape, met)
    return np.asarray(top.squeeze(axis=axes))


def _product(
    inputs: Sequence[Any],
    labels: Sequence[Labels | None],
    is_fixed: bool,
    shape: tuple[int, ...],
    met: list[Labels],
) -> Labels:
    """Return the labels of a product with a matrix, of which zeros that are fixed do not count."""
    right = labels[0] is None
    matrix, variable = (inputs[0], labels[1]) if right else (inputs[1], labels[0])
    assert variable is not None
    matrix = matrix if right or np.ndim(matrix) < 2 else np.swapaxes(matrix, -1, -2)
    n_counting = np.count_nonzero(matrix) if is_fixed and np.ndim(matrix) == 2 else np.size(matrix)
    if variable.ndim > 2 or n_counting > 0.5 * np.size(matrix):
        axis = -2 if right and variable.ndim > 1 else -1
        top = _reduced(variable, (axis % variable.ndim,), met)
        return np.broadcast_to(top if top.ndim == len(shape) else np.expand_dims(top, axis), shape)
    columns = variable if variable.ndim == 1 or right else variable.T
    rows, used = np.nonzero(matrix)
    if not rows.size:
        return np.full(shape, -1)
    terms = columns[used]  # one row for each element of the matrix that counts
    starts = np.searchsorted(rows, np.arange(len(matrix)))
    top = np.full((len(matrix), *columns.shape[1:]), -1)
    filled = np.unique(rows)
    top[filled] = np.maximum.reduceat(terms, starts[filled], axis=0)
    _together([terms, top[rows]], terms.shape, met)
    return top if right or top.ndim == 1 else top.T


def _by_block(
    op: Any,
    labels: Sequence[Labels | None],
    inputs: Sequence[Any],
    shapes: Sequence[tuple[int, ...]],
    met: list[Labels],
) -> list[Labels | None]:
    """Return labels of a function of vectors or matrices, one of them for each element."""
    reduced = list[Labels]()
    for value, each, core in zip(inputs, labels, op.inputs_sig, strict=True):
        if each is not None:
            n = np.ndim(value) - len(core)
            reduced.append(_reduced(each, tuple(range(n, np.ndim(value))), met))
    batch = np.broadcast_shapes(*(each.shape for each in reduced))
    result = list[Labels | None]()
    for shape, core in zip(shapes, op.outputs_sig, strict=True):
        whole = np.broadcast_shapes(batch, shape[: len(shape) - len(core)])
        found = _together(reduced, whole, met)
        result.append(np.broadcast_to(found[(..., *[None] * len(core))], shape))
    return result


def _merged(
    labels: Sequence[Labels | None], shapes: Sequence[tuple[int, ...]], met: list[Labels]
) -> list[Labels | None]:
    """Return labels of results that depend on everything, as far as is known."""
    every = np.concatenate([each.ravel() for each in labels if each is not None])
    top = _reduced(every, (0,), met)
    return [np.broadcast_to(top, shape) for shape in shapes]
