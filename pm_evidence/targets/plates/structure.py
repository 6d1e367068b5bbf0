"""Plates of a model: elements of free variables that are independent given the other variables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.distributions.distribution import DiracDeltaRV
from pymc.logprob.transforms import CircularTransform
from pytensor.graph.traversal import ancestors
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pm_evidence.targets.layout import Layout
from pm_evidence.targets.model.checks import check_model, discrete_support
from pm_evidence.targets.model.prior import prior_sampler
from pm_evidence.targets.plates.labels import Labelled, Labels
from pm_evidence.targets.plates.terms import Terms, are_quadratic, terms_of

# Largest number of continuous coordinates of an element, of those of an element whose density is
# normal given the global variables, and of joint states.
MOST_CONTINUOUS, MOST_NORMAL, MOST_STATES = 1, 6, 256
# Prior draws of which one is finite.
_DRAWS = 16
# Fewest elements of a plate.
FEWEST = 2


@dataclass(frozen=True, eq=False)
class Plate:
    """Elements of the same kind, which are integrated side by side."""

    names: tuple[str, ...]  # the variables that each coordinate of an element belongs to
    # shape (n_elements, n_coordinates): where the coordinates of every element lie in the flat
    # vector of all free variables
    positions: NDArray[np.int64]
    # How it is integrated: over finitely many values, over all whole numbers from a least one on,
    # or over the line
    rule: str
    lower: NDArray[np.float64]  # shape (n_elements, n_coordinates): bounds of discrete coordinates
    upper: NDArray[np.float64]

    @property
    def n_elements(self) -> int:
        """Number of elements."""
        return len(self.positions)


@dataclass(frozen=True, eq=False)
class Structure:
    """Which variables of a model are local, element by element, and which are global."""

    layout: Layout  # position of every free variable
    plates: tuple[Plate, ...]  # elements that are independent given the global variables
    reasons: dict[str, str]  # why each of the others is global
    terms: Terms  # the terms of the log density
    # For each term, the plate and the element that each of its numbers belongs to, as the number of
    # the element over all plates; -1 for numbers that belong to none
    labels: list[Labels]
    # Names of global variables whose elements belong to those that are integrated, each of which
    # would have a few coordinates more
    companions: tuple[str, ...] = ()

    @property
    def local(self) -> tuple[str, ...]:
        """Names of the variables that are integrated."""
        names = {name for plate in self.plates for name in plate.names}
        return tuple(v.name for v in self.layout.variables if v.name in names)


def structure_of(model: pm.Model, layout: Layout, point: Sequence[Any]) -> Structure:
    """Return the structure of a model.

    Every variable is tried alone, all others being global. The one with the most elements is local,
    and so is each further one with which the elements stay as small as they have to be. Of crossed
    effects, the larger factor is local and the other global.
    """
    terms = terms_of(model, layout)
    reading = _Reading(model, layout, terms, point)
    reasons, found = dict[str, str](), list[tuple[int, int]]()
    for k, variable in enumerate(layout.variables):
        if variable.size < FEWEST:
            reasons[variable.name] = f"it has {_counted(variable.size, 'element')}"
            continue
        if isinstance(model.rvs_to_transforms[model.free_RVs[k]], CircularTransform):
            reasons[variable.name] = "its values lie on a circle, not on a line"
            continue
        plates, why, _ = reading.plates([k])
        if why:
            reasons[variable.name] = why
        else:
            found.append((-sum(plate.n_elements for plate in plates), k))
    chosen, companions = list[int](), list[str]()
    for _, k in sorted(found):
        _, why, largest = reading.plates([*chosen, k])
        if why:
            with_those = ", ".join(layout.variables[c].name for c in chosen)
            reasons[layout.variables[k].name] = f"given {with_those}: {why}"
            companions += [layout.variables[k].name] if 1 < largest <= MOST_NORMAL else []
        else:
            chosen.append(k)
    plates = reading.plates(chosen)[0] if chosen else ()
    labels = reading.labels_of(plates, chosen)
    return Structure(layout, plates, reasons, terms, labels, tuple(companions))


def structure_of_model(model: pm.Model) -> Structure:
    """Return the structure of a model, read at a prior draw of its own."""
    check_model(model)
    sampler = prior_sampler(model)
    x = sampler.draw(_DRAWS, np.random.SeedSequence(_DRAWS))
    finite = np.isfinite(x).all(axis=1)
    return structure_of(model, sampler.layout, sampler.layout.split(x[finite.argmax()]))


def has_global_children(model: pm.Model, structure: Structure) -> bool:
    """Return whether a local variable is a parameter of the prior of a global one.

    The marginal prior of the global one may then have a pole, as that of the coefficients of a
    horseshoe at 0, which is harder to sample than both.
    """
    local = set(structure.local)
    others = [rv for rv in model.free_RVs if rv.name not in local]
    return not local.isdisjoint(variable.name for variable in ancestors(others))


class _Reading:
    """The dependence of all terms on elements of some variables."""

    def __init__(self, model: pm.Model, layout: Layout, terms: Terms, point: Sequence[Any]) -> None:
        self.layout, self.terms = layout, terms
        self.graphs = [term.graph for term in terms.terms]
        self.labelled = Labelled(dict(zip(terms.parts, point, strict=True)))
        self.is_discrete = [np.dtype(v.dtype).kind in "iub" for v in layout.variables]
        self.support = [
            _support(rv, variable.shape)
            for rv, variable in zip(model.free_RVs, layout.variables, strict=True)
        ]

    def plates(self, chosen: Sequence[int]) -> tuple[tuple[Plate, ...], str, int]:
        """Return the plates if some variables are local, or why one of them cannot be.

        The last number is that of the coordinates of the largest element, 0 if there is another
        reason than their number.
        """
        _, pairs, where = self._labels(chosen)
        variables = [self.layout.variables[k] for k in chosen]
        positions = self.layout.positions_of(variables)
        if not positions.size:
            return (), "it has no elements", 0
        member = self._members(pairs, positions)
        owner = np.repeat(np.arange(len(variables)), [v.size for v in variables])
        n_coordinates = np.bincount(member)
        low, high = (np.concatenate([self.support[k][i] for k in chosen]) for i in (0, 1))
        discrete = np.repeat([self.is_discrete[k] for k in chosen], [v.size for v in variables])
        n_continuous = np.bincount(member, ~discrete)
        states = np.where(discrete, high - low + 1, 1.0)
        log_states = np.bincount(member, np.log(states))
        largest = int(n_coordinates.max())
        if len(n_coordinates) < FEWEST:
            return (), self._why(pairs, where, len(positions)), 0
        unbounded = discrete & np.isinf(states)
        is_normal = n_continuous.max() > 1 and self._is_normal(chosen, n_coordinates)
        if (n_continuous > (MOST_NORMAL if is_normal else MOST_CONTINUOUS)).any():
            return (), self._why(pairs, where, len(positions), largest), largest
        mixed = (n_continuous > 0) & (np.bincount(member, discrete) > 0)
        if mixed.any():
            return (), "discrete and continuous coordinates meet in an element", 0
        alone = n_coordinates[member] == 1
        if (unbounded & ~alone).any() or (unbounded & np.isinf(low)).any():
            return (), "its values have no bound", 0
        bounded = np.where(np.isinf(log_states), 0.0, log_states)
        if np.exp(bounded.max()) > MOST_STATES:
            return (), f"an element has {np.exp(bounded.max()):.0f} values", 0
        kinds = dict[Any, list[NDArray[np.int64]]]()
        order = np.argsort(member, kind="stable")
        for rows in np.split(order, np.cumsum(n_coordinates)[:-1]):
            rule = "quadrature" if not discrete[rows[0]] else "sum"
            rule = "counts" if unbounded[rows].any() else rule
            kinds.setdefault((tuple(owner[rows]), rule), []).append(rows)
        plates = tuple(
            Plate(
                tuple(variables[k].name for k in owners),
                positions[np.array(rows)],
                rule,
                low[np.array(rows)],
                high[np.array(rows)],
            )
            for (owners, rule), rows in kinds.items()
        )
        return plates, "", largest

    def _is_normal(self, chosen: Sequence[int], n_coordinates: NDArray[np.int64]) -> bool:
        """Return whether elements, all of the same size, have normal densities given the others."""
        if (n_coordinates != n_coordinates[0]).any():
            return False
        return are_quadratic(self.graphs, [self.terms.parts[k] for k in chosen])

    def labels_of(self, plates: Sequence[Plate], chosen: Sequence[int]) -> list[Labels]:
        """Return the element, over all plates, that each number of every term belongs to."""
        element = np.full(self.layout.size + 1, -1)
        first = 0
        for plate in plates:
            element[plate.positions] = first + np.arange(plate.n_elements)[:, None]
            first += plate.n_elements
        return [element[labels] for labels in self._labels(chosen)[0]]

    def _labels(self, chosen: Sequence[int]) -> tuple[list[Labels], Labels, dict[int, str]]:
        every = np.arange(self.layout.size)
        labels = {}
        for k in chosen:
            variable = self.layout.variables[k]
            labels[self.terms.parts[k]] = every[variable.positions].reshape(variable.shape)
        return self.labelled.of(self.graphs, labels)

    def _members(self, pairs: Labels, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the element that each position belongs to."""
        n = self.layout.size
        joined = coo_array((np.ones(len(pairs)), tuple(pairs.T)), shape=(n, n))
        member = connected_components(joined, directed=False)[1][positions]
        return np.unique(member, return_inverse=True)[1]

    def _why(self, pairs: Labels, where: dict[int, str], n: int, largest: int | None = None) -> str:
        if not len(pairs):
            return f"it has {_counted(n, 'element')}"
        operation = where[int(pairs[0, 0])]
        if largest is None:
            return f"its elements meet in the operation {operation}"
        return f"{largest} coordinates meet in the operation {operation}"


def _counted(n: int, noun: str) -> str:
    return f"one {noun}" if n == 1 else f"{n} {noun}s"


def _support(rv: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Return least and greatest values of a discrete variable; counts start at 0 or 1."""
    lower, upper = discrete_support(rv, shape)
    op, name = rv.owner.op, type(rv.owner.op).__name__
    if np.isinf(lower).all() and name in _COUNTS:
        lower = np.full(lower.shape, float(_COUNTS[name]))
    if name == "MixtureRV":  # with an atom at zero: zero-inflated
        _, zero, *counts = op.dist_params(rv.owner)
        if len(counts) == 1 and isinstance(zero.owner.op, DiracDeltaRV):
            lower, upper = _support(counts[0], shape)
            lower = np.minimum(lower, 0.0)
    return lower, upper


_COUNTS = {"PoissonRV": 0, "NegBinomialRV": 0, "GeometricRV": 1}
