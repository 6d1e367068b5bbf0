"""Local maximisation of a log density by L-BFGS, from many starts in one call."""

from dataclasses import dataclass
from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen.native import call_density
from pm_evidence.core.rows import over_rows
from pm_evidence.core.shape import Shape
from pm_evidence.kernels.peaks import KnownPeaks, reached
from pm_evidence.kernels.whitening import move_along, pull_back
from pm_evidence.targets.compile.jax_density import JaxDensity

__all__ = ["Climbs", "climb"]

Floats = NDArray[np.float64]

# The numbers of an ascent: evaluations so far, log density at its best point, step size and
# predicted gain of the line search, number of steps that the curvature is estimated from, and
# whether the first point had a density and whether the ascent has converged (1 or 0).
_USED, _HEIGHT, _SIZE, _GAIN, _KEPT, _HAS_STARTED, _IS_SETTLED = range(7)
_N_NUMBERS = 7
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
        Log prior and log likelihood there, times their powers, in nats; ``-inf`` where a start has
        no finite density.
    settled : ndarray of bool, shape (n,)
        Whether the ascent has converged or ended at a known peak, instead of reaching the limit of
        evaluations or ending with a failed line search.
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
    known: KnownPeaks | None = None,
    power: tuple[float, float] = (1.0, 1.0),
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
    known : KnownPeaks, optional
        Peaks at which an ascent ends as soon as their curvature explains what it finds.
    power : tuple of two float
        Powers to which prior and likelihood are raised. Ascents end nearer to a maximum of large
        powers.

    Notes
    -----
    Limited-memory BFGS with a backtracking line search (Nocedal and Wright 2006, algorithm 7.5). An
    ascent asks for one evaluation after the other, so that JAX can make those of all ascents at
    once.
    """
    x = np.array(start, dtype=float, order="C")
    level = np.zeros(x.shape[1]) if level is None else level
    known = KnownPeaks.none(x.shape[1]) if known is None else known
    peaks = known.mean, known.factor, known.height
    log_density, used = np.full(len(x), -np.inf), np.zeros(len(x), np.int64)
    settled = np.zeros(len(x), bool)
    ends = log_density, settled, used
    weights = np.array(power)
    if isinstance(target.differentiable, JaxDensity):
        given = target.differentiable, weights, x, shape.factor, level, n_evaluations
        _climb_together(*given, peaks, *ends)
    else:
        over_rows(_Ascents(target, weights, shape, level, n_evaluations, peaks), (), (x, *ends))
    return Climbs(x, log_density, settled, int(used.sum()))


@dataclass(frozen=True)
class _Ascents:
    """Work on rows: the ascent from every row."""

    target: Any
    weights: Floats
    shape: Shape
    level: Floats
    most: int
    peaks: tuple[Floats, Floats, Floats]

    def __call__(self, *rows: NDArray[Any]) -> None:
        x, log_density, settled, used = rows
        compiled = self.target.differentiable
        ends = log_density, settled, used
        options = self.shape.factor, self.level, self.most, self.peaks
        _climb(compiled.address, compiled.data, self.weights, x, *options, *ends)


def _climb_together(
    compiled: JaxDensity,
    weights: Floats,
    x: Floats,
    factor: Floats,
    level: Floats,
    most: int,
    peaks: tuple[Floats, Floats, Floats],
    log_density: Floats,
    settled: NDArray[np.bool_],
    used: NDArray[np.int64],
) -> None:
    """Move every row to a peak, in place, with one evaluation of all unfinished ascents at once."""
    n, d = x.shape
    point, numbers = x.copy(), np.zeros((n, _N_NUMBERS))
    slopes = np.zeros((n, 3, d))
    steps, changes = np.empty((n, _MEMORY, d)), np.empty((n, _MEMORY, d))
    goes_on = np.ones(n, bool)
    while goes_on.any():
        rows = np.flatnonzero(goes_on)
        value, gradient = compiled.evaluate(point[rows])
        assert gradient is not None
        value, gradient = value * weights, gradient * weights[:, None]
        _answer_all(
            rows, value, gradient, x, point, slopes, steps, changes, numbers, factor, level, most,
            peaks, goes_on,
        )  # fmt: skip
    _read(numbers, log_density, settled, used)


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
def _climb(address, data, weights, x, factor, level, most, peaks, log_density, settled, used):
    """Move every row to a peak, in place, one after the other."""
    n, d = x.shape
    point, value, gradient = np.empty(d), np.empty(2), np.empty((2, d))
    slopes, steps, changes = np.zeros((3, d)), np.empty((_MEMORY, d)), np.empty((_MEMORY, d))
    numbers = np.zeros((n, _N_NUMBERS))
    for i in range(n):
        point[:] = x[i]
        goes_on = True
        while goes_on:
            failed = call_density(address, point, value, gradient, data) != 0
            value *= weights
            gradient *= weights.reshape(2, 1)
            goes_on = _answer(
                failed, value, gradient, x[i], point, slopes, steps, changes, numbers[i], factor,
                level, most, peaks,
            )  # fmt: skip
    _read(numbers, log_density, settled, used)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _answer_all(
    rows, value, gradient, x, point, slopes, steps, changes, numbers, factor, level, most, peaks,
    goes_on,
):  # fmt: skip
    for k in range(rows.size):
        i = rows[k]
        goes_on[i] = _answer(
            False, value[k], gradient[k], x[i], point[i], slopes[i], steps[i], changes[i],
            numbers[i], factor, level, most, peaks,
        )  # fmt: skip


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _read(numbers, log_density, settled, used):
    """Set what is known of every ascent at its end."""
    for i in range(len(numbers)):
        used[i] = int(numbers[i, _USED])
        settled[i] = numbers[i, _IS_SETTLED] != 0.0
        if numbers[i, _HAS_STARTED] != 0.0:
            log_density[i] = numbers[i, _HEIGHT]


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _answer(
    failed, value, gradient, x, point, slopes, steps, changes, numbers, factor, level, most, peaks
):
    """Take one ascent further, given the density at ``point``.

    Sets ``point`` to where it has to be evaluated next, and returns whether it has to be. The other
    arrays are the state of the ascent: ``x`` is the best point so far, the rows of ``slopes`` are
    the slope there, the slope at ``point`` and the direction of the line search, and ``numbers``
    are named by the constants above.
    """
    slope, new_slope, direction = slopes[0], slopes[1], slopes[2]
    free, height = np.arange(x.size), value[0] + value[1]
    accepted = numbers[_HAS_STARTED] == 0.0
    if accepted:
        if failed:
            return False
        numbers[_USED] = 1.0
        pull_back(gradient, 1.0, free, factor, slope)
        _project(slope, level)
        if not (np.isfinite(height) and np.isfinite(slope.sum())):
            return False
        numbers[_HAS_STARTED], numbers[_HEIGHT], numbers[_KEPT] = 1.0, height, 0.0
    else:
        numbers[_USED] += 1.0
        enough = numbers[_HEIGHT] + _SUFFICIENT * numbers[_SIZE] * numbers[_GAIN]
        if not failed and height >= enough:
            pull_back(gradient, 1.0, free, factor, new_slope)
            _project(new_slope, level)
            accepted = np.isfinite(height) and np.isfinite(new_slope.sum())
        if accepted:
            kept, size = int(numbers[_KEPT]), numbers[_SIZE]
            numbers[_KEPT] += _remember(
                size, direction, slope, new_slope, kept % _MEMORY, steps, changes
            )
            x[:] = point
            slope[:] = new_slope
            numbers[_HEIGHT] = height
        else:
            numbers[_SIZE] *= 0.4
            if numbers[_SIZE] >= 1e-10 and numbers[_USED] < most:
                _step_to(x, free, factor, numbers[_SIZE], direction, point)
                return True
            if numbers[_KEPT] == 0.0:
                rounding = _ROUNDING * (1.0 + abs(numbers[_HEIGHT]))
                numbers[_IS_SETTLED] = 1.0 if numbers[_GAIN] < rounding else 0.0
                return False
            numbers[_KEPT] = 0.0
    if (accepted and _has_reached(x, gradient, numbers, peaks)) or numbers[_USED] >= most:
        return False
    numbers[_GAIN] = _search_direction(slope, steps, changes, numbers, direction)
    if numbers[_GAIN] < _SETTLED:
        numbers[_IS_SETTLED] = 1.0
        return False
    numbers[_SIZE] = 1.0
    _step_to(x, free, factor, 1.0, direction, point)
    return True


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _has_reached(x, gradient, numbers, peaks):
    """Return whether the ascent has reached a known peak, and let it end there."""
    mean, factor, height = peaks
    k = reached(x, numbers[_HEIGHT], gradient, mean, factor, height)
    if k < 0:
        return False
    x[:] = mean[k]
    numbers[_HEIGHT], numbers[_IS_SETTLED] = height[k], 1.0
    return True


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _search_direction(slope, steps, changes, numbers, direction):
    """Set the direction of the next line search, and return the gain that the slope predicts."""
    _ascent_direction(slope, steps, changes, int(numbers[_KEPT]), direction)
    gain = _inner(slope, direction)
    if not gain > 0.0:  # the estimated curvature is not that of a peak
        numbers[_KEPT] = 0.0
        direction[:] = slope
        gain = _inner(slope, slope)
    if numbers[_KEPT] == 0.0:  # a step of at most one unit of the population's own scale
        scale = 1.0 / max(np.sqrt(gain), 1.0)
        direction *= scale
        gain *= scale
    return gain


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _step_to(x, free, factor, size, direction, point):
    point[:] = x
    move_along(point, free, factor, size, direction)


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
