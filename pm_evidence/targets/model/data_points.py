"""A PyMC model whose data are added point by point, from graphs of some rows of an array."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
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
from pytensor.tensor.special import LogSumExp
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.layout import shape_of
from pm_evidence.targets.model.log_density import DensityGraphs, density_graphs
from pm_evidence.targets.model.reparameterised import ExchangedTarget
from pm_evidence.targets.model.target import PyMCTarget
from pm_evidence.targets.model.vectorised import quietly

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class RowSelection:
    """Restricts graphs to a range of their rows, in a given order.

    Sliced arrays are not computed as a whole where the rows of a result depend on the same rows of
    the data: through elementwise functions, products with a matrix and lookups by an index. Other
    parts of a graph are computed for all rows, and then sliced, which is as correct.
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

    def _filled(self, node: Any, axis: int) -> Variable:
        value, *shape = node.inputs
        missing = len(shape) - value.ndim
        if axis >= missing and not value.type.broadcastable[axis - missing]:
            value = self.of(value, axis - missing)
        shape[axis] = self.stop - self.start
        return pt.alloc(value, *shape)


_RULES: dict[type, Any] = {
    Elemwise: RowSelection._elementwise,
    CheckAndRaise: RowSelection._checked,
    DimShuffle: RowSelection._shuffled,
    Dot: RowSelection._product,
    Blockwise: RowSelection._blockwise,
    AdvancedSubtensor: RowSelection._looked_up,
    CAReduce: RowSelection._reduced,
    LogSumExp: RowSelection._summed_up,
    Alloc: RowSelection._filled,
    Join: RowSelection._joined,
    Subtensor: RowSelection._sliced_elsewhere,
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


@dataclass(frozen=True, eq=False)
class DataTerm:
    """A part of the log likelihood: an observed variable, or all potentials together."""

    name: str  # its name, for messages
    # Log likelihoods of its data points along the first axis; a scalar is one data point
    graph: Any
    n_points: int  # number of data points


def terms_of(model: pm.Model) -> list[DataTerm]:
    """Return the parts of a model's log likelihood, potentials first."""
    with quietly():
        graphs = model.logp(vars=model.observed_RVs, sum=False) if model.observed_RVs else []
    terms = [DataTerm("potentials", model.potentiallogp, 1)] if model.potentials else []
    for rv, graph in zip(model.observed_RVs, graphs, strict=True):
        joint = rv.owner.op.ndim_supp if hasattr(rv.owner.op, "ndim_supp") else 0
        if joint and graph.ndim == 0:
            raise ModelError(
                f"path='data_points' needs log likelihoods of single data points, but {rv.name} is "
                f"one draw of shape {_shape(model, rv)} from a joint distribution; use "
                "path='geometric', or write its distribution as a product of conditional ones."
            )
        terms.append(DataTerm(str(rv.name), graph, _shape(model, rv)[0] if graph.ndim else 1))
    if not terms:
        raise ModelError(
            "path='data_points' needs an observed variable, got a model with none; use "
            "path='geometric'."
        )
    return terms


def _shape(model: pm.Model, rv: Any) -> tuple[int, ...]:
    return shape_of(model.rvs_to_values[rv])


class DataPointsTarget(ExchangedTarget):
    """The posterior of a PyMC model for a part of its data.

    Its likelihood is that of the data points from ``first`` to ``last``, counted in their order;
    fractions of a point are powers of its likelihood. `having` gives the target for another part.
    """

    def __init__(
        self, target: PyMCTarget, order: Indices, batches: tuple[int, ...] | None = None
    ) -> None:
        # what belongs to the likelihood of all data
        known = {"density", "differentiable", "is_log_concave", "hyperparameters"}
        known |= {"_graphs", "_pickled", "_by_data_points"}
        vars(self).update({k: v for k, v in vars(target).items() if k not in known})
        self.whole, self.order, self.batches = target, order, batches
        self.terms = terms_of(target.model)
        self.n_points = len(order)
        self.first, self.last = 0.0, float(self.n_points)
        starts = np.cumsum([0, *(term.n_points for term in self.terms)])
        term_of = np.searchsorted(starts, order, side="right") - 1
        # position of each term's points among all points, in the order in which they are added
        self._places = [np.flatnonzero(term_of == j) for j in range(len(self.terms))]
        self._rows = [order[p] - starts[j] for j, p in enumerate(self._places)]
        self._arrays = self._arrays_between(self.first, self.last)

    def __reduce__(self) -> tuple[Any, ...]:
        return data_points_target, (self.whole, self.order, self.batches)

    def having(self, first: float, last: float) -> "DataPointsTarget":
        """Return the target for the data points from ``first`` to ``last``."""
        part = self._copy()
        part.first, part.last = first, last
        part._arrays = self._arrays_between(first, last)
        return part

    def name_of(self, point: int) -> str:
        """Return a data point as ``y[3]``: its observed variable, and its position in that."""
        for term in self.terms:
            if point < term.n_points:
                return term.name if term.graph.ndim == 0 else f"{term.name}[{point}]"
            point -= term.n_points
        raise IndexError(f"point must be below {self.n_points}")

    def _arrays_between(self, first: float, last: float) -> list[NDArray[Any]]:
        """Return, for all terms, the ranges of their points, and for each term, its weights."""
        low, high = np.floor(first), np.ceil(last)
        weight = np.ones(self.n_points)
        if first < last:
            at, end = int(low), int(high) - 1
            weight[at] -= first - low
            weight[end] -= high - last
        else:
            high = low
        ranges = [np.searchsorted(places, [low, high]) for places in self._places]
        weights = [np.ascontiguousarray(weight[places]) for places in self._places]
        return [np.array(ranges, np.int64), *weights]

    def _new_graphs(self) -> DensityGraphs:
        ranges, *weights = (pytensor.shared(array, borrow=True) for array in self._arrays)
        sums = [
            _sum_between(term, rows, ranges[j, 0], ranges[j, 1], weight, self.model.value_vars)
            for j, (term, rows, weight) in enumerate(
                zip(self.terms, self._rows, weights, strict=True)
            )
        ]
        log_likelihood = sum(sums[1:], sums[0])
        return density_graphs(self.model, self.layout, log_likelihood=log_likelihood)

    @cached_property
    def n_whole(self) -> int:
        """Number of arrays that are computed for all data points even where few are needed."""
        start, stop = pt.lscalars(2)
        count = 0
        for term, rows in zip(self.terms, self._rows, strict=True):
            found = RowSelection(rows, start, stop, self.model.value_vars)
            if term.graph.ndim:
                found.of(term.graph)
            count += found.n_whole
        return count


def data_points_target(
    target: PyMCTarget, order: Indices, batches: tuple[int, ...] | None = None
) -> DataPointsTarget:
    """Return the target of a model's data in an order, which is compiled once for each target."""
    kept = vars(target).setdefault("_by_data_points", {})
    key = order.tobytes(), batches
    if key not in kept:
        kept.clear()
        kept[key] = DataPointsTarget(target, order, batches)
    found: DataPointsTarget = kept[key]
    return found


def _sum_between(
    term: DataTerm, rows: Indices, start: Any, stop: Any, weight: Any, free: Sequence[Variable]
) -> Variable:
    """Return the weighted sum of the log likelihoods of a range of data points."""
    if term.graph.ndim == 0:
        return pt.switch(pt.lt(start, stop), weight[0] * term.graph, 0.0)
    part = RowSelection(rows, start, stop, free).of(term.graph)
    each = part.sum(axis=tuple(range(1, part.ndim)))
    return (weight[start:stop] * each).sum()
