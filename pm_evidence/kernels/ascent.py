"""Local maximisation of a log density by L-BFGS, from many starts at once."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape
from pm_evidence.targets.compile.numba_density import densities_with_gradients

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


# Number of steps, with changes of the gradient, from which the curvature is estimated.
_MEMORY = 8
# Armijo's condition: a step must gain this share of what the gradient predicts (Nocedal and Wright
# 2006, section 3.1).
_SUFFICIENT = 1e-4
# The ascent has converged if the gradient predicts a gain below this many nats.
_SETTLED = 1e-5
# A failed line search counts as converged if the predicted gain is below the rounding error.
_ROUNDING = 1e-10
# Where a step has gained too little, the next one is so much shorter; steps shorter than this have
# failed.
_SHORTER, _LEAST_SIZE = 0.4, 1e-10


@dataclass(frozen=True, slots=True)
class Climbs:
    """The end points of the ascents from some starting points."""

    x: Floats  # shape (n, n_dim): last points
    # shape (n,): log prior and log likelihood there, times their powers, in nats; ``-inf`` where a
    # start has no finite density
    log_density: Floats
    # shape (n,): whether the ascent has converged, instead of reaching the limit of evaluations or
    # ending with a failed line search
    settled: NDArray[np.bool_]
    n_evaluations: int  # evaluations of density and gradient in all


def climb(
    target: Any,
    start: Floats,
    shape: Shape,
    n_evaluations: int,
    level: Floats | None = None,
    power: tuple[float, float] = (1.0, 1.0),
) -> Climbs:
    """Climb the log posterior density from every row of ``start``.

    Limited-memory BFGS with a backtracking line search (Nocedal and Wright 2006, algorithm 7.5). An
    ascent needs one evaluation after the other; those of all unfinished ascents are made at once.
    """
    level = np.zeros(start.shape[1]) if level is None else level
    weights = np.array(power)
    ascents = _Ascents(start, shape, level, n_evaluations)
    with np.errstate(all="ignore"):
        while ascents.unfinished.size:
            rows = ascents.unfinished
            value, gradient = densities_with_gradients(target, ascents.point[rows])
            height = value @ weights
            ascents.answer(rows, height, weights @ gradient)
    used = int(ascents.used.sum())
    return Climbs(ascents.x, ascents.height, ascents.settled, used)


class _Ascents:
    """The state of ascents, one in each row."""

    def __init__(self, start: Floats, shape: Shape, level: Floats, most: int) -> None:
        n, d = start.shape
        self.shape, self.level, self.most = shape, level, most
        self.x = np.array(start, dtype=float, order="C")
        self.point, self.height = self.x.copy(), np.full(n, -np.inf)
        self.slope, self.direction = np.zeros((2, n, d))
        self.size, self.gain = np.zeros((2, n))
        self.steps, self.changes = np.zeros((2, n, _MEMORY, d))
        self.n_kept, self.used = np.zeros((2, n), np.int64)
        self.settled = np.zeros(n, bool)
        self.unfinished = np.arange(n)

    def answer(self, rows: Rows, height: Floats, gradient: Floats) -> None:
        """Take ascents further, given log densities and gradients at their points."""
        self.used[rows] += 1
        slope = self._pulled_back(gradient)
        usable = np.isfinite(height) & np.isfinite(slope.sum(axis=1))
        first = self.used[rows] == 1
        enough = self.height[rows] + _SUFFICIENT * self.size[rows] * self.gain[rows]
        better = usable & (first | (height >= enough))
        self._remember(rows[better & ~first], slope[better & ~first])
        to = rows[better]
        self.x[to], self.slope[to], self.height[to] = self.point[to], slope[better], height[better]
        shortened, failed = self._shorten(rows[~better & ~first])
        turns = np.concatenate([to, failed])
        turned = self._turn(turns[self.used[turns] < self.most])
        self.unfinished = np.sort(np.concatenate([shortened, turned]))

    def _pulled_back(self, gradient: Floats) -> Floats:
        """Return derivatives with respect to the whitened coordinates, along the level 0."""
        factor = self.shape.factor
        slope = gradient @ factor if self.shape.is_dense else gradient * factor[:, 0]
        return np.asarray(slope - np.outer(slope @ self.level, self.level))

    def _remember(self, rows: Rows, slope: Floats) -> None:
        """Store steps and the changes of the slope along them.

        A pair is used if the density is concave along the step: the estimated curvature then
        remains that of a peak.
        """
        step = self.size[rows, None] * self.direction[rows]
        change = self.slope[rows] - slope
        at = self.n_kept[rows] % _MEMORY
        self.steps[rows, at], self.changes[rows, at] = step, change
        self.n_kept[rows] += _inner(step, change) > 1e-10 * _inner(change, change)

    def _shorten(self, rows: Rows) -> tuple[Rows, Rows]:
        """Try shorter steps where there is room; return these rows, and others that may go on.

        Where even the shortest step fails, the estimated curvature is dropped, once.
        """
        self.size[rows] *= _SHORTER
        can = (self.size[rows] >= _LEAST_SIZE) & (self.used[rows] < self.most)
        self._try(rows[can])
        failed = rows[~can]
        has_curvature = self.n_kept[failed] > 0
        ended = failed[~has_curvature]
        rounding = _ROUNDING * (1.0 + np.abs(self.height[ended]))
        self.settled[ended] = self.gain[ended] < rounding
        self.n_kept[failed] = 0
        return rows[can], failed[has_curvature]

    def _turn(self, rows: Rows) -> Rows:
        """Begin new line searches; return the rows in which one is worth it."""
        direction, slope = self._ascent_direction(rows), self.slope[rows]
        gain = _inner(slope, direction)
        odd = ~(gain > 0.0)  # the estimated curvature is not that of a peak
        self.n_kept[rows[odd]] = 0
        direction[odd], gain[odd] = slope[odd], _inner(slope[odd], slope[odd])
        # a step of at most one unit of the population's own scale where no curvature is known
        plain = self.n_kept[rows] == 0
        scale = np.where(plain, 1.0 / np.maximum(np.sqrt(gain), 1.0), 1.0)
        self.direction[rows], self.gain[rows] = direction * scale[:, None], gain * scale
        small = self.gain[rows] < _SETTLED
        self.settled[rows[small]] = True
        self.size[rows[~small]] = 1.0
        self._try(rows[~small])
        return rows[~small]

    def _try(self, rows: Rows) -> None:
        """Set the next points: steps along the directions from the best points."""
        moved = self.shape.scaled(self.size[rows, None] * self.direction[rows])
        self.point[rows] = self.x[rows] + moved

    def _ascent_direction(self, rows: Rows) -> Floats:
        """Return the estimated inverse curvature times the slope (two-loop recursion)."""
        direction, kept = self.slope[rows].copy(), self.n_kept[rows]
        share = np.zeros((_MEMORY, len(rows)))
        ages = range(min(_MEMORY, int(kept.max(initial=0))))
        for age in ages:  # the last step first
            some = np.flatnonzero(kept > age)
            step, change = self._pair(rows[some], kept[some] - 1 - age)
            share[age, some] = _inner(step, direction[some]) / _inner(step, change)
            direction[some] -= share[age, some, None] * change
        some = np.flatnonzero(kept > 0)
        step, change = self._pair(rows[some], kept[some] - 1)
        direction[some] *= (_inner(step, change) / _inner(change, change))[:, None]
        for age in reversed(ages):
            some = np.flatnonzero(kept > age)
            step, change = self._pair(rows[some], kept[some] - 1 - age)
            rest = share[age, some] - _inner(change, direction[some]) / _inner(step, change)
            direction[some] += rest[:, None] * step
        return direction

    def _pair(self, rows: Rows, number: NDArray[np.int64]) -> tuple[Floats, Floats]:
        at = number % _MEMORY
        return self.steps[rows, at], self.changes[rows, at]


def _inner(a: Floats, b: Floats) -> Floats:
    """Return the inner products of rows."""
    return np.asarray((a * b).sum(axis=1))
