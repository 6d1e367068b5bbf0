"""Where a survey looks for the basins of further peaks, and which positions stand out."""

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape

__all__ = ["LIKE", "between", "coincide", "contracted", "exchanged", "nearest_to", "outlying"]

Floats = NDArray[np.float64]

# Number of positions with similar predictions that are compared, and nats added to their spread,
# which is zero if the prediction is exact.
LIKE, _EVEN_SPREAD = 64, 0.1
# Peaks coincide if they are closer than this in height, in nats, and in position, in standard
# deviations of the population.
_SAME_HEIGHT, _SAME_PLACE = 1e-2, 1e-2
# Predictions far from all peaks are minus infinity; a finite number has differences.
_LOWEST = -1e300


def contracted(x: Floats, rng: np.random.Generator) -> Floats:
    """Return positions moved towards their centre, by factors between ``1 / sqrt(d)`` and 1.

    In many dimensions draws lie in a shell, ``sqrt(d)`` standard deviations from the centre.
    """
    n, d = x.shape
    centre = np.median(x, axis=0)
    return centre + (x - centre) * d ** (-0.5 * rng.uniform(size=(n, 1)))


def between(prior: Floats, draws: Floats, n: int, rng: np.random.Generator) -> Floats:
    """Return positions between the prior and the population, as if both were normal.

    Scales are interpolated geometrically; each centre is that of a product of two normal densities.
    """
    (start, wide), (end, narrow) = (_centre_and_scale(x) for x in (prior, draws))
    wide, narrow = np.maximum(wide, 1e-300), np.maximum(np.minimum(narrow, wide), 1e-300)
    scale = wide * (narrow / wide) ** rng.uniform(size=(n, 1))
    centre = end + (start - end) * (scale / wide) ** 2
    x: Floats = centre + scale * rng.standard_normal((n, len(wide)))
    return x


def exchanged(peaks: Floats, others: Floats, n: int, rng: np.random.Generator) -> Floats:
    """Return peaks that have one or more of their coordinates from other positions.

    Half of the positions have a single foreign coordinate, and the rest each with a probability of
    1/2. Half of them take theirs from another peak, if there are several.
    """
    d = peaks.shape[1]
    x, donors = peaks[rng.integers(len(peaks), size=n)], others[rng.integers(len(others), size=n)]
    if len(peaks) > 1:
        donors[::2] = peaks[rng.integers(len(peaks), size=len(donors[::2]))]
    foreign = rng.uniform(size=(n, d)) < 0.5
    foreign[: n // 2] = np.arange(d) == rng.integers(d, size=(n // 2, 1))
    return np.where(foreign, donors, x)


def _centre_and_scale(x: Floats) -> tuple[Floats, Floats]:
    """Return medians and half the widths of the central 68 %."""
    low, middle, high = np.quantile(x, [0.16, 0.5, 0.84], axis=0)
    return middle, 0.5 * (high - low)


def outlying(log_density: Floats, predicted: Floats, n: int) -> NDArray[np.intp]:
    """Return the positions whose density stands out most among those with similar predictions."""
    predicted = np.maximum(predicted, _LOWEST)
    order = np.argsort(predicted, kind="stable")
    order = order[len(order) % LIKE :]
    excess = (log_density - predicted)[order].reshape(-1, LIKE)
    excess = excess - np.median(excess, axis=1, keepdims=True)
    spread = np.median(np.abs(excess), axis=1, keepdims=True) + _EVEN_SPREAD
    with np.errstate(over="ignore"):  # those that are far too low become minus infinity
        relative = (excess / spread).ravel()
    chosen: NDArray[np.intp] = order[np.argsort(-relative, kind="stable")[:n]]
    return chosen


def coincide(y: Floats, heights: Floats, place: Floats, height: float) -> NDArray[np.bool_]:
    """Return which peaks coincide with one, in the population's coordinates."""
    near = np.abs(heights - height) < _SAME_HEIGHT
    same: NDArray[np.bool_] = near & (((y - place) ** 2).sum(axis=1) < _SAME_PLACE**2)
    return same


def nearest_to(shape: Shape, draws: Floats, centres: Floats, chosen: int) -> NDArray[np.bool_]:
    """Return which draws are nearer to one centre than to the others."""
    y, places = shape.whitened(draws), shape.whitened(centres)
    squares = np.array([((y - place) ** 2).sum(axis=1) for place in places])
    nearest: NDArray[np.bool_] = squares[chosen] <= squares.min(axis=0)
    return nearest
