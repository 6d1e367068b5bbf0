"""Schedules that do not depend on the model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import described, float_array

__all__ = ["SCHEDULES", "fixed_schedule", "linear", "refine", "sm08"]

Floats = NDArray[np.float64]

# Names of schedules that a user can ask for.
SCHEDULES = ("adaptive", "linear", "sm08", "gms13", "varopt")


def linear(n_stages: int) -> Floats:
    """Return ``n_stages`` equal steps from 0 to 1, shape ``(n_stages + 1,)``."""
    return np.linspace(0.0, 1.0, n_stages + 1)


def sm08(n_stages: int) -> Floats:
    """Return the schedule of Salakhutdinov and Murray (2008), scaled to ``n_stages``.

    Of its 14,500 steps, 500 divide [0, 0.5] evenly, 4,000 divide [0.5, 0.9] and 10,000 [0.9, 1].
    """
    shares = np.cumsum([0, 500, 4000, 10000]) / 14500
    return np.interp(np.linspace(0.0, 1.0, n_stages + 1), shares, [0.0, 0.5, 0.9, 1.0])


def refine(beta: Floats, n_stages: int) -> Floats:
    """Return a schedule of at least ``n_stages`` that divides every stage into equal parts.

    Parameters
    ----------
    beta : ndarray, shape (n_coarse + 1,)
        A schedule whose stages have about the same effective sample size.
    n_stages : int
        Number of stages wanted; the result has the next multiple of ``n_coarse``.
    """
    n_coarse = len(beta) - 1
    parts = max(1, -(-n_stages // n_coarse))
    positions = np.linspace(0.0, n_coarse, parts * n_coarse + 1)
    return np.interp(positions, np.arange(n_coarse + 1), beta)


def fixed_schedule(schedule: Sequence[float] | Floats) -> Floats:
    """Return the inverse temperatures that a user gives, after checking them.

    Raises
    ------
    ValueError
        If they are no numbers, or do not rise strictly from 0 to 1.
    """
    if isinstance(schedule, str):
        raise ValueError(_not_a_schedule(schedule))
    try:
        beta = float_array("schedule", schedule)
    except ValueError as error:
        raise ValueError(_not_a_schedule(schedule)) from error
    if beta.ndim == 0:
        raise ValueError(_not_a_schedule(schedule))
    if beta.ndim > 1 or beta.size < 2:
        raise ValueError(
            f"schedule must be a sequence of at least two inverse temperatures, got shape "
            f"{beta.shape}; [0, 0.5, 1] is a short one."
        )
    if not (beta[0] == 0.0 and beta[-1] == 1.0):
        raise ValueError(
            f"schedule must rise from 0 to 1, got {beta[0]} to {beta[-1]}; add the missing end."
        )
    falls = np.flatnonzero(~(np.diff(beta) > 0))
    if falls.size:
        k = int(falls[0]) + 1
        raise ValueError(
            f"schedule must rise from 0 to 1, got betas[{k}]={beta[k]} after {beta[k - 1]}; sort "
            "it and drop repeats."
        )
    return beta


def _not_a_schedule(schedule: Any) -> str:
    return (
        f"schedule must be {', '.join(map(repr, SCHEDULES))}, a schedule object such as "
        f"pe.VarOpt(), or an array of inverse temperatures, got {described(schedule)}; "
        "[0, 0.5, 1] is a short one."
    )
