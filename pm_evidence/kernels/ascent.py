"""Local maximisation of a log density by L-BFGS, from many starts in one call."""

from dataclasses import dataclass
from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen.native import call_density
from pm_evidence.core.rows import over_rows
from pm_evidence.core.shape import Shape
from pm_evidence.kernels.whitening import move_along, pull_back

__all__ = ["Climbs", "climb"]

Floats = NDArray[np.float64]

# Number of steps, with changes of the gradient, from which the curvature is estimated.
_MEMORY = 8
# Armijo's condition: a step must gain this share of what the gradient predicts (Nocedal and Wright
# 2006, section 3.1).
_SUFFICIENT = 1e-4
# The ascent has converged if the gradient predicts a gain below this many nats.
_SETTLED = 1e-5
# A failed line search counts as converged if the predicted gain is below the rounding error.
_ROUNDING = 1e-10


@dataclass(frozen=True, slots=True)
class Climbs:
    """The end points of the ascents from some starting points.

    Parameters
    ----------
    x : ndarray, shape (n, n_dim)
        Last points.
    log_density : ndarray, shape (n,)
        Log prior plus log likelihood there, in nats; ``-inf`` where a start has no finite density.
    settled : ndarray of bool, shape (n,)
        Whether the ascent has converged, instead of reaching the limit of evaluations or ending
        with a failed line search.
    n_evaluations : int
        Evaluations of density and gradient in all.
    """

    x: Floats
    log_density: Floats
    settled: NDArray[np.bool_]
    n_evaluations: int


def climb(
    target: Any,
    start: Floats,
    shape: Shape,
    n_evaluations: int,
    level: Floats | None = None,
) -> Climbs:
    """Climb the log posterior density from every row of ``start``.

    Parameters
    ----------
    target : object
        A target whose ``differentiable`` is compiled and all of whose coordinates are continuous.
    start : ndarray, shape (n, n_dim)
        Where the ascents start.
    shape : Shape
        Location and scale of a population; the ascent uses coordinates that are whitened by it.
    n_evaluations : int
        Largest number of evaluations of one ascent.
    level : ndarray, shape (n_dim,), optional
        Unit vector, in the coordinates of ``shape``, along which the ascents do not move.

    Notes
    -----
    Limited-memory BFGS with a backtracking line search (Nocedal and Wright 2006, algorithm 7.5).
    """
    x = np.array(start, dtype=float, order="C")
    log_density, used = np.full(len(x), -np.inf), np.zeros(len(x), np.int64)
    settled = np.zeros(len(x), bool)
    work = _Ascents(target, shape, np.zeros(x.shape[1]) if level is None else level, n_evaluations)
    over_rows(work, (), (x, log_density, settled, used))
    return Climbs(x, log_density, settled, int(used.sum()))


@dataclass(frozen=True)
class _Ascents:
    """Work on rows: the ascent from every row."""

    target: Any
    shape: Shape
    level: Floats
    most: int

    def __call__(self, *rows: NDArray[Any]) -> None:
        x, log_density, settled, used = rows
        compiled = self.target.differentiable
        _climb(
            compiled.address,
            compiled.data,
            x,
            np.arange(x.shape[1]),
            self.shape.factor,
            self.level,
            self.most,
            log_density,
            settled,
            used,
        )


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _remember(size, direction, slope, new_slope, row, steps, changes):
    """Store a step and the change of the gradient; return 1 if the pair can be used, else 0.

    A pair is used if the density is concave along the step: the estimated curvature then remains
    that of a peak.
    """
    for j in range(direction.size):
        steps[row, j] = size * direction[j]
        changes[row, j] = slope[j] - new_slope[j]
    return int(_inner(steps[row], changes[row]) > 1e-10 * _inner(changes[row], changes[row]))


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _line_search(
    address, data, start, free, factor, level, direction, height, gain, most, point, new_slope
):
    """Return a step size that raises the density enough or 0, the new height, and evaluations.

    ``point`` and ``new_slope`` receive position and gradient after the step.
    """
    value, gradient = np.empty(2), np.empty((2, start.size))
    size, new_height, n_tries = 1.0, height, 0
    while n_tries < most:
        point[:] = start
        move_along(point, free, factor, size, direction)
        n_tries += 1
        failed = call_density(address, point, value, gradient, data) != 0
        new_height = value[0] + value[1]
        if not failed and new_height >= height + _SUFFICIENT * size * gain:
            pull_back(gradient, 1.0, free, factor, new_slope)
            _project(new_slope, level)
            if np.isfinite(new_height) and np.isfinite(new_slope.sum()):
                return size, new_height, n_tries
        size *= 0.4
        if size < 1e-10:
            break
    return 0.0, new_height, n_tries


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _climb(address, data, x, free, factor, level, most, log_density, settled, used):
    """Move every row to a peak, in place."""
    n, d = x.shape
    point, value, gradient = np.empty(d), np.empty(2), np.empty((2, d))
    slope, new_slope, direction = np.empty(d), np.empty(d), np.empty(d)
    steps, changes = np.empty((_MEMORY, d)), np.empty((_MEMORY, d))
    for i in range(n):
        if call_density(address, x[i], value, gradient, data) != 0:
            continue
        used[i] = 1
        height = value[0] + value[1]
        pull_back(gradient, 1.0, free, factor, slope)
        _project(slope, level)
        if not (np.isfinite(height) and np.isfinite(slope.sum())):
            continue
        kept = 0
        while used[i] < most:
            _ascent_direction(slope, steps, changes, kept, direction)
            gain = _inner(slope, direction)
            if not gain > 0.0:  # the estimated curvature is not that of a peak
                kept = 0
                direction[:] = slope
                gain = _inner(slope, slope)
            if kept == 0:  # a step of at most one unit of the population's own scale
                length = np.sqrt(gain)
                scale = 1.0 / max(length, 1.0)
                direction *= scale
                gain *= scale
            if gain < _SETTLED:
                settled[i] = True
                break
            size, new_height, n_tries = _line_search(
                address, data, x[i], free, factor, level, direction, height, gain, most - used[i],
                point, new_slope,
            )  # fmt: skip
            used[i] += n_tries
            accepted = size > 0.0
            if not accepted:
                if kept == 0:
                    settled[i] = gain < _ROUNDING * (1.0 + abs(height))
                    break
                kept = 0
                continue
            kept += _remember(size, direction, slope, new_slope, kept % _MEMORY, steps, changes)
            x[i] = point
            height = new_height
            slope[:] = new_slope
        log_density[i] = height


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _ascent_direction(slope, steps, changes, kept, direction):
    """Set ``direction`` to the estimated inverse curvature times the slope (two-loop recursion)."""
    first = max(kept - _MEMORY, 0)
    share = np.empty(_MEMORY)
    direction[:] = slope
    for k in range(kept - 1, first - 1, -1):
        row = k % _MEMORY
        curvature = _inner(steps[row], changes[row])
        share[row] = _inner(steps[row], direction) / curvature
        for j in range(slope.size):
            direction[j] -= share[row] * changes[row, j]
    if kept > 0:
        row = (kept - 1) % _MEMORY
        scale = _inner(steps[row], changes[row]) / _inner(changes[row], changes[row])
        for j in range(slope.size):
            direction[j] *= scale
    for k in range(first, kept):
        row = k % _MEMORY
        curvature = _inner(steps[row], changes[row])
        rest = share[row] - _inner(changes[row], direction) / curvature
        for j in range(slope.size):
            direction[j] += rest * steps[row, j]


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _project(slope, level):
    along = _inner(slope, level)
    for j in range(slope.size):
        slope[j] -= along * level[j]


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _inner(a, b):
    total = 0.0
    for j in range(a.size):
        total += a[j] * b[j]
    return total
