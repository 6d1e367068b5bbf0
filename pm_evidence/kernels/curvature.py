"""A metric from the curvature of the log density, where a population is too small for its own.

The covariance of a hundred correlated coordinates takes tens of thousands of draws. The mean
curvature at a few points, which takes one gradient for each coordinate and point, has no such
noise. It describes a posterior that is close to normal, given the scales of its parts.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape
from pm_evidence.targets.compile.density import densities_with_gradients
from pm_evidence.targets.points import Particles

__all__ = ["MOST_DIMENSIONS", "curvature", "shape_of_curvature"]

Floats = NDArray[np.float64]

# A dense metric of more coordinates costs more memory, at every stage, than it is worth.
MOST_DIMENSIONS = 256
# Members of the population at which the curvature is measured, and the difference of coordinates,
# in standard deviations, between two gradients.
_POINTS, _DIFFERENCE = 4, 1e-4
# A scale that the curvature gives must explain this share of the variance in most directions. The
# curvature at the modes of a distribution, or along a bent ridge, explains far less.
_EXPLAINED = 0.5


def curvature(target: Any, state: Particles, beta: float, scale: Floats) -> tuple[Floats, int]:
    """Return the mean curvature of a population in units of its scales.

    Parameters
    ----------
    target : object
        Density with a gradient (``target.differentiable``).
    state : Particles
        Population of ``n`` members.
    beta : float
        Inverse temperature.
    scale : ndarray, shape (d,)
        Standard deviation of every continuous coordinate.

    Returns
    -------
    curvature : ndarray, shape (d, d)
        Minus the mean matrix of second derivatives of the log density at ``beta``, from differences
        of gradients; NaN if the density is zero at one of the points or beside it.
    n_evaluations : int
        Number of gradients.
    """
    free, d = target.continuous, scale.size
    total = np.zeros((d, d))
    chosen = np.linspace(0, len(state) - 1, min(_POINTS, len(state))).astype(int)
    for x in state.x[chosen]:
        around = np.repeat(x[None], d + 1, axis=0)
        around[np.arange(d), free] += _DIFFERENCE * scale
        gradient = densities_with_gradients(target, around)[1][:, :, free]
        with np.errstate(over="ignore", invalid="ignore"):  # gradients may be infinite
            slope = gradient[:, 0] + beta * gradient[:, 1]
            total -= (slope[:d] - slope[d]) / _DIFFERENCE * scale
    total /= len(chosen)
    return 0.5 * (total + total.T), len(chosen) * (d + 1)


def shape_of_curvature(x: Floats, diagonal: Shape, found: Floats) -> tuple[Shape | None, float]:
    """Return the shape that a curvature gives to a population, and how much it can gain.

    Parameters
    ----------
    x : ndarray, shape (n, d)
        Population.
    diagonal : Shape
        Its mean and standard deviations.
    found : ndarray, shape (d, d)
        What `curvature` returned.

    Returns
    -------
    shape : Shape or None
        In every direction of the curvature, its inverse is the variance, or that of the population
        where this is smaller. None if it does not describe the population.
    gain : float
        How many times larger leapfrog steps with this shape can be than with the diagonal one.
    """
    if not np.isfinite(found).all():
        return None, 1.0
    precision, direction = np.linalg.eigh(found)
    variance = np.mean((diagonal.whitened(x) @ direction) ** 2, axis=0)
    inverse = 1.0 / np.maximum(precision, np.finfo(float).tiny)
    smaller = np.minimum(inverse, np.where(variance > 0.0, variance, 1.0))
    gain = float(np.sqrt(max(precision[-1], 1.0)))
    if not np.median(smaller / np.maximum(variance, smaller)) > _EXPLAINED:
        return None, gain
    root = direction * np.sqrt(smaller)
    # the triangular factor of root @ root.T, without forming a product that rounds to singular
    upper = np.linalg.qr(root.T, mode="r")
    factor = upper.T * np.sign(np.diag(upper))
    scale = diagonal.factor[:, :1]
    return Shape(diagonal.mean, scale * factor), gain
