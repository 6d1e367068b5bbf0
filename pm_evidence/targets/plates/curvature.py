"""Second derivatives of a log density of many variables, by its terms.

The log density is a sum of numbers, each of which depends on few of the variables. Groups of
variables are found no two of which a number depends on. Differences of all numbers at once, where
each variable of a group is moved, then give the second derivatives of every number, and their sums
those of the density (partially separable functions, Griewank and Toint 1982). So few points are
needed, however many variables there are and however many numbers each of them is met in.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pm_evidence.targets.compile.numba_graph import shared_to_inputs
from pm_evidence.targets.compile.numpy_graph import NotBatchedError, batched, numpy_function
from pm_evidence.targets.layout import Layout
from pm_evidence.targets.plates.labels import Labelled
from pm_evidence.targets.plates.terms import Terms, terms_of

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

# Largest number of groups: points are as many as the square of it.
_MOST_GROUPS = 12
# Step of the finite differences in units of the scale of the curvature.
_STEP = 3e-3


@dataclass(frozen=True, eq=False)
class Curvature:
    """Second derivatives with respect to some of the variables of a model."""

    layout: Layout
    # Function of the parts of points: the numbers that depend on the variables, as arrays
    terms: Any
    shapes: Sequence[tuple[int, ...]]
    positions: Indices  # shape (m,): where the variables are in a point
    group: Indices  # shape (m,): the group that each variable belongs to
    # Two groups, the numbers that depend on a variable of each, and which of the pairs below these
    # variables are
    meetings: list[tuple[int, int, Indices, Indices]]
    # Pairs of variables that meet, all of them: first each with itself, then the first with a
    # larger index
    row: Indices
    column: Indices

    @classmethod
    def of(cls, target: Any, positions: Indices) -> Self | None:
        """Return those with respect to the variables at some positions of a model's points.

        None if numbers depend on too many of them, as far as is known.
        """
        layout = target.layout
        points = target.finite_prior_points(16, np.random.SeedSequence(1))
        if not len(points):
            return None
        try:
            terms = terms_of(target.model, layout)
            found = _grouped(terms, layout, layout.split(points[0]), positions)
            if found is None:
                return None
            group, members = found
            used = [k for k, each in enumerate(members) if (each >= 0).any()]
            outputs, inputs, data = shared_to_inputs([terms.terms[k].graph for k in used])
            many, graphs = batched(terms.parts, outputs)
            program = numpy_function([*many, *inputs], graphs)
        except (NotBatchedError, NotImplementedError):
            return None
        arrays = [np.asarray(value) for value in data]
        shapes = [members[k].shape[1:] for k in used]
        flat = [members[k].reshape(len(members[k]), -1) for k in used]
        meetings, row, column = _meetings(np.concatenate(flat, axis=1), positions.size)
        numbers = partial(_with_arrays, program, arrays)
        return cls(layout, numbers, shapes, positions, group, meetings, row, column)

    @property
    def n_points(self) -> int:
        """Number of points at which all numbers are computed."""
        n_groups = int(self.group.max()) + 1
        return 1 + 2 * (n_groups + sum(a != b for a, b, *_ in self.meetings))

    def at(self, x: Floats, lengths: Floats) -> Floats:
        """Return minus the second derivatives of all pairs at a point, shape ``(n_pairs,)``.

        The lengths, shape (m,), are about the scales of the curvature along each variable.
        """
        n_groups = int(self.group.max()) + 1
        apart = [(a, b) for a, b, *_ in self.meetings if a != b]
        moved = np.zeros((n_groups + len(apart), n_groups), bool)
        moved[np.arange(n_groups), np.arange(n_groups)] = True
        for k, pair in enumerate(apart):
            moved[n_groups + k, list(pair)] = True
        steps = np.zeros((len(moved), x.size))
        steps[:, self.positions] = np.where(moved[:, self.group], _STEP * lengths, 0.0)
        middle = self._numbers(x[None])
        # second derivatives along each step, of every number
        bend = self._numbers(x + steps) + self._numbers(x - steps) - 2.0 * middle
        found, k = np.zeros(self.row.size), n_groups
        for a, b, numbers, pairs in self.meetings:
            change = bend[a, numbers]
            if a != b:
                change = 0.5 * (bend[k, numbers] - change - bend[b, numbers])
                k += 1
            found -= np.bincount(pairs, change, minlength=found.size)
        return found / (_STEP**2 * lengths[self.row] * lengths[self.column])

    def _numbers(self, x: Floats) -> Floats:
        n = len(x)
        numbers = self.terms(*self.layout.split(x))
        found = [
            np.broadcast_to(each, (n, *shape)).reshape(n, -1)
            for each, shape in zip(numbers, self.shapes, strict=True)
        ]
        return np.concatenate(found, axis=1)


def _with_arrays(program: Any, arrays: Sequence[Any], *parts: Floats) -> list[Any]:
    return list(program(*parts, *arrays))


def _grouped(
    terms: Terms, layout: Layout, point: Sequence[Any], positions: Indices
) -> tuple[Indices, list[Indices]] | None:
    """Return groups, and for each term which variable of every group a number depends on, or -1.

    Variables that meet belong to different groups. Where the members of a group still meet, they
    are divided.
    """
    graphs = [term.graph for term in terms.terms]
    reading = Labelled(dict(zip(terms.parts, point, strict=True)))
    m = positions.size
    index = np.full(layout.size, -1)
    index[positions] = np.arange(m)
    met = sp.csr_array((m, m), dtype=bool)
    group = np.zeros(m, np.int64)
    for _ in range(_MOST_GROUPS):
        members, pairs = list[list[Indices]](), list[Indices]()
        for g in range(int(group.max()) + 1):
            own = np.where((index >= 0) & (group[index] == g), index, -1)
            labels = dict(zip(terms.parts, layout.split(own), strict=True))
            every, further, _ = reading.of(graphs, labels)
            members.append(every)
            pairs.append(further)
        further = np.concatenate(pairs)
        if not len(further):
            return group, [np.stack(each) for each in zip(*members, strict=True)]
        ones = np.ones(len(further), bool)
        met = met + sp.csr_array((ones, tuple(further.T)), shape=(m, m))
        met = met + met.T
        group = coloured(met)
        if group.max() >= _MOST_GROUPS:
            return None
    return None


def coloured(conflict: Any) -> Indices:
    """Return colours that differ where elements of a symmetric sparse matrix are not zero."""
    colour = np.full(conflict.shape[0], -1)
    start, row = conflict.indptr, conflict.indices
    for j in range(colour.size):  # the first colour that none of those before it in its rows has
        near = colour[row[start[j] : start[j + 1]]]
        used = np.zeros(near.size + 1, bool)
        used[near[(near >= 0) & (near <= near.size)]] = True
        colour[j] = np.argmin(used)
    return colour


def _meetings(
    members: Indices, m: int
) -> tuple[list[tuple[int, int, Indices, Indices]], Indices, Indices]:
    """Return where groups meet, and the pairs of variables that do."""
    n_groups = len(members)
    found = list[tuple[int, int, Indices]]()
    keys = [np.arange(m) * (m + 1)]
    for a in range(n_groups):
        for b in range(a, n_groups):
            numbers = np.flatnonzero((members[a] >= 0) & (members[b] >= 0))
            if numbers.size:
                i, j = members[a, numbers], members[b, numbers]
                keys.append(np.minimum(i, j) * m + np.maximum(i, j))
                found.append((a, b, numbers))
    every, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    row, column = np.divmod(every, m)
    own = np.argsort(row != column, kind="stable")
    place = np.empty(own.size, np.int64)
    place[own] = np.arange(own.size)
    ends = np.cumsum([each.size for each in keys])[:-1]
    parts = np.split(place[inverse], ends)[1:]
    meetings = [(*each, part) for each, part in zip(found, parts, strict=True)]
    return meetings, column[own], row[own]
