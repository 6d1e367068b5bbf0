"""Schedules with a bound on the length of every step (Kiwaki 2015, Algorithm 3)."""

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_positive

__all__ = ["check_largest_step", "decelerated"]

Floats = NDArray[np.float64]

_ROUNDING = 1e-9  # a bound of 1 / n_stages, which only equal steps meet, must not fail by rounding


def decelerated(beta: Floats, largest_step: float) -> Floats:
    """Return a schedule with the same number of stages, none of which is longer than a bound.

    Parameters
    ----------
    beta : ndarray, shape (n_stages + 1,)
        A schedule that rises strictly from 0 to 1.
    largest_step : float
        Largest difference between successive inverse temperatures, at least ``1 / n_stages``.

    Returns
    -------
    ndarray, shape (n_stages + 1,)
        Strictly rising from 0 to 1. ``beta`` itself if no step of it is too long.

    Raises
    ------
    ValueError
        If the bound is not a finite number above 0, or so small that so many stages do not reach 1.

    Notes
    -----
    Kiwaki (2015), Algorithm 3, whose text is lost in part: steps are gone through in order; one
    that is too long is cut to the bound, and all later ones are stretched by a common factor, so
    that the schedule still ends at 1. Where the longest steps come last, nothing is left to
    stretch. The paper does not treat this case; here, all steps below the bound are then stretched
    by a common factor.

    Examples
    --------
    >>> import numpy as np
    >>> from pm_evidence.schedules.deceleration import decelerated
    >>> decelerated(np.array([0.0, 0.6, 0.7, 0.8, 1.0]), 0.4)
    array([0.  , 0.4 , 0.55, 0.7 , 1.  ])
    """
    check_largest_step(largest_step, len(beta) - 1)
    steps = np.diff(beta)
    if steps.max() <= largest_step:
        return beta
    bounded = _cut_in_order(steps, largest_step)
    if bounded[-1] > largest_step:
        bounded = _cut_together(bounded, largest_step)
    found = np.append(0.0, np.cumsum(bounded))
    found[-1] = 1.0
    return found


def check_largest_step(largest_step: float, n_stages: int | None) -> None:
    """Raise ValueError unless a bound is a number, and so many stages can reach 1 with it."""
    check_positive("largest_step", largest_step)
    if n_stages is not None and n_stages * largest_step < 1.0 - _ROUNDING:
        raise ValueError(
            f"largest_step must be at least 1 / n_stages = {1.0 / n_stages:.3g} for n_stages="
            f"{n_stages}, got {largest_step}; pass a larger one, or more stages."
        )


def _cut_in_order(steps: Floats, bound: float) -> Floats:
    """Cut steps that are too long, and stretch those after them; the last one may stay too long."""
    left = np.cumsum(steps[::-1])[::-1]  # by this step and all later ones, before they are changed
    bounded, remaining = np.empty_like(steps), 1.0
    for k, step in enumerate(steps[:-1]):
        bounded[k] = min(step * remaining / left[k], bound)
        remaining -= bounded[k]
    bounded[-1] = remaining
    return bounded


def _cut_together(steps: Floats, bound: float) -> Floats:
    """Cut steps that are too long, and stretch all others by a common factor."""
    cut = np.zeros(len(steps), bool)
    while (steps[~cut] > bound).any():
        cut |= steps > bound
        if cut.all():
            return np.full(len(steps), 1.0 / len(steps))
        rest = 1.0 - bound * cut.sum()
        steps = np.where(cut, bound, steps * (rest / steps[~cut].sum()))
    return steps
