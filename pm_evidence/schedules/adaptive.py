"""Schedules that are chosen stage by stage from the weights of a population."""

import numpy as np

from pm_evidence.core.contracts import Path, State
from pm_evidence.core.exceptions import NumericalError
from pm_evidence.core.growing import FindsSteps
from pm_evidence.core.numerics import ess_share

__all__ = ["next_beta", "no_support"]

# The smallest step is so small, and so much smaller that log weights differ by no more than this.
_SMALLEST_STEP, _LEAST_DIFFERENCE = 1e-14, 0.01
_BISECTIONS = 60


def no_support(n: int, part: str = "") -> NumericalError:
    """Return the error for a population of ``n`` members whose weights are all zero.

    Parameters
    ----------
    n : int
        Number of members.
    part : str
        The part of the data that gave them the weight zero, if it is not all data.
    """
    if part:
        return NumericalError(
            f"the log likelihood must be finite somewhere, but that of {part} is -inf at all {n} "
            "particles that are left. Look for data outside the likelihood's support, or use more "
            "draws, or another order."
        )
    return NumericalError(
        f"the log likelihood must be finite somewhere, but it is -inf at all {n} draws from the "
        "prior. Look for data outside the likelihood's support, or use more draws or a prior "
        "nearer to the data."
    )


def next_beta(path: Path, state: State, beta: float, ess: float) -> float:
    """Return the next inverse temperature at which the weights keep a given effective size.

    Parameters
    ----------
    path : Path
        The path.
    state : State
        A population at ``beta`` with equal weights.
    beta : float
        Inverse temperature of the population.
    ess : float
        Wanted effective sample size, as a share of the members whose weight is not zero.

    Raises
    ------
    NumericalError
        If all members have weight zero after the smallest step, or no step is small enough.
    """
    if isinstance(path, FindsSteps):
        return path.next_beta(state, beta, ess)
    left = 1.0 - beta
    smallest = _SMALLEST_STEP * left
    ratio = path.log_ratio(state, beta, beta + smallest)
    ratio = ratio[np.isfinite(ratio)]
    if ratio.size and np.ptp(ratio) > _LEAST_DIFFERENCE:  # data far more precise than the prior
        smallest *= _LEAST_DIFFERENCE / np.ptp(ratio)

    def share(step: float) -> float:
        return ess_share(path.log_ratio(state, beta, beta + step))

    alive = share(smallest)
    if alive == 0.0:
        raise no_support(len(state))
    wanted = ess * alive
    if share(left) >= wanted:
        return 1.0
    low, high = np.log(smallest), np.log(left)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if share(float(np.exp(middle))) >= wanted else (low, middle)
    step = float(np.exp(low))
    if beta + step <= beta:
        raise NumericalError(
            f"the schedule cannot advance beyond beta={beta}: the log likelihood varies too much "
            "there. Use more draws, or a prior nearer to the data."
        )
    return beta + step
