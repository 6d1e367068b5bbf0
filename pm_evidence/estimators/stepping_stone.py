"""Ratios of normalising constants between neighbouring temperatures, one after another."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_choice
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.estimators.bar import Overlap, overlap
from pm_evidence.estimators.mbar import LEAST_COMMON
from pm_evidence.estimators.rts import verdict_of_weights
from pm_evidence.estimators.tempered import Tempered, concluded, no_support, tempered

Floats = NDArray[np.float64]
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
