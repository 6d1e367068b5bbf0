"""A PyMC model whose data are added point by point, from graphs of some rows of an array."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Variable
from pytensor.tensor.special import LogSumExp
from pytensor.tensor.type import TensorType

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.compile.rewrite import rewrite
from pm_evidence.targets.layout import shape_of, value_of
from pm_evidence.targets.model.log_density import DensityGraphs, density_graphs
from pm_evidence.targets.model.target import ExchangedTarget, PyMCTarget
from pm_evidence.targets.model.vectorised import quietly

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


# Parts of the data are tried at so many points, the first ones of so many prior draws.
_N_POINTS, _LOOKED_AT = 2, 20
# What is raised where a graph does not fit a part of its data.
_UNFIT = (NotImplementedError, ValueError, TypeError, IndexError, AssertionError)


def rows_of(
    array: Variable,
    order: Indices,
    start: Variable,
    stop: Variable,
    points: Mapping[Variable, NDArray[Any]],
) -> tuple[Variable, bool]:
    """Return the rows of an array in a range of an order, and whether they alone are computed.

    This is so where each of them depends on the same row of the data, as values at some points
    show. Otherwise all rows are computed, and then sliced, which is as correct. ``points`` holds
    values of the free variables, along a first axis.
    """
    whole = array[pytensor.shared(order)[start:stop]]
    free, n = list(points), len(order)
    try:
        with quietly():
            part = _of_rows_of_data(array, order, start, stop, free)
            compare = pm.compile(
                [*free, start, stop], [part, whole], mode="FAST_COMPILE", on_unused_input="ignore"
            )
            places = product(zip(*points.values(), strict=True), ((0, n), (n // 2, n)))
            pairs = [compare(*point, *span) for point, span in places]
    except _UNFIT:
        return whole, False
    are_same = [
        one.shape == other.shape and np.allclose(one, other, rtol=1e-9, equal_nan=True)
        for one, other in pairs
    ]
    are_known = any(np.isfinite(one).any() for one, _ in pairs)
    return (part, True) if are_known and all(are_same) else (whole, False)


def _of_rows_of_data(
    array: Variable, order: Indices, start: Variable, stop: Variable, free: Sequence[Variable]
) -> Variable:
    """Return the graph of an array with a range of rows in the place of all that is data."""
    n, varying = len(order), set(free)

    @cache
    def part_of(data: Any) -> Variable:
        if not isinstance(data.type, TensorType):
            return data
        value = value_of(data)
        if n in value.shape:
            axis = value.shape.index(n)
            stored = np.ascontiguousarray(np.take(value, order, axis))
            # dimensions of length 1 must be known as such, or they would not be broadcast
            rows = pytensor.shared(stored, shape=stored.shape)
            return rows[(slice(None),) * axis + (slice(start, stop),)]
        is_length = value.ndim == 0 and value.dtype.kind in "iu" and value == n
        return stop - start if is_length else data

    def of_part(node: Any, inputs: list[Variable]) -> list[Variable] | None:
        if not varying.intersection(node.inputs):
            return None
        varying.update(node.outputs)
        pairs = zip(node.inputs, inputs, strict=True)
        inputs[:] = [new if old in varying else part_of(old) for old, new in pairs]
        if isinstance(node.op, LogSumExp):  # whose graph inside is one of all rows
            return [pt.logsumexp(inputs[0], axis=node.op.axis)]
        return None

    (part,) = rewrite([array], of_part)
    return part if array in varying else part_of(array)


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

    hyperparameters = None  # not known, as ``is_log_concave``

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

    @cached_property
    def _graphs(self) -> DensityGraphs:
        ranges, *weights = (pytensor.shared(array, borrow=True) for array in self._arrays)
        drawn = self.finite_prior_points(_LOOKED_AT, np.random.SeedSequence(_LOOKED_AT))
        parts = zip(self.model.value_vars, self.layout.split(drawn[:_N_POINTS]), strict=True)
        points = {value: part.astype(value.dtype) for value, part in parts}
        terms = zip(self.terms, self._rows, weights, strict=True)
        sums = [
            _sum_between(term, rows, ranges[j, 0], ranges[j, 1], weight, points)
            for j, (term, rows, weight) in enumerate(terms)
        ]
        log_likelihood = sum(sums[1:], sums[0])
        return density_graphs(self.model, self.layout, log_likelihood=log_likelihood)


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
    term: DataTerm,
    rows: Indices,
    start: Any,
    stop: Any,
    weight: Any,
    points: Mapping[Variable, NDArray[Any]],
) -> Variable:
    """Return the weighted sum of the log likelihoods of a range of data points."""
    if term.graph.ndim == 0:
        return pt.switch(pt.lt(start, stop), weight[0] * term.graph, 0.0)
    part, _ = rows_of(term.graph, rows, start, stop, points)
    each = part.sum(axis=tuple(range(1, part.ndim)))
    return (weight[start:stop] * each).sum()
