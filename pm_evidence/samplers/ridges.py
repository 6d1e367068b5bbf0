"""Directions of ridges of a posterior density, and whether the mass along one grows without end."""

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape
from pm_evidence.kernels.ascent import Climbs
from pm_evidence.samplers.local_fit import Local

__all__ = ["directions", "grows", "towards"]

Floats = NDArray[np.float64]

# Endless ascents follow the same ridge if the cosine between their directions exceeds this; largest
# number of ridges.
_SAME_RIDGE, _RIDGES = 0.8, 3
# A ridge leads towards a peak if, in at least so many dimensions, the mean square of the draws'
# distances from the nearest peak exceeds that of a normal distribution by this much, and by this
# share of it.
_MANY, _APART, _SHARE_APART = 60, 16.0, 0.2
# The posterior counts as unbounded if the log mass along a ridge still rises at its end, and is so
# many nats above that at its start and above the log evidence.
_UNBOUNDED = 3.0


def directions(followed: Climbs, shape: Shape) -> list[tuple[Floats, float]]:
    """Return the directions of endless ascents, as unit vectors, and how far the ascents went."""
    found: list[tuple[Floats, float]] = []
    endless = ~followed.settled & np.isfinite(followed.log_density)
    for x in followed.x[endless]:
        along = shape.whitened(x[None])[0]
        reach = float(np.linalg.norm(along))
        along = along / max(reach, 1e-300)
        if not any(abs(along @ known) > _SAME_RIDGE for known, _ in found):
            found.append((along, reach))
    return found[:_RIDGES]


def towards(peaks: list[Local], draws: Floats, shape: Shape) -> list[tuple[Floats, float]]:
    """Return the direction of the first peak, as a unit vector, if draws are near no peak at all.

    In many dimensions the peak of a density with a scale as a variable has hardly any mass.
    """
    d = draws.shape[1]
    if not peaks or d < _MANY:
        return []
    squares = [peak.fit.shape.squared_distances(draws) for peak in peaks]
    if np.min(squares, axis=0).mean() < d + max(_APART, _SHARE_APART * d):
        return []
    along = shape.whitened(peaks[0].fit.shape.mean[None])[0]
    reach = float(np.linalg.norm(along))
    return [(along / max(reach, 1e-300), reach)]


def grows(ridge: list[Local], log_evidence: float) -> bool:
    """Return whether the mass grows up to the end of a ridge, far beyond start and evidence.

    A ridge whose mass falls again leads to a peak, which may be far from the draws.
    """
    if len(ridge) < 2:
        return False
    mass = np.array([local.log_mass for local in ridge])
    return bool(mass.max() == mass[-1] > max(log_evidence, mass[0]) + _UNBOUNDED)
