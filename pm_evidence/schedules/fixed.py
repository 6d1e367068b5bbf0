"""Schedules from rules alone, or from the weights of a population, and numbers of particles."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_positive, described, float_array
from pm_evidence.core.contracts import FindsSteps, Path, State
from pm_evidence.core.exceptions import NumericalError
from pm_evidence.core.numerics import ess_share

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
    """Return a schedule of at least ``n_stages`` that divides every stage into equal parts."""
    n_coarse = len(beta) - 1
    parts = max(1, -(-n_stages // n_coarse))
    positions = np.linspace(0.0, n_coarse, parts * n_coarse + 1)
    return np.interp(positions, np.arange(n_coarse + 1), beta)


def fixed_schedule(schedule: Sequence[float] | Floats) -> Floats:
    """Return the inverse temperatures that a user gives, after checking them."""
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


# The smallest step is so small, and so much smaller that log weights differ by no more than this.
_SMALLEST_STEP, _LEAST_DIFFERENCE = 1e-14, 0.01
_BISECTIONS = 60


def no_support(n: int, part: str = "") -> NumericalError:
    """Return the error for a population of ``n`` members whose weights are all zero."""
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
    """Return the next inverse temperature at which the weights keep a given effective size."""
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


@dataclass(frozen=True)
class Allocation:
    """Numbers of particles, and the variance of log Z that they lead to."""

    particles: Floats  # shape (n_stages,): number of particles at each stage; not rounded
    variance: float  # variance of log Z in square nats if the particles were independent


def optimal_allocation(variance: ArrayLike, n_particles: float) -> Allocation:
    """Return how many particles each stage should have.

    Parameters
    ----------
    variance : array_like, shape (n_stages,)
        Variance of the weights of each stage divided by their squared mean: ``1 / ess - 1``, with
        ``ess`` the effective sample size as a share of the particles.
    n_particles : float
        Number of particles of all stages together.

    Returns
    -------
    Allocation
        The particles of a stage are proportional to the square root of its variance.

    Raises
    ------
    ValueError
        If a variance is negative or not finite, or ``n_particles`` is not positive.

    Notes
    -----
    Fraccaro, Paquet and Winther (2016), Theorem 1, Eq. 6 and 7.

    Examples
    --------
    >>> from pm_evidence.estimators import optimal_allocation
    >>> best = optimal_allocation([0.04, 0.36], 1000)
    >>> best.particles, round(best.variance, 5)
    (array([250., 750.]), 0.00064)
    """
    values = float_array("variance", variance)
    if values.ndim != 1 or not values.size or not (np.isfinite(values) & (values >= 0.0)).all():
        raise ValueError(
            "variance must be one number of at least 0 for each stage, got "
            f"{values.tolist() if values.size < 10 else values.shape}; look for stages whose "
            "weights are all zero."
        )
    check_positive("n_particles", n_particles)
    root = np.sqrt(values)
    total = float(root.sum())
    if total == 0.0:
        return Allocation(np.full(len(root), n_particles / len(root)), 0.0)
    return Allocation(n_particles * root / total, total**2 / n_particles)


# Rejection rate that every pair counts with at least, so that no step becomes endless where
# hardly any exchange was rejected.
_LEAST_RATE = 1e-3


def rejection_rates(beta: Floats, energy: Floats, rung: NDArray[np.int16]) -> Floats:
    """Return the mean probability that an exchange is rejected, for each pair of neighbours.

    Their sum is an estimate of the communication barrier (Syed et al. 2022, Eq. 16).
    """
    found = [energy[rung == k] for k in range(len(beta))]
    rates = np.full(len(beta) - 1, np.nan)
    for k, (hotter, colder) in enumerate(pairwise(found)):
        n = min(len(hotter), len(colder))
        if n:
            log_ratio = (beta[k + 1] - beta[k]) * (colder[:n] - hotter[:n])
            rates[k] = -np.mean(np.expm1(np.minimum(log_ratio, 0.0)))
    return rates


def equalised(beta: Floats, rates: Floats, n_temperatures: int) -> Floats:
    """Return temperatures whose exchanges would be rejected equally often.

    Syed et al. (2022), Algorithm 4: equal steps of the cumulative rejection rate, which is
    interpolated linearly in beta.
    """
    length = np.append(0.0, np.cumsum(np.maximum(rates, _LEAST_RATE)))
    out: Floats = np.interp(np.linspace(0.0, length[-1], n_temperatures), length, beta)
    out[-1] = 1.0
    return out
