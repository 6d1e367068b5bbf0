"""Schedules: from rules, from weights, or learnt from the variance of the energy."""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_positive, described, float_array, real_number
from pm_evidence.core.contracts import FindsSteps, Path, State
from pm_evidence.core.exceptions import NumericalError
from pm_evidence.core.lazy import names_from
from pm_evidence.core.numerics import ess_share

if TYPE_CHECKING:  # they are imported when they are asked for
    from pm_evidence.samplers.planning import GMS13, SM08, Linear, VarOpt

__all__ = ["GMS13", "SM08", "Linear", "VarOpt"]

__getattr__, __dir__ = names_from(__name__, dict.fromkeys(__all__, "pm_evidence.samplers.planning"))

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


def fixed_schedule(schedule: Any) -> Floats:
    """Return the inverse temperatures that a user gives, after checking them."""
    try:
        is_one = not isinstance(schedule, str) and float_array("schedule", schedule).ndim > 0
    except ValueError:
        is_one = False
    if not is_one:
        raise ValueError(
            f"schedule must be {', '.join(map(repr, SCHEDULES))}, a schedule object such as "
            "pe.schedules.VarOpt(), or an array of inverse temperatures, got "
            f"{described(schedule)}; [0, 0.5, 1] is a short one."
        )
    return rising("schedule", schedule)


def rising(name: str, values: Any) -> Floats:
    """Return inverse temperatures; raise ValueError unless they rise from 0 to 1."""
    beta = float_array(name, values)
    if beta.ndim != 1 or beta.size < 2:
        raise ValueError(
            f"{name} must be a sequence of at least two inverse temperatures, got shape "
            f"{beta.shape}; [0, 0.5, 1] is a short one."
        )
    if not (beta[0] == 0.0 and beta[-1] == 1.0):
        raise ValueError(
            f"{name} must rise from 0 to 1, got {beta[0]} to {beta[-1]}; add the missing end."
        )
    falls = np.flatnonzero(~(np.diff(beta) > 0))
    if falls.size:
        k = int(falls[0]) + 1
        raise ValueError(
            f"{name} must rise from 0 to 1, got betas[{k}]={beta[k]} after {beta[k - 1]}; sort it "
            "and drop repeats."
        )
    return beta


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


# Share of the pieces over which variances are averaged, unless the user says otherwise.
SMOOTHING = 0.025


def varopt(
    beta: Floats,
    variance: Floats,
    n_stages: int,
    *,
    power: float = 0.5,
    smoothing: float = SMOOTHING,
    floor: float = 0.0,
) -> Floats:
    """Return a schedule whose steps have equal length in the metric ``V**power d beta``.

    With the power 1/2 it minimises the variance of the work if every move draws independently.

    Kiwaki (2015), Theorem 1: if every move draws independently, the variance of the work of K
    stages is ``integral beta'(t)**2 V(beta(t)) dt / K`` for large K. A first integral of his Eq. 9
    is that ``beta' sqrt(V)`` is constant, so that equal steps of the length
    ``integral sqrt(V) d beta`` solve it exactly and no differential equation has to be solved.

    Ising and Potts lattices use this function with the power 3/4 and a floor of 0.1: where their
    variance is large, relaxation is slow as well, so that steps have to be smaller still.
    """
    density = smoothed(np.maximum(variance, 0.0) ** power, smoothing)
    mean = np.average(density, weights=np.diff(beta))
    if not mean > 0.0:
        return np.linspace(0.0, 1.0, n_stages + 1)
    density = (1.0 - floor) * density + floor * mean
    length = np.append(0.0, np.cumsum(density * np.diff(beta)))
    found = np.interp(np.linspace(0.0, 1.0, n_stages + 1), length / length[-1], beta)
    found[0], found[-1] = 0.0, 1.0  # also if there is no variance at an end
    return found


def smoothed(values: Floats, share: float) -> Floats:
    """Return the moving mean of some values over a share of them, shape ``(m,)``.

    The first and the last value are repeated beyond the ends.
    """
    width = max(int(share * len(values)), 1)
    padded = np.pad(values, (width // 2, width - 1 - width // 2), mode="edge")
    return np.convolve(padded, np.full(width, 1.0 / width), mode="valid")


def check_smoothing(smoothing: Any) -> float:
    """Return the share of pieces that are averaged; raise ValueError if it is not one."""
    number = real_number(smoothing)
    if number is None or not 0.0 <= number < 1.0:
        raise ValueError(
            f"smoothing must be a number from 0 to below 1, got {described(smoothing)}; try "
            f"{SMOOTHING}."
        )
    return number


# Smallest share of the largest divergence that counts: an interval without any needs a stage too.
_LEAST = 1e-12


def gms13(knots: Floats, divergence: Floats, n_stages: int) -> Floats:
    """Return a schedule with equal steps between knots, and more stages where more changes.

    Grosse, Maddison and Salakhutdinov (2013): an interval of K_j linear stages adds
    ``divergence[j] / K_j`` to the variance of the work, so that stages are best divided in
    proportion to the square root of the divergence. Stages need not end at a knot here: the
    schedule is the linear interpolation, so that any number of stages is divided exactly.
    """
    largest = float(divergence.max())
    share = np.sqrt(np.maximum(divergence, _LEAST * largest)) if largest > 0.0 else np.diff(knots)
    reached = np.append(0.0, np.cumsum(share))
    return np.interp(np.linspace(0.0, 1.0, n_stages + 1), reached / reached[-1], knots)


def divergences_from_variance(knots: Floats, beta: Floats, variance: Floats) -> Floats:
    """Return the divergences of intervals from the variance of the energy along the path.

    On a path whose log density is linear in beta, the derivative of the mean energy is minus its
    variance, so that this is minus the change of the mean energy times the length of the interval.
    It is never negative, also for noisy variances, and on other paths it still is what an interval
    of equal steps adds to the variance of the work, times the number of steps.
    """
    integral = np.append(0.0, np.cumsum(np.diff(beta) * np.maximum(variance, 0.0)))
    return np.diff(knots) * np.diff(np.interp(knots, beta, integral))


_ROUNDING = 1e-9  # a bound of 1 / n_stages, which only equal steps meet, must not fail by rounding


def decelerated(beta: Floats, largest_step: float) -> Floats:
    """Return a schedule with the same number of stages, none of which is longer than a bound.

    Kiwaki (2015), Algorithm 3, whose text is lost in part: steps are gone through in order; one
    that is too long is cut to the bound, and all later ones are stretched by a common factor, so
    that the schedule still ends at 1. Where the longest steps come last, nothing is left to
    stretch. The paper does not treat this case; here, all steps below the bound are then stretched
    by a common factor.
    """
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


def predicted_variance(schedule: Floats, beta: Floats, variance: Floats) -> float:
    """Return the variance of the work of a schedule, to second order in its steps.

    Kiwaki (2015), Eq. 6 and 7, where moves draw independently from the density at each inverse
    temperature. It is exact on paths whose log density is linear in beta, such as
    ``prior * likelihood**beta``. Moves that leave states correlated increase the variance, so that
    the ratio of the variance of a run to this one shows how far its moves are from perfect.
    """
    piece = np.searchsorted(beta, schedule[:-1], side="right") - 1
    return float(np.sum(np.diff(schedule) ** 2 * variance[piece]))
