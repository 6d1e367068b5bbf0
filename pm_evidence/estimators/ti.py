"""Thermodynamic integration, and ratios between neighbouring temperatures (stepping stones)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_choice, float_array
from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.codegen.vectors import fast_exp
from pm_evidence.core.numerics import dot, log_mean_exp, total
from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.estimators.bar import Overlap, overlap
from pm_evidence.estimators.errors import Clusters, Verdict, estimated, judged, spread
from pm_evidence.estimators.mbar import LEAST_COMMON
from pm_evidence.estimators.rts import Shares, of_states, shares_of
from pm_evidence.estimators.tempered import (
    Tempered,
    concluded,
    no_support,
    tempered,
)
from pm_evidence.schedules import rising

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
class Moments:
    """Moments of the energies at the temperatures where they are known."""

    # shape (n_known,): temperatures, and mean and variance of the finite energies there, in nats
    # and square nats
    beta: Floats
    mean: Floats
    variance: Floats
    # Log of the share of the density at ``beta = 0`` where the likelihood is not zero, in nats: a
    # jump of log Z that no integral of mean energies shows
    log_alive: float
    # Returns the influence of every state on ``of_variance @ variance - of_mean @ mean``, given
    # ``of_mean`` and ``of_variance``, and on ``log_alive``
    influence: Callable[[Floats, Floats], Floats]

    def integral(self, rule: str, at: Any = slice(None)) -> float:
        """Return the integral under a rule, without the jump, from some of the temperatures."""
        of_mean, of_variance = weights(rule, self.beta[at])
        return float(of_variance @ self.variance[at] - of_mean @ self.mean[at])


def moments_of_drawn(states: Tempered) -> Moments:
    """Return moments of the states that were drawn at each temperature with a finite energy."""
    alive, rung, size = np.isfinite(states.energy), states.rung, len(states.beta)
    energy = np.where(alive, states.energy, 0.0)
    n = np.bincount(rung, alive, minlength=size)
    mean = np.bincount(rung, energy, minlength=size) / np.maximum(n, 1.0)
    rest = np.where(alive, energy - mean[rung], 0.0)
    variance = np.bincount(rung, rest**2, minlength=size) / np.maximum(n - 1.0, 1.0)
    seen, drawn = np.flatnonzero(n), states.counts[0]
    with np.errstate(divide="ignore"):
        log_alive = float(np.log(n[0] / drawn)) if drawn else 0.0

    def influence(of_mean: Floats, of_variance: Floats) -> Floats:
        known = np.minimum(np.searchsorted(seen, rung), len(seen) - 1)  # any if not alive
        mean_square = variance[seen] * (n[seen] - 1.0) / n[seen]
        square = np.where(alive, rest**2 - mean_square[known], 0.0)
        values: Floats = of_variance[known] * square - of_mean[known] * rest
        values /= n[seen][known]
        if drawn:
            zero = rung == 0
            values += zero * (alive / max(n[0], 1.0) - 1.0 / drawn)
        return values

    return Moments(states.beta[seen], mean[seen], variance[seen], log_alive, influence)


def moments_of_all(shares: Shares) -> Moments:
    """Return moments over all states, weighted by the probability of each temperature."""
    alive, at_zero = np.isfinite(shares.energy), np.exp(shares.relative(0))
    alive_at_zero = float(at_zero[alive].sum())
    log_sums, (mean, variance) = shares.log_sums.copy(), np.empty((2, len(shares.beta)))
    log_sums[0] += np.log(alive_at_zero)
    arrays = shares.beta, shares.energy[alive], shares.log_density[alive], log_sums
    _moments(*arrays, mean, variance)

    def influence(of_mean: Floats, of_variance: Floats) -> Floats:
        values, added = -at_zero, np.zeros(int(alive.sum()))
        _influence(*arrays, np.stack([mean, variance, of_mean, of_variance]), added)
        values[alive] += at_zero[alive] / alive_at_zero
        values[alive] += added
        return values - values.mean()

    return Moments(shares.beta, mean, variance, float(np.log(alive_at_zero)), influence)


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
    return _integral("ti", rule, states.beta, moments_of_drawn(states), states.clusters, ())


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
    if not joint.alive:
        return no_support(_name("ti_rb", rule))
    moments = moments_of_all(joint.rounds[0])
    return _integral("ti_rb", rule, moments.beta, moments, dependence, joint.verdicts())


def _name(first: str, rule: str) -> str:
    return first if rule == "corrected" else f"{first}_{rule}"


def _integral(
    first: str,
    rule: str,
    beta: Floats,
    moments: Moments,
    clusters: Clusters,
    problems: Iterable[Verdict],
) -> LogEvidence:
    """Return the integral with its error; ``problems`` say what is wrong with the moments."""
    name = _name(first, rule)
    if not np.isfinite(moments.log_alive):
        return no_support(name)
    of_mean, of_variance = _on_ladder(rule, beta, moments.beta)
    value = moments.log_alive + float(of_variance @ moments.variance - of_mean @ moments.mean)
    found = clusters.spread(moments.influence(of_mean, of_variance))
    missing = np.setdiff1d(beta, moments.beta)
    filled = (
        f"no state of finite energy was drawn at {missing.size} of {len(beta)} temperatures, whose "
        "mean energies are interpolated linearly or taken from the nearest temperature. "
        if missing.size
        else ""
    )
    rule_error = _rule_error(rule, moments)
    of_rule: list[Verdict] = []
    if abs(rule_error) > _COARSE * found.mcse:
        message = (
            f"{filled}the rule is wrong by about {rule_error:.2g} nats on {len(moments.beta)} "
            "temperatures, which mcse does not include. Use more temperatures, or mbar."
        )
        of_rule.append((Status.COARSE_SCHEDULE, message))
    elif np.isin(missing, beta[[0, -1]]).any():
        of_rule.append((Status.COARSE_SCHEDULE, filled))
    estimate = concluded(name, value, found, chain(problems, of_rule))
    return judged(estimate, [(Status.OK, filled)])


def _on_ladder(rule: str, beta: Floats, known: Floats) -> tuple[Floats, Floats]:
    """Return the weights of the known means and variances, where other means are interpolated.

    The correction takes the steps between temperatures with known variances.
    """
    of_mean, _ = weights(rule, beta)
    unit = np.eye(len(known))
    filled = np.stack([np.interp(beta, known, row) for row in unit], axis=1)
    return of_mean @ filled, weights(rule, known)[1]


def _rule_error(rule: str, moments: Moments) -> float:
    """Return by how much the integral under a rule is too large, in nats."""
    n, best = len(moments.beta), moments.integral("corrected")
    if rule != "corrected":
        return moments.integral(rule) - best
    if n < 3:
        return best - moments.integral("trapezoid")
    second = np.unique(np.append(np.arange(0, n, 2), n - 1))
    return (moments.integral("corrected", second) - best) / (_HALVED - 1.0)


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
    lacking = 0.0 if variance is None else float(correction(beta) @ variance.mean(axis=0))
    verdicts: list[Verdict] = []
    if not np.isfinite(error.mcse):
        message = "a single population gives no error estimate. Use at least two."
        verdicts.append((Status.NO_ERROR, message))
    if abs(lacking) > _COARSE * error.mcse:
        message = (
            f"the trapezoidal rule over {beta.size - 1} stages is wrong by about {-lacking:.2g} "
            "nats, which mcse does not include. Use more stages, or the estimate 'smc' of the same "
            "run."
        )
        verdicts.append((Status.COARSE_SCHEDULE, message))
    return estimated("power_posterior", value, error, verdicts)


def _checked(
    beta: ArrayLike, energy: ArrayLike, variance: ArrayLike | None
) -> tuple[Floats, Floats, Floats | None]:
    """Return the arrays; raise ValueError where one is unusable."""
    beta = rising("beta", beta)
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


# By chance so many energies of each of two equal densities lie apart in one of 200,000 records.
_ENOUGH = 10
# One of 100 pairs of neighbours exceeds it by chance in one of 1,500 records.
_LARGEST_MISFIT = 4.5


@dataclass(frozen=True, slots=True)
class _Step:
    """Estimated log ratio of two normalising constants, the upper temperature's to the lower's."""

    value: float  # the log ratio in nats
    influence: Floats  # shape (n,): influence of every state of the record on it, in nats
    problems: tuple[Verdict, ...] = ()  # what is wrong with it


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
    forward, seen, steps = direction == "forward", states.counts > 0, []
    for low, high in _pairs(states):
        if seen[low if forward else high]:
            steps.append(_one_way(states, low, high, forward))
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
    seen, steps, overlaps = states.counts > 0, [], []
    for low, high in _pairs(states):
        if seen[low] and seen[high]:
            step = states.beta[high] - states.beta[low]  # whose product with the energy is work
            shared = overlap(*(step * states.energy[states.at(k)] for k in (low, high)))
            overlaps.append((low, high, shared))
            steps.append(_both(states, low, high, shared))
        else:
            steps.append(_without_end(states, low, high))
    found = _summed("chained_bar", states, steps)
    return judged(found, _of_contradictions(found, states, steps, overlaps))


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
    problems = [problem for step in steps for problem in step.problems]
    problems.sort(key=lambda problem: problem[0] != Status.NO_OVERLAP)  # stable: that one first
    return concluded(name, value, states.clusters.spread(_total(steps)), problems)


def _total(steps: Sequence[_Step]) -> Floats:
    total: Floats = np.sum([step.influence for step in steps], axis=0)
    return total


def _one_way(states: Tempered, low: int, high: int, forward: bool) -> _Step:
    """Return a log ratio from one temperature.

    It is the log mean of ``exp(-step * energy)`` over states of the lower one or, in reverse, minus
    that of ``exp(step * energy)`` over states of the higher one.
    """
    at, sign = (states.at(low), 1.0) if forward else (states.at(high), -1.0)
    log_weight = -sign * (states.beta[high] - states.beta[low]) * states.energy[at]
    mean, of_mean = _log_mean(states, at, log_weight)
    problems = tuple(_of_step(states, low, high, log_weight, mean))[:1]
    value, influence = sign * mean, sign * of_mean
    at_zero = states.at(0)
    if not forward and low == 0 and at_zero.size:  # the prior's share where there is a likelihood
        alive = np.where(np.isfinite(states.energy[at_zero]), 0.0, -np.inf)
        share, of_share = _log_mean(states, at_zero, alive)
        value, influence = value + share, influence + of_share
    return _Step(value, influence, problems)


def _without_end(states: Tempered, low: int, high: int) -> _Step:
    """Return the log ratio between an end without states and its neighbour, from the latter."""
    forward = bool(states.at(low).size)
    empty = high if forward else low
    message = (
        f"no state was drawn at beta={states.beta[empty]:.4g}, and the others do not show what is "
        "typical there: the error cannot be trusted. Use longer chains or more temperatures."
    )
    step = _one_way(states, low, high, forward)
    return replace(step, problems=((Status.NO_OVERLAP, message),))


def _of_contradictions(
    found: LogEvidence,
    states: Tempered,
    steps: Sequence[_Step],
    overlaps: Sequence[tuple[int, int, Overlap]],
) -> Iterator[Verdict]:
    """Yield the verdict on neighbours whose energies contradict each other.

    The ratio of the densities of an energy at two temperatures is exponential in it, with the step
    in beta as its rate.
    """
    # SciPy is imported where it is used: it takes as long as the rest of the package
    from scipy.special import ndtr, stdtrit

    index = states.clusters.index(_total(steps))
    largest = stdtrit(max(found.dof, 1.0), ndtr(_LARGEST_MISFIT))
    for low, high, shared in overlaps if found.status == Status.OK else ():
        misfit = abs(shared.misfit(index[states.at(low)], index[states.at(high)]))
        if misfit > largest:
            yield (
                Status.INCONSISTENT,
                f"the energies at {_between(states, low, high)} contradict each other by "
                f"{misfit:.1f} standard errors: the chains have not reached equilibrium, or rung "
                "is wrong. Use longer chains, and leave out their beginning.",
            )


def _both(states: Tempered, low: int, high: int, shared: Overlap) -> _Step:
    """Return Bennett's log ratio."""
    influence = np.zeros(len(states.energy))
    if not np.isfinite(shared.log_evidence):
        return _Step(shared.log_evidence, influence)
    if shared.n_common > 0.0:
        for k, part in zip((low, high), shared.contributions(), strict=True):
            influence[states.at(k)] = part
    if shared.n_common < min(LEAST_COMMON, 0.5 * shared.most_common):
        message = (
            f"the energies at {_between(states, low, high)} hardly overlap (about "
            f"{shared.n_common:.1f} states could be of either): the error cannot be trusted. Use "
            "temperatures between them, or longer chains."
        )
        return _Step(shared.log_evidence, influence, ((Status.NO_OVERLAP, message),))
    return _Step(shared.log_evidence, influence)


def _log_mean(states: Tempered, at: NDArray[np.intp], log_weight: Floats) -> tuple[float, Floats]:
    """Return the log of the mean weight, and the influence of every state of the record."""
    value, influence = log_mean_exp(log_weight), np.zeros(len(states.energy))
    if np.isfinite(value):
        influence[at] = (np.exp(log_weight - value) - 1.0) / at.size
    return value, influence


def _of_step(
    states: Tempered, low: int, high: int, log_weight: Floats, log_mean: float
) -> Iterator[Verdict]:
    """Yield the verdicts on the weights of one step."""
    where = _between(states, low, high)
    warm, cold = (states.energy[states.at(k)] for k in (low, high))
    if min(warm.size, cold.size) >= _ENOUGH and warm.min() > cold.max():
        yield (
            Status.NO_OVERLAP,
            f"the energies at {where} do not overlap: the error cannot be trusted. Use "
            "temperatures between them, or longer chains.",
        )
    if np.isfinite(log_mean):
        yield from of_states(log_weight - log_mean, f"between {where}")


def _between(states: Tempered, low: int, high: int) -> str:
    return f"beta={states.beta[low]:.4g} and {states.beta[high]:.4g}"
