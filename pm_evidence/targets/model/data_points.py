"""A PyMC model whose data are added point by point."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Variable

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.layout import shape_of
from pm_evidence.targets.model.exchanged import ExchangedTarget
from pm_evidence.targets.model.log_density import DensityGraphs, density_graphs
from pm_evidence.targets.model.quiet import quietly
from pm_evidence.targets.model.rows import Rows
from pm_evidence.targets.model.target import PyMCTarget

__all__ = ["DataPointsTarget", "Term", "data_points_target", "terms_of"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Term:
    """A part of the log likelihood: an observed variable, or all potentials together.

    Parameters
    ----------
    name : str
        Its name, for messages.
    graph : TensorVariable
        Log likelihoods of its data points along the first axis; a scalar is one data point.
    n_points : int
        Number of data points.
    """

    name: str
    graph: Any
    n_points: int


def terms_of(model: pm.Model) -> list[Term]:
    """Return the parts of a model's log likelihood, potentials first.

    Raises
    ------
    ModelError
        If there are no data, or the log likelihood of an observed variable is not a sum over
        independent data points.
    """
    with quietly():
        graphs = model.logp(vars=model.observed_RVs, sum=False) if model.observed_RVs else []
    terms = [Term("potentials", model.potentiallogp, 1)] if model.potentials else []
    for rv, graph in zip(model.observed_RVs, graphs, strict=True):
        joint = rv.owner.op.ndim_supp if hasattr(rv.owner.op, "ndim_supp") else 0
        if joint and graph.ndim == 0:
            raise ModelError(
                f"path='data_points' needs log likelihoods of single data points, but {rv.name} is "
                f"one draw of shape {_shape(model, rv)} from a joint distribution; use "
                "path='geometric', or write its distribution as a product of conditional ones."
            )
        terms.append(Term(str(rv.name), graph, _shape(model, rv)[0] if graph.ndim else 1))
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

    Parameters
    ----------
    target : PyMCTarget
        The posterior for all data.
    order : ndarray of int64, shape (n_points,)
        Data points in the order in which they are added, counted through the observed variables
        one after the other. Potentials together are the first point.
    batches : tuple of int, optional
        Sizes of the batches in which they are added, if the user asks for them.

    Attributes
    ----------
    n_points : int
        Number of data points.
    first, last : float
        The part of the data.
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
        return density_graphs(
            self.model,
            self.layout,
            potentials_only=False,
            left_out=(),
            log_likelihood=sum(sums[1:], sums[0]),
        )

    @cached_property
    def n_whole(self) -> int:
        """Number of arrays that are computed for all data points even where few are needed."""
        start, stop = pt.lscalars(2)
        count = 0
        for term, rows in zip(self.terms, self._rows, strict=True):
            found = Rows(rows, start, stop, self.model.value_vars)
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
    term: Term, rows: Indices, start: Any, stop: Any, weight: Any, free: Sequence[Variable]
) -> Variable:
    """Return the weighted sum of the log likelihoods of a range of data points."""
    if term.graph.ndim == 0:
        return pt.switch(pt.lt(start, stop), weight[0] * term.graph, 0.0)
    part = Rows(rows, start, stop, free).of(term.graph)
    each = part.sum(axis=tuple(range(1, part.ndim)))
    return (weight[start:stop] * each).sum()
