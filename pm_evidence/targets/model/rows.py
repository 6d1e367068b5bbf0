"""Graphs of some rows of an array, computed without the other rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, Join
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import All, Dot
from pytensor.tensor.shape import Shape
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax, log_softmax, softmax
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

__all__ = ["Rows"]


class Rows:
    """Restricts graphs to a range of their rows, in a given order.

    Sliced arrays are not computed as a whole where the rows of a result depend on the same rows of
    the data: through elementwise functions, products with a matrix and lookups by an index. Other
    parts of a graph are computed for all rows, and then sliced, which is as correct.

    Parameters
    ----------
    order : ndarray of int64, shape (n_rows,)
        Rows in the order in which the range counts them.
    start, stop : scalar TensorVariable
        The range.
    free : sequence of Variable
        What graphs depend on other than data.

    Attributes
    ----------
    n_whole : int
        Number of arrays that are computed for all rows.
    """

    def __init__(
        self, order: NDArray[np.int64], start: Variable, stop: Variable, free: Sequence[Variable]
    ) -> None:
        self.order, self.start, self.stop, self.free = order, start, stop, set(free)
        self.n_whole = 0
        self._done: dict[tuple[Variable, int], Variable] = {}

    def of(self, array: Variable, axis: int = 0) -> Variable:
        """Return the rows of an array in the range, along an axis with ``n_rows`` entries."""
        key = array, axis
        if key not in self._done:
            self._done[key] = self._of(array, axis)
        return self._done[key]

    def _of(self, array: Any, axis: int) -> Variable:
        if not self._depends(array):
            return self._of_data(_value(array), axis)
        node = array.owner
        kinds = () if node is None else type(node.op).__mro__
        rule = next((_RULES[kind] for kind in kinds if kind in _RULES), None)
        found = None if rule is None else rule(self, node, axis)
        if found is None:
            self.n_whole += 1
            found = pt.moveaxis(pt.moveaxis(array, axis, 0)[self._index()], 0, axis)
        return found

    def _depends(self, array: Variable) -> bool:
        return any(found in self.free for found in ancestors([_with_known_shapes(array)]))

    def _of_data(self, value: NDArray[Any], axis: int) -> Variable:
        """Return rows of data, which are stored in the order of the range."""
        stored = np.ascontiguousarray(np.take(value, self.order, axis))
        # dimensions of length 1 must be known as such, or they would not be broadcast
        return self._sliced(pytensor.shared(stored, shape=stored.shape), axis)

    def _sliced(self, array: Any, axis: int) -> Variable:
        return array[(slice(None),) * axis + (slice(self.start, self.stop),)]

    def _index(self) -> Variable:
        return self._sliced(pytensor.shared(self.order), 0)

    # how rows of a result follow from rows of the inputs -----------------------------------

    def _elementwise(self, node: Any, axis: int) -> Variable:
        inputs = [
            each if each.type.broadcastable[axis] else self.of(each, axis) for each in node.inputs
        ]
        return node.op(*inputs)

    def _checked(self, node: Any, axis: int) -> Variable:
        array, *conditions = node.inputs
        return node.op(self.of(array, axis), *map(self._condition, conditions))

    def _condition(self, condition: Any) -> Variable:
        """Return a condition on all rows as one on those in the range, if it is of that kind."""
        node, n = condition.owner, len(self.order)
        if node is None or not isinstance(node.op, All) or condition.ndim:
            return condition
        (array,) = node.inputs
        if array.ndim == 0 or array.type.shape[0] != n or not self._depends(array):
            return condition
        return pt.all(self.of(array, 0))

    def _shuffled(self, node: Any, axis: int) -> Variable | None:
        (array,), source = node.inputs, node.op.new_order[axis]
        return None if source == "x" else node.op(self.of(array, source))

    def _product(self, node: Any, axis: int) -> Variable | None:
        left, right = node.inputs
        if left.ndim > 2 or right.ndim > 2:
            return None
        if axis == 0 and left.ndim == 2:
            return pt.dot(self.of(left, 0), right)
        return pt.dot(left, self.of(right, right.ndim - 1)) if right.ndim == 2 else None

    def _blockwise(self, node: Any, axis: int) -> Variable | None:
        if isinstance(node.op.core_op, Dot) and all(each.ndim == 2 for each in node.inputs):
            return self._product(node, axis)
        return self._elementwise(node, axis) if axis < node.op.batch_ndim(node) else None

    def _joined(self, node: Any, axis: int) -> Variable | None:
        if node.op.axis == axis:
            return None
        return node.op(*(self.of(each, axis) for each in node.inputs))

    def _sliced_elsewhere(self, node: Any, axis: int) -> Variable | None:
        array, *bounds = node.inputs
        given = dict(enumerate(node.op.idx_list))
        kept = [i for i in range(array.ndim) if isinstance(given.get(i, slice(None)), slice)]
        source = kept[axis]
        if given.get(source, slice(None)) != slice(None):
            return None
        return node.op(self.of(array, source), *bounds)

    def _looked_up(self, node: Any, axis: int) -> Variable | None:
        array, *index = node.inputs
        if axis or any(isinstance(each, slice) for each in node.op.idx_list):
            return None
        if any(self._depends(each) for each in index):
            return None
        values = [_value(each) for each in index]
        n, n_dim = len(self.order), max(each.ndim for each in index)
        if any(value.dtype.kind not in "iu" for value in values):
            return None
        by_row = [value.ndim == n_dim and value.shape[0] == n for value in values]
        if not any(by_row):
            return None
        rows = [
            self._of_data(value, 0) if own else each
            for value, each, own in zip(values, index, by_row, strict=True)
        ]
        if by_row[0] and _is_own_row(values[0], array, n):
            length = (-1, *(1,) * (n_dim - 1))
            array, rows[0] = self.of(array, 0), pt.arange(self.stop - self.start).reshape(length)
        return array[tuple(rows)]

    def _reduced(self, node: Any, axis: int) -> Variable | None:
        array = self._kept(node, axis)
        return None if array is None else node.op(array)

    def _summed_up(self, node: Any, axis: int) -> Variable | None:
        array = self._kept(node, axis)
        return None if array is None else pt.logsumexp(array, axis=node.op.axis)

    def _kept(self, node: Any, axis: int) -> Variable | None:
        """Return the rows of the input of a reduction over other axes."""
        (array,), gone = node.inputs, node.op.axis
        if gone is None:
            return None
        return self.of(array, [i for i in range(array.ndim) if i not in gone][axis])

    def _normalised(self, node: Any, axis: int) -> Variable | None:
        along = node.op.axis
        if along is None or axis in along:
            return None
        function = softmax if isinstance(node.op, Softmax) else log_softmax
        return function(self.of(node.inputs[0], axis), axis=along)

    def _filled(self, node: Any, axis: int) -> Variable:
        value, *shape = node.inputs
        missing = len(shape) - value.ndim
        if axis >= missing and not value.type.broadcastable[axis - missing]:
            value = self.of(value, axis - missing)
        shape[axis] = self.stop - self.start
        return pt.alloc(value, *shape)


_RULES: dict[type, Any] = {
    Elemwise: Rows._elementwise,
    CheckAndRaise: Rows._checked,
    DimShuffle: Rows._shuffled,
    Dot: Rows._product,
    Blockwise: Rows._blockwise,
    AdvancedSubtensor: Rows._looked_up,
    CAReduce: Rows._reduced,
    LogSumExp: Rows._summed_up,
    Softmax: Rows._normalised,
    LogSoftmax: Rows._normalised,
    Alloc: Rows._filled,
    Join: Rows._joined,
    Subtensor: Rows._sliced_elsewhere,
}


def _is_own_row(value: NDArray[Any], array: Any, n: int) -> bool:
    """Return whether an index into the rows of an array is the number of the row itself."""
    return bool(array.type.shape[0] == n and np.array_equal(value.ravel(), np.arange(n)))


def _value(array: Any) -> NDArray[Any]:
    """Return the value of an array that depends on data alone."""
    if isinstance(array, Constant):
        return np.asarray(array.data)
    if isinstance(array, SharedVariable):
        return np.asarray(array.get_value(borrow=True))
    return np.asarray(_with_known_shapes(array).eval(mode="FAST_COMPILE"))


def _with_known_shapes(array: Any) -> Any:
    """Return a graph in which shapes of arrays that are known are constants."""
    nodes = (found.owner for found in ancestors([array]) if found.owner is not None)
    known = {
        node.outputs[0]: pt.constant(np.array(node.inputs[0].type.shape, np.int64))
        for node in nodes
        if isinstance(node.op, Shape) and None not in node.inputs[0].type.shape
    }
    return clone_replace([array], known, rebuild_strict=False)[0] if known else array
