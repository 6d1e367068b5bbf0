"""Thermodynamic integration, and ratios between neighbouring temperatures (stepping stones)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_choice, float_array
from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.codegen.vectors import fast_exp
from pm_evidence.core.numerics import dot, log_mean_exp, total
from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.estimators.bar import Overlap, overlap
from pm_evidence.estimators.errors import Clusters, interval, spread
from pm_evidence.estimators.mbar import LEAST_COMMON
from pm_evidence.estimators.rts import Shares, shares_of, verdict_of_weights
from pm_evidence.estimators.tempered import (
    Tempered,
    checked_beta,
    concluded,
    no_support,
    tempered,
)

Floats = NDArray[np.float64]
# Largest error of a rule, in standard errors, that the interval still covers.
_COARSE = 1.0


RULES = ("riemann", "trapezoid", "corrected")


def riemann(beta: Floats) -> Floats:
    """Return the weights of function values in a right Riemann sum, shape of ``beta``."""
    return np.append(0.0, np.diff(beta))


def trapezoid(beta: Floats) -> Floats:
    """Return the weights of function values in the trapezoidal rule, shape of ``beta``."""
    step = np.diff(beta)
    sides: Floats = 0.5 * (np.append(step, 0.0) + np.append(0.0, step))
    return sides


def correction(beta: Floats) -> Floats:
    """Return the weights of variances of the energy in the correction of the trapezoidal rule.

    The slope of minus the mean energy is the variance of the energy, so that the trapezoidal rule
    for minus the mean energy lacks ``-sum_k (beta[k + 1] - beta[k])**2 (V[k + 1] - V[k]) / 12``
    in nats, with variances ``V`` in square nats (Friel, Hurn and Wyse 2014, Eq. 6).
    """
    square = np.diff(beta) ** 2 / 12.0
    terms: Floats = np.append(square, 0.0) - np.append(0.0, square)
    return terms


def weights(rule: str, beta: Floats) -> tuple[Floats, Floats]:
    """Return the weights of minus the mean energies and of the variances under a rule."""
    means = riemann(beta) if rule == "riemann" else trapezoid(beta)
    return means, correction(beta) if rule == "corrected" else np.zeros(len(beta))


@dataclass(frozen=True, slots=True)
class OfDrawn:
    """Moments of the energies of the states that were drawn at each temperature."""

    states: Tempered  # the states
    # shape (n_known,): temperatures with a state of finite energy, mean and variance of the finite
    # energies there, in nats and square nats
    beta: Floats
    mean: Floats
    variance: Floats
    # Log of the share of the density at ``beta = 0`` where the likelihood is not zero, in nats: a
    # jump of log Z that no integral of mean energies shows
    log_alive: float

    @classmethod
    def of(cls, states: Tempered) -> "OfDrawn":
        """Return the moments at the temperatures that have a state of finite energy."""
        alive = np.isfinite(states.energy)
        size, rung = len(states.beta), states.rung
        energy = np.where(alive, states.energy, 0.0)
        n = np.bincount(rung, alive, minlength=size)
        seen = np.flatnonzero(n)
        mean = np.bincount(rung, energy, minlength=size) / np.maximum(n, 1.0)
        square = np.where(alive, (energy - mean[rung]) ** 2, 0.0)
        variance = np.bincount(rung, square, minlength=size) / np.maximum(n - 1.0, 1.0)
        drawn = states.counts[0]
        with np.errstate(divide="ignore"):
            log_alive = float(np.log(n[0] / drawn)) if drawn else 0.0
        return cls(states, states.beta[seen], mean[seen], variance[seen], log_alive)

    def influence(self, of_mean: Floats, of_variance: Floats) -> Floats:
        """Return the influence of every state on a sum of moments; see `ti`."""
        states = self.states
        alive = np.isfinite(states.energy)
        known = np.searchsorted(self.beta, states.beta[states.rung])
        known = np.minimum(known, len(self.beta) - 1)  # of states that are not alive
        n = np.bincount(known, alive, minlength=len(self.beta))
        energy = np.where(alive, states.energy, self.mean[known])
        rest = energy - self.mean[known]
        mean_square = self.variance * (n - 1.0) / n
        square = np.where(alive, rest**2 - mean_square[known], 0.0)
        values: Floats = (of_variance[known] * square - of_mean[known] * rest) / n[known]
        zero = states.rung == 0
        if zero.any():
            values += zero * (alive / max((zero & alive).sum(), 1) - 1.0 / zero.sum())
        return values


@dataclass(frozen=True, slots=True)
class OfAll:
    """Moments over all states, weighted by the probability of each temperature given the state."""

    shares: Shares  # the states, and their probabilities of the temperatures
    alive: NDArray[np.bool_]  # shape (n,): which states have a finite energy
    log_density: Floats  # shape (n_alive,): log marginal density of those, as in `Shares`
    # shape (n_temperatures,): log of the sums over those of the shares, as in `Shares`
    log_sums: Floats
    beta: Floats  # as in `OfDrawn`
    mean: Floats
    variance: Floats
    log_alive: float

    @classmethod
    def of(cls, shares: Shares) -> "OfAll":
        """Return the moments at all temperatures."""
        alive = np.isfinite(shares.energy)
        energy, log_density = shares.energy[alive], shares.log_density[alive]
        log_sums, size = shares.log_sums.copy(), len(shares.beta)
        at_zero = np.exp(shares.relative(0))
        share = float(at_zero[alive].sum())
        log_sums[0] += np.log(share)
        mean, variance = np.empty((2, size))
        _moments(shares.beta, energy, log_density, log_sums, mean, variance)
        return cls(
            shares,
            alive,
            log_density,
            log_sums,
            shares.beta,
            mean,
            variance,
            float(np.log(share)),
        )

    def influence(self, of_mean: Floats, of_variance: Floats) -> Floats:
        """Return the influence of every state on a sum of moments; see `ti`."""
        at_zero = np.exp(self.shares.relative(0))
        values = -at_zero
        values[self.alive] += at_zero[self.alive] / np.exp(self.log_alive)
        added = np.zeros(int(self.alive.sum()))
        energy = self.shares.energy[self.alive]
        for_each = np.stack([self.mean, self.variance, of_mean, of_variance])
        _influence(self.beta, energy, self.log_density, self.log_sums, for_each, added)
        values[self.alive] += added
        return values - values.mean()


@njit
def _moments(
    beta: Any, energy: Any, log_density: Any, log_sums: Any, mean: Any, variance: Any
) -> None:
    weight, rest = np.empty(energy.size), np.empty(energy.size)
    for k in range(beta.size):
        for n in range(energy.size):
            weight[n] = fast_exp(-beta[k] * energy[n] - log_density[n] - log_sums[k])
        mean[k] = dot(weight, energy) / total(weight)
        for n in range(energy.size):
            rest[n] = (energy[n] - mean[k]) ** 2
        variance[k] = dot(weight, rest) / total(weight)


@njit
def _influence(
    beta: Any, energy: Any, log_density: Any, log_sums: Any, for_each: Any, out: Any
) -> None:
    for k in range(beta.size):
        mean, variance, of_mean, of_variance = for_each[:, k]
        for n in range(energy.size):
            weight = fast_exp(-beta[k] * energy[n] - log_density[n] - log_sums[k])
            rest = energy[n] - mean
            out[n] += weight * (of_variance * (rest * rest - variance) - of_mean * rest)


# The corrected rule with steps of half the length has an error 16 times smaller.
_HALVED = 16.0


def ti(
    beta: ArrayLike,
    energy: ArrayLike,
    rung: ArrayLike,
    *,
    rule: str = "corrected",
    groups: ArrayLike | None = None,
) -> LogEvidence:
    """Estimate log Z as the integral of minus the mean energy over inverse temperature.

    Parameters
    ----------
    beta, energy, rung, groups
        As for `mbar`.
    rule : str
        ``"riemann"``: right Riemann sum. ``"trapezoid"``: trapezoidal rule. ``"corrected"``: the
        trapezoidal rule with the correction by the variances of the energy.

    Returns
    -------
    LogEvidence
        The integral, with a Student interval from the groups. The interval does not include the
        error of the rule.

    Raises
    ------
    ValueError
        As `mbar`, and if there is no such rule.

    Notes
    -----
    Gelman and Meng (1998); Friel and Pettitt (2008); for the correction Friel, Hurn and Wyse
    (2014), Eq. 6. Unbiased for the sum that stands for the integral, but inconsistent: the error of
    the rule stays as the chains become longer. It is estimated for the Riemann sum and the
    trapezoidal rule from the better rules, and for the corrected one from twice the steps; if it
    exceeds the Monte Carlo error, the status is ``"coarse_schedule"``. Then use more temperatures,
    or `mbar`, which has no such error.

    The mean at a temperature without states is interpolated linearly between its neighbours, as in
    Carlson, Stinson, Pakman and Paninski (2016), section 4.3; the message says so. An end of the
    ladder without states takes the mean of its neighbour and has the status ``"coarse_schedule"``.
    Where the likelihood can be zero, log Z has a jump at ``beta = 0``, the log of the share of
    states there that have a finite energy, which is added.

    Examples
    --------
    >>> import numpy as np
    >>> rng, beta = np.random.default_rng(1), np.linspace(0.0, 1.0, 21) ** 2
    >>> rung = np.tile(np.arange(21), 1000)
    >>> x = rng.normal(size=21_000) / np.sqrt(1.0 + 9.0 * beta[rung])
    >>> ti(beta, 4.5 * x**2, rung)  # exactly -0.5 log(10) = -1.151
    LogEvidence(value=-1.136, mcse=0.012, estimator="ti", status="ok")
    """
    check_choice("rule", rule, RULES)
    states = tempered(beta, energy, rung, groups)
    if not states.alive:
        return no_support(_name("ti", rule))
    return _integral(_name("ti", rule), rule, states.beta, OfDrawn.of(states), states.clusters)


def ti_rb(
    beta: ArrayLike,
    energy: ArrayLike,
    log_z: ArrayLike,
    *,
    prior: ArrayLike | None = None,
    rule: str = "corrected",
    groups: ArrayLike | None = None,
) -> LogEvidence:
    """Integrate the mean energy, where every state counts at all temperatures.

    Parameters
    ----------
    beta, energy, log_z, prior
        As for `rts`: states of simulated tempering.
    rule : str
        As for `ti`.
    groups : array_like, optional
        As for `rts`.

    Returns
    -------
    LogEvidence
        The integral, with a Student interval from the groups. The interval does not include the
        error of the rule.

    Raises
    ------
    ValueError
        As `rts`, and if there is no such rule.

    Notes
    -----
    Carlson, Stinson, Pakman and Paninski (2016), Eq. 21: means of the energy over all states,
    weighted by the conditional probability of the temperature. For many temperatures the estimate
    is that of `rts` (their Appendix C), which has no error of a rule and is to be preferred. The
    conditional probabilities only hold for states of simulated tempering with these ``log_z`` and
    ``prior``.

    Examples
    --------
    >>> import numpy as np
    >>> rng, beta = np.random.default_rng(1), np.linspace(0.0, 1.0, 21) ** 2
    >>> log_z = -0.5 * np.log(1.0 + 9.0 * beta)
    >>> x = rng.normal(size=5000) / np.sqrt(1.0 + 9.0 * beta[rng.integers(21, size=5000)])
    >>> ti_rb(beta, 4.5 * x**2, log_z)  # exactly -0.5 log(10) = -1.151
    LogEvidence(value=-1.137, mcse=0.018, estimator="ti_rb", status="ok")
    """
    check_choice("rule", rule, RULES)
    joint, dependence = shares_of(beta, energy, log_z, prior, groups)
    name = _name("ti_rb", rule)
    if not joint.alive:
        return no_support(name)
    moments = OfAll.of(joint.rounds[0])
    return _integral(name, rule, moments.beta, moments, dependence, joint.verdict())


def _name(first: str, rule: str) -> str:
    return first if rule == "corrected" else f"{first}_{rule}"


def _integral(
    name: str,
    rule: str,
    beta: Floats,
    moments: OfDrawn | OfAll,
    clusters: Clusters,
    problem: tuple[Status, str] = (Status.OK, ""),
) -> LogEvidence:
    """Return the integral with its error; ``problem`` is what is wrong with the moments."""
    if not np.isfinite(moments.log_alive):
        return no_support(name)
    of_mean, of_variance = _on_ladder(rule, beta, moments.beta)
    value = moments.log_alive + float(of_variance @ moments.variance - of_mean @ moments.mean)
    found = clusters.spread(moments.influence(of_mean, of_variance))
    if problem[0] != Status.OK:
        return concluded(name, value, found, *problem)
    missing = np.setdiff1d(beta, moments.beta)
    filled = _filled(missing, len(beta))
    rule_error = _rule_error(rule, moments)
    coarse = abs(rule_error) > _COARSE * found.mcse
    if not coarse and not np.isin(missing, beta[[0, -1]]).any():
        return concluded(name, value, found, Status.OK, filled)
    message = filled
    if coarse:
        message += (
            f"the rule is wrong by about {rule_error:.2g} nats on {len(moments.beta)} "
            "temperatures, which mcse does not include. Use more temperatures, or mbar."
        )
    return concluded(name, value, found, Status.COARSE_SCHEDULE, message)


def _on_ladder(rule: str, beta: Floats, known: Floats) -> tuple[Floats, Floats]:
    """Return the weights of the known means and variances, where other means are interpolated.

    The correction takes the steps between temperatures with known variances.
    """
    of_mean, _ = weights(rule, beta)
    unit = np.eye(len(known))
    filled = np.stack([np.interp(beta, known, row) for row in unit], axis=1)
    return of_mean @ filled, weights(rule, known)[1]


def _rule_error(rule: str, moments: OfDrawn | OfAll) -> float:
    """Return by how much the integral under a rule is too large, in nats."""
    beta = moments.beta

    def integral(which: str, at: Floats | slice) -> float:
        points = beta[at]
        of_mean, of_variance = weights(which, points)
        return float(of_variance @ moments.variance[at] - of_mean @ moments.mean[at])

    everywhere = slice(None)
    if rule != "corrected":
        return integral(rule, everywhere) - integral("corrected", everywhere)
    if len(beta) < 3:
        return integral("corrected", everywhere) - integral("trapezoid", everywhere)
    second = np.unique(np.append(np.arange(0, len(beta), 2), len(beta) - 1))
    twice = integral("corrected", second)
    return (twice - integral("corrected", everywhere)) / (_HALVED - 1.0)


def _filled(missing: Floats, size: int) -> str:
    if not missing.size:
        return ""
    return (
        f"no state of finite energy was drawn at {missing.size} of {size} temperatures, whose mean "
        "energies are interpolated linearly or taken from the nearest temperature. "
    )


def power_posterior(
    beta: ArrayLike, energy: ArrayLike, variance: ArrayLike | None = None
) -> LogEvidence:
    """Estimate log Z as the integral of minus the mean energy over inverse temperature.

    Parameters
    ----------
    beta : array_like, shape (n_stages + 1,)
        Inverse temperatures, from 0 to 1.
    energy : array_like, shape (n_islands, n_stages + 1)
        Mean energy of each independent population at each inverse temperature, in nats; minus the
        mean log likelihood on a geometric path.
    variance : array_like, shape (n_islands, n_stages + 1), optional
        Variance of the energy there, from which the error of the trapezoidal rule is estimated.

    Returns
    -------
    LogEvidence
        The status is ``"coarse_schedule"`` if the error of the trapezoidal rule exceeds the Monte
        Carlo error.

    Raises
    ------
    ValueError
        If inverse temperatures do not rise, shapes do not fit, a value is not finite, or a variance
        is negative.

    Notes
    -----
    Friel and Pettitt (2008); with an estimated likelihood Tran et al., Eq. 9 to 11. The slope of
    the mean log likelihood is its variance, so the leading error of the trapezoidal rule is
    ``-sum (beta step)**2 (change of variance) / 12`` (Friel, Hurn and Wyse 2014, Eq. 6).

    Examples
    --------
    >>> import numpy as np
    >>> beta = np.linspace(0.0, 1.0, 11)
    >>> round(power_posterior(beta, np.stack([3.0 - beta, 3.1 - beta])).value, 6)
    -2.55
    """
    beta, energy, variance = _checked(beta, energy, variance)
    each = -energy @ trapezoid(beta)
    value = float(each.mean())
    error = spread(((each - value) / len(each), None))
    lower, upper = interval(value, error)
    status, message = Status.OK, ""
    if not np.isfinite(error.mcse):
        status = Status.NO_ERROR
        message = "a single population gives no error estimate. Use at least two."
    elif variance is not None:
        lacking = float(correction(beta) @ variance.mean(axis=0))
        if abs(lacking) > _COARSE * error.mcse:
            status = Status.COARSE_SCHEDULE
            message = (
                f"the trapezoidal rule over {beta.size - 1} stages is wrong by about "
                f"{-lacking:.2g} nats, which mcse does not include. Use more stages, or the "
                "estimate 'smc' of the same run."
            )
    return LogEvidence(
        value, error.mcse, "power_posterior", status, lower, upper, message, error.dof
    )


def _checked(
    beta: ArrayLike, energy: ArrayLike, variance: ArrayLike | None
) -> tuple[Floats, Floats, Floats | None]:
    """Return the arrays; raise ValueError where one is unusable."""
    beta = checked_beta(beta)
    given = {"energy": float_array("energy", energy)}
    if variance is not None:
        given["variance"] = float_array("variance", variance)
    for name, values in given.items():
        if values.ndim != 2 or values.shape[1] != beta.size or not len(values):
            raise ValueError(
                f"{name} must have shape (n_islands, {beta.size}), one value for each inverse "
                f"temperature, got {values.shape}; transpose it, or pass the same beta."
            )
        wrong = ~np.isfinite(values) if name == "energy" else ~(values >= 0.0)
        if wrong.any():
            rule = "finite" if name == "energy" else "at least 0"
            raise ValueError(
                f"{name} must be {rule}, got {values[wrong][0]}; find out why these stages failed."
            )
    return beta, given["energy"], given.get("variance")


Problem = tuple[Status, str]

# By chance so many energies of each of two equal densities lie apart in one of 200,000 records.
_ENOUGH = 10
# One of 100 pairs of neighbours exceeds it by chance in one of 1,500 records.
_LARGEST_MISFIT = 4.5


@dataclass(frozen=True, slots=True)
class _Step:
    """Estimated log ratio of two normalising constants, the upper temperature's to the lower's."""

    value: float  # the log ratio in nats
    influence: Floats  # shape (n,): influence of every state of the record on it, in nats
    problem: Problem = (Status.OK, "")  # what is wrong with it; ``"ok"`` if nothing is


def stepping_stone(
    beta: ArrayLike,
    energy: ArrayLike,
    rung: ArrayLike,
    *,
    direction: str = "forward",
    groups: ArrayLike | None = None,
) -> LogEvidence:
    """Estimate log Z as a sum of log ratios, each from the states of one temperature.

    Parameters
    ----------
    beta, energy, rung, groups
        As for `mbar`.
    direction : str
        ``"forward"``: the ratio between two neighbouring temperatures is the mean of
        ``exp(-step * energy)`` over states of the lower inverse temperature. ``"reverse"``: it is
        the inverse of the mean of ``exp(step * energy)`` over states of the higher one.

    Returns
    -------
    LogEvidence
        Sum of the log ratios, with a Student interval from the groups.

    Raises
    ------
    ValueError
        As `mbar`, and if ``direction`` is neither of the two.

    Notes
    -----
    Xie, Lewis, Fan, Kuo and Chen (2011), Eq. 11 to 14. Each mean is unbiased for its ratio, and the
    estimate is consistent; its log is biased downwards (forward) or upwards (reverse) by half the
    sum of the relative variances of the means. A temperature without states is passed over. The
    error is made from influence values that are summed over clusters, as for `mbar`. It cannot be
    trusted if the weights at one temperature are dominated by a few states (status
    ``"dominated"``) or have a heavy tail (``"heavy_tail"``), which happens sooner in reverse, or if
    the energies at two neighbouring temperatures lie apart (``"no_overlap"``).

    Where the likelihood can be zero, states of higher inverse temperatures do not show how often it
    is at ``beta = 0``: the reverse estimate takes that share from the states at ``beta = 0``.

    Examples
    --------
    >>> import numpy as np
    >>> rng, beta = np.random.default_rng(1), np.linspace(0.0, 1.0, 11)
    >>> rung = np.tile(np.arange(11), 1000)
    >>> x = rng.normal(size=11_000) / np.sqrt(1.0 + 9.0 * beta[rung])
    >>> stepping_stone(beta, 4.5 * x**2, rung)  # exactly -0.5 log(10) = -1.151
    LogEvidence(value=-1.148, mcse=0.017, estimator="stepping_stone", status="ok")
    """
    check_choice("direction", direction, ("forward", "reverse"))
    states = tempered(beta, energy, rung, groups)
    name = "stepping_stone" if direction == "forward" else "stepping_stone_reverse"
    if not states.alive:
        return no_support(name)
    seen = states.counts > 0
    steps = []
    for low, high in _pairs(states):
        source = low if direction == "forward" else high
        if seen[source]:
            steps.append((_forward if source == low else _reverse)(states, low, high))
        else:
            steps.append(_without_end(states, low, high))
    return _summed(name, states, steps)


def chained_bar(
    beta: ArrayLike, energy: ArrayLike, rung: ArrayLike, *, groups: ArrayLike | None = None
) -> LogEvidence:
    """Estimate log Z as a sum of Bennett's log ratios between neighbouring temperatures.

    Parameters
    ----------
    beta, energy, rung, groups
        As for `mbar`.

    Returns
    -------
    LogEvidence
        Sum of the log ratios, with a Student interval from the groups.

    Raises
    ------
    ValueError
        As `mbar`.

    Notes
    -----
    Bennett (1976) for each pair of neighbours; consistent. `mbar` uses all pairs at once and has a
    smaller variance where temperatures overlap with others than their neighbours; this estimate
    takes time in proportion to the number of states alone. The error counts that a state takes part
    in two ratios. It cannot be trusted where fewer than about ten states lie in the overlap of two
    neighbours (status ``"no_overlap"``), or where the energies of two neighbours contradict each
    other (``"inconsistent"``), as for `bar`.

    Examples
    --------
    >>> import numpy as np
    >>> rng, beta = np.random.default_rng(1), np.linspace(0.0, 1.0, 5)
    >>> rung = np.tile(np.arange(5), 1000)
    >>> x = rng.normal(size=5000) / np.sqrt(1.0 + 9.0 * beta[rung])
    >>> chained_bar(beta, 4.5 * x**2, rung)  # exactly -0.5 log(10) = -1.151
    LogEvidence(value=-1.133, mcse=0.023, estimator="chained_bar", status="ok")
    """
    states = tempered(beta, energy, rung, groups)
    if not states.alive:
        return no_support("chained_bar")
    seen = states.counts > 0
    steps, overlaps = [], []
    for low, high in _pairs(states):
        if seen[low] and seen[high]:
            shared = _overlap(states, low, high)
            overlaps.append((low, high, shared))
            steps.append(_both(states, low, high, shared))
        else:
            steps.append(_without_end(states, low, high))
    found = _summed("chained_bar", states, steps)
    return _contradicted(found, states, steps, overlaps) if found.status == Status.OK else found


def _pairs(states: Tempered) -> list[tuple[int, int]]:
    """Return pairs of neighbours among the ends and the temperatures with states."""
    needed = states.counts > 0
    needed[[0, -1]] = True
    k = np.flatnonzero(needed)
    return [(int(low), int(high)) for low, high in pairwise(k)]


def _summed(name: str, states: Tempered, steps: Sequence[_Step]) -> LogEvidence:
    value = float(sum(step.value for step in steps))
    if not np.isfinite(value):
        return no_support(name)
    found = states.clusters.spread(_total(steps))
    problems = [step.problem for step in steps if step.problem[0] != Status.OK]
    problems.sort(key=lambda problem: problem[0] != Status.NO_OVERLAP)  # stable: that one first
    return concluded(name, value, found, *(problems[0] if problems else (Status.OK, "")))


def _total(steps: Sequence[_Step]) -> Floats:
    total: Floats = np.sum([step.influence for step in steps], axis=0)
    return total


def _forward(states: Tempered, low: int, high: int) -> _Step:
    """Return the log mean of ``exp(-step * energy)`` over states of the lower temperature."""
    at = states.at(low)
    log_weight = -(states.beta[high] - states.beta[low]) * states.energy[at]
    value, influence = _log_mean(states, at, log_weight)
    return _Step(value, influence, _verdict(states, low, high, log_weight, value))


def _reverse(states: Tempered, low: int, high: int) -> _Step:
    """Return minus the log mean of ``exp(step * energy)`` over states of the higher one."""
    at = states.at(high)
    log_weight = (states.beta[high] - states.beta[low]) * states.energy[at]
    value, influence = _log_mean(states, at, log_weight)
    problem = _verdict(states, low, high, log_weight, value)
    value, influence = -value, -influence
    at_zero = states.at(0)
    if low == 0 and at_zero.size:  # the share of the prior where the likelihood is not zero
        alive = np.where(np.isfinite(states.energy[at_zero]), 0.0, -np.inf)
        share, of_share = _log_mean(states, at_zero, alive)
        value, influence = value + share, influence + of_share
    return _Step(value, influence, problem)


def _without_end(states: Tempered, low: int, high: int) -> _Step:
    """Return the log ratio between an end without states and its neighbour, from the latter."""
    empty, step = (high, _forward) if states.at(low).size else (low, _reverse)
    message = (
        f"no state was drawn at beta={states.beta[empty]:.4g}, and the others do not show what is "
        "typical there: the error cannot be trusted. Use longer chains or more temperatures."
    )
    return replace(step(states, low, high), problem=(Status.NO_OVERLAP, message))


def _overlap(states: Tempered, low: int, high: int) -> Overlap:
    """Return the overlap of two temperatures; work is the step times the energy."""
    step = states.beta[high] - states.beta[low]
    return overlap(*(step * states.energy[states.at(k)] for k in (low, high)))


def _contradicted(
    found: LogEvidence,
    states: Tempered,
    steps: Sequence[_Step],
    overlaps: Sequence[tuple[int, int, Overlap]],
) -> LogEvidence:
    """Return the estimate with a status if the energies of two neighbours contradict each other.

    The ratio of the densities of an energy at two temperatures is exponential in it, with the step
    in beta as its rate.
    """
    # SciPy is imported where it is used: it takes as long as the rest of the package
    from scipy.special import ndtr, stdtrit

    index = states.clusters.index(_total(steps))
    largest = stdtrit(max(found.dof, 1.0), ndtr(_LARGEST_MISFIT))
    for low, high, shared in overlaps:
        misfit = abs(shared.misfit(index[states.at(low)], index[states.at(high)]))
        if misfit > largest:
            message = (
                f"the energies at {_between(states, low, high)} contradict each other by "
                f"{misfit:.1f} standard errors: the chains have not reached equilibrium, or rung "
                "is wrong. Use longer chains, and leave out their beginning."
            )
            return replace(found, status=Status.INCONSISTENT, message=message)
    return found


def _both(states: Tempered, low: int, high: int, shared: Overlap) -> _Step:
    """Return Bennett's log ratio."""
    sides = states.at(low), states.at(high)
    influence = np.zeros(len(states.energy))
    problem = Status.OK, ""
    if np.isfinite(shared.log_evidence):
        if shared.n_common < min(LEAST_COMMON, 0.5 * shared.most_common):
            problem = (
                Status.NO_OVERLAP,
                (
                    f"the energies at {_between(states, low, high)} hardly overlap (about "
                    f"{shared.n_common:.1f} states could be of either): the error cannot be "
                    "trusted. Use temperatures between them, or longer chains."
                ),
            )
        if shared.n_common > 0.0:
            for at, part in zip(sides, shared.contributions(), strict=True):
                influence[at] = part
    return _Step(shared.log_evidence, influence, problem)


def _log_mean(states: Tempered, at: NDArray[np.intp], log_weight: Floats) -> tuple[float, Floats]:
    """Return the log of the mean weight, and the influence of every state of the record."""
    value, influence = log_mean_exp(log_weight), np.zeros(len(states.energy))
    if np.isfinite(value):
        influence[at] = (np.exp(log_weight - value) - 1.0) / at.size
    return value, influence


def _verdict(states: Tempered, low: int, high: int, log_weight: Floats, log_mean: float) -> Problem:
    """Return whether the weights of one step can be relied on."""
    where = _between(states, low, high)
    warm, cold = (states.energy[states.at(k)] for k in (low, high))
    if min(warm.size, cold.size) >= _ENOUGH and warm.min() > cold.max():
        return Status.NO_OVERLAP, (
            f"the energies at {where} do not overlap: the error cannot be trusted. Use "
            "temperatures between them, or longer chains."
        )
    if not np.isfinite(log_mean):
        return Status.OK, ""
    return verdict_of_weights(log_weight - log_mean, f"between {where}")


def _between(states: Tempered, low: int, high: int) -> str:
    return f"beta={states.beta[low]:.4g} and {states.beta[high]:.4g}"
