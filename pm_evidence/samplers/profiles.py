"""Peaks of the hyperparameters beside a known one, by their profile along each axis.

Effects and noise may explain the same data, so that the density of their scales has two peaks (Liu
and Hodges 2003), and one of them may lie where there are no prior draws. Between two peaks, the
density along an axis falls and rises again, if the other hyperparameters follow.
"""

import numpy as np
from numpy.typing import NDArray

from pm_evidence.samplers.conditional import ConditionalFit, ConditionalFits

__all__ = ["beyond"]

Floats = NDArray[np.float64]

# Steps along an axis, in prior standard deviations, or in units of the coordinate if that is
# shorter. Densities of logarithms of scales change little within a unit.
_STEPS = (1.0,) * 8 + (2.0,) * 4
# How far the other hyperparameters follow in one step, in the same units.
_FOLLOW = 2.0
# The density has risen if it is so many nats larger than its minimum. It does not rise again to a
# relevant height if it is so many nats lower than at the peak.
_RISE, _DEEP = 0.1, 1000.0


def beyond(conditional: ConditionalFits, peak: ConditionalFit) -> list[ConditionalFit]:
    """Return approximations from which the density of the hyperparameters rises to other peaks.

    Parameters
    ----------
    conditional : ConditionalFits
        Makes approximations.
    peak : ConditionalFit
        The one at a peak.

    Returns
    -------
    list of ConditionalFit
        One for each direction along an axis in which the density falls and rises again. It may
        rise to the same peak, if the others have not followed well.
    """
    found = list[ConditionalFit]()
    for axis in range(conditional.given.size):
        for sign in (-1.0, 1.0):
            highest = _after_valley(conditional, peak, axis, sign)
            if highest is not None:
                found.append(highest)
    return found


def _after_valley(
    conditional: ConditionalFits, peak: ConditionalFit, axis: int, sign: float
) -> ConditionalFit | None:
    """Return the highest approximation after a minimum along an axis; None if there is none."""
    unit = np.minimum(conditional.scale, 1.0)
    here, lowest, highest = peak, peak.log_mass, None
    for length in _STEPS:
        move = np.zeros(unit.size)
        move[axis] = sign * length * unit[axis]
        there = _best_of(conditional, here, (move, _followed(here, move, unit)))
        if there is None or there.log_mass < peak.log_mass - _DEEP:
            break
        here, lowest = there, min(lowest, there.log_mass)
        if here.log_mass > max(lowest + _RISE, -np.inf if highest is None else highest.log_mass):
            highest = here
    return highest


def _best_of(
    conditional: ConditionalFits, here: ConditionalFit, moves: tuple[Floats, Floats]
) -> ConditionalFit | None:
    """Return the approximation after the better one of two moves; None if none is found."""
    straight, followed = moves
    different = not np.array_equal(straight, followed)
    chosen = moves if different else (straight,)
    fits = [conditional.near(here, here.values + move) for move in chosen]
    return max((fit for fit in fits if fit), key=lambda fit: fit.log_mass, default=None)


def _followed(here: ConditionalFit, move: Floats, unit: Floats) -> Floats:
    """Return a move along an axis with which the others go to the maximum of the height."""
    others = move == 0.0
    followed = move.copy()
    curvature = -here.bend[np.ix_(others, others)]
    slope = (here.rise + here.bend @ move)[others]
    values, vectors = np.linalg.eigh(curvature * np.outer(unit[others], unit[others]))
    if (values > 0.0).all():
        newton = vectors @ (vectors.T @ (slope * unit[others]) / values)
        followed[others] = np.clip(newton, -_FOLLOW, _FOLLOW) * unit[others]
    return followed
