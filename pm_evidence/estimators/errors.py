"""Standard errors of paths and chains, the tail of weights, and how an estimate is concluded.

A verdict is a row (status, message, statuses that it replaces; by default only ``"ok"``). Of the
verdicts on an estimate the first that applies is the one that is reported.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import hypot
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_kind, described, plain_array, whole_array
from pm_evidence.core.records import LogEvidence, Status

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Verdict = tuple[Status, str] | tuple[Status, str, Collection[str]]

_FEWEST_WEIGHTS, _FEWEST_VALUES = 30, 5
# A shape that is taken for larger ones: beyond it the mass of the tail is not known at all.
_LARGEST_SHAPE = 0.9
LARGEST_LOG = 700.0  # of a number that float64 holds


def pareto_k(log_weight: Floats) -> float:
    """Return the shape of the generalised Pareto tail of some weights.

    Vehtari, Simpson, Gelman, Yao and Gabry (2024), section 3.2; the same number as in arviz-stats,
    whose import takes longer than many runs. NaN for fewer than 30 weights above zero, and if the
    largest weights take five different values or fewer, which is no tail that a density could be
    fitted to.
    """
    alive = log_weight[np.isfinite(log_weight)]
    if alive.size < _FEWEST_WEIGHTS:
        return float("nan")
    n_tail = int(min(0.2 * alive.size, 3.0 * np.sqrt(alive.size)))
    largest = np.sort(alive)[-n_tail - 1 :]
    if len(np.unique(largest)) <= _FEWEST_VALUES:
        return float("nan")
    weights = np.exp(largest - largest[-1])
    return _shape(weights[1:] - weights[0])


def _shape(excess: Floats) -> float:
    """Return the shape of a generalised Pareto density of sorted numbers above zero.

    The posterior mean of Zhang and Stephens (2009), shrunk towards 1/2 as if by ten more numbers.
    """
    n = excess.size
    quartile = excess[int(n / 4 + 0.5) - 1]
    if not quartile > excess[0]:
        return float("nan")
    n_grid = 30 + int(np.sqrt(n))
    grid = 1.0 - np.sqrt(n_grid / (np.arange(1, n_grid + 1) - 0.5))
    with np.errstate(all="ignore"):
        grid = grid / (3.0 * quartile) + 1.0 / excess[-1]
        shapes = np.log1p(-grid[:, None] * excess).mean(axis=1)
        log_likelihood = n * (np.log(-grid / shapes) - shapes - 1.0)
        weight = np.exp(log_likelihood - log_likelihood.max())
        weight[weight < 10.0 * np.finfo(float).eps * weight.sum()] = 0.0
        best = (grid * weight).sum() / weight.sum()
        shape = np.log1p(-best * excess).mean()
    shape = (n * shape + 5.0) / (n + 10.0)
    return float("inf") if np.isnan(shape) else float(shape)


def is_heavy(k: float, n: int) -> bool:
    """Return whether ``n`` weights with this tail are too few for their mean to be known.

    The threshold is that of Vehtari et al. (2024), section 3.2.3: ``min(1 - 1 / log10(n), 0.7)``.
    """
    return not np.isnan(k) and bool(k > min(1.0 - 1.0 / np.log10(n), 0.7))


def unseen_tail(log_weight: Floats, log_mean: float) -> float:
    """Return the share of the mean weight that lies beyond the largest of some weights."""
    k = pareto_k(log_weight)
    if np.isnan(k):
        return 0.0
    shape = float(np.clip(k, 0.0, _LARGEST_SHAPE))
    largest = float(np.exp(min(log_weight.max() - log_mean, LARGEST_LOG)))
    return largest / (len(log_weight) * (1.0 - shape))


@dataclass(frozen=True, slots=True)
class Spread:
    """The standard error of an estimate, and how well it is known."""

    mcse: float  # standard error
    dof: float  # degrees of freedom that it was estimated with


def spread(*parts: tuple[Floats, Whole | None]) -> Spread:
    """Return the spread of a sum of independent parts.

    The sum over blocks of squared contributions, with Satterthwaite's (1946) degrees of freedom.
    """
    found: list[tuple[float, float]] = []
    for contributions, blocks in parts:
        if blocks is not None:
            _, index = np.unique(blocks, return_inverse=True)
            contributions = np.bincount(index, weights=contributions)
        n = len(contributions)
        if n < 2:
            return Spread(float("nan"), 1.0)
        with np.errstate(over="ignore"):  # an error without bounds is infinite
            found.append((float(np.sum(contributions**2)) * n / (n - 1), n - 1))
    return _summed(found)


def combined(*spreads: Spread) -> Spread:
    """Return the spread of a sum or difference of independent estimates.

    With the degrees of freedom of Welch (1947) and Satterthwaite (1946).
    """
    return _summed([(spread.mcse**2, max(spread.dof, 1.0)) for spread in spreads])


def _summed(parts: Sequence[tuple[float, float]]) -> Spread:
    """Return the spread of a sum of parts with these variances and degrees of freedom."""
    variance = sum(part for part, _ in parts)
    if not 0.0 < variance < np.inf:
        return Spread(float(np.sqrt(variance)), 1.0)
    lost = sum((part / variance) ** 2 / free for part, free in parts)
    return Spread(float(np.sqrt(variance)), 1.0 / lost if lost > 0.0 else np.inf)


def checked_blocks(name: str, blocks: ArrayLike | None, work: Floats) -> Whole | None:
    """Return the blocks of the paths as integers; raise ValueError if they do not fit the work."""
    if blocks is None:
        return None
    index: Whole = plain_array(name, blocks)
    if index.shape != work.shape or not np.issubdtype(index.dtype, np.integer):
        raise ValueError(
            f"{name} must have one integer per path, shape {work.shape}, got shape {index.shape} "
            f"and dtype {index.dtype}; leave it out where all paths are independent."
        )
    return index


def checked_pairs(name: str, pairs: Any, what: str, remedy: str) -> Sequence[Any]:
    """Return a list of pairs; raise ValueError if it is none."""
    if not isinstance(pairs, list | tuple) or not pairs:
        raise ValueError(
            f"{name} must be a list of at least one pair {what}, got {described(pairs)}; {remedy}."
        )
    for i, pair in enumerate(pairs):
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ValueError(f"{name}[{i}] must be a pair {what}, got {described(pair)}; {remedy}.")
    return pairs


def interval(value: float, spread: Spread) -> tuple[float, float]:
    """Return a 95 % Student interval around ``value`` (nats)."""
    half = half_width(spread)
    return value - half, value + half


def half_width(spread: Spread) -> float:
    """Return half the length of a 95 % Student interval; normal for infinite ``dof``."""
    # SciPy is imported where it is used: it takes as long as the rest of the package
    from scipy.special import ndtri, stdtrit

    if spread.dof == float("inf"):
        return float(ndtri(0.975)) * spread.mcse
    return float(stdtrit(max(spread.dof, 1.0), 0.975)) * spread.mcse


# An interval around the log of a mean is not symmetric if the error is larger than this, in nats.
LARGEST_MCSE = 0.5
# With fewer effective weights than this, their variance does not estimate the error of their mean.
_LEAST_EFFECTIVE = 5.0


def judged(estimate: LogEvidence, verdicts: Iterable[Verdict]) -> LogEvidence:
    """Return an estimate with the first verdict that applies to it."""
    for status, message, *replaced in verdicts:
        if estimate.status in (replaced[0] if replaced else (Status.OK,)):
            return replace(estimate, status=status, message=message)
    return estimate


def estimated(
    name: str, value: float, found: Spread, verdicts: Iterable[Verdict] = ()
) -> LogEvidence:
    """Return an estimate with its interval and the first of its verdicts."""
    ends = interval(value, found)
    plain = LogEvidence(value, found.mcse, name, Status.OK, *ends, "", found.dof)
    return judged(plain, verdicts)


def without_error(name: str, value: float, status: Status, message: str) -> LogEvidence:
    """Return an estimate that has no error."""
    return LogEvidence(value, float("nan"), name, status, message=message)


def of_weights(
    log_weight: Floats,
    effective: float,
    light: bool,
    what: str = "paths",
    where: str = "",
    remedy: str = "more draws, more stages or a better kernel",
) -> Iterator[Verdict]:
    """Yield the verdicts on a mean of weights; those that are ``light`` have no heavy tail."""
    n = log_weight.size
    if effective < min(_LEAST_EFFECTIVE, 0.5 * n):
        yield (
            Status.DOMINATED,
            f"a few {what} carry nearly all of the weight{where} (effective number "
            f"{effective:.1f} of {n}): the error cannot be trusted. Use {remedy}.",
        )
    k = float("nan") if light else pareto_k(log_weight)
    if is_heavy(k, n):
        yield (
            Status.HEAVY_TAIL,
            f"the weights{where} have a heavy tail (Pareto k {k:.2f} with {n} {what}), so that the "
            f"largest weights may not have occurred: the error cannot be trusted. Use {remedy}.",
        )


def of_size(mcse: float, remedy: str) -> Iterator[Verdict]:
    """Yield the verdict on an error that is large."""
    if mcse > LARGEST_MCSE:
        yield (
            Status.HIGH_VARIANCE,
            f"the error of {mcse:.2f} nats is too large for a symmetric interval. Use {remedy}.",
        )


def with_tail(estimate: LogEvidence, log_weight: Floats, reached: float = 0.0) -> LogEvidence:
    """Return an estimate with the error of the tail that its draws may not have reached."""
    if not np.isfinite(estimate.mcse):
        return estimate
    found = widened(estimate, max(unseen_tail(log_weight, estimate.value) - reached, 0.0))
    if found.mcse <= LARGEST_MCSE:
        return found
    message = (
        f"the error is {found.mcse:.2f} nats, because a large share of the evidence may lie where "
        "the fitted density produced no draws. Use more draws or another parametrisation."
    )
    return judged(found, [(Status.HIGH_VARIANCE, message)])


def difference(minuend: LogEvidence, subtrahend: LogEvidence) -> LogEvidence:
    """Return ``minuend - subtrahend`` in nats; errors add in quadrature.

    Parameters
    ----------
    minuend, subtrahend : LogEvidence
        Independent estimates.

    Returns
    -------
    LogEvidence
        Its status and message are those of the first of the two whose status is not ``"ok"``. Its
        interval is a Student interval whose degrees of freedom
        are those of Welch and Satterthwaite.

    Raises
    ------
    TypeError
        If one of them is no LogEvidence.
    """
    for name, estimate in (("minuend", minuend), ("subtrahend", subtrahend)):
        check_kind(name, estimate, LogEvidence, "pass an estimate, for example pe.log_evidence(dt)")
    value = minuend.value - subtrahend.value
    found = combined(*(Spread(each.mcse, each.dof) for each in (minuend, subtrahend)))
    worst = minuend if minuend.status != Status.OK else subtrahend
    return estimated(minuend.estimator, value, found, [(Status(worst.status), worst.message)])


def widened(estimate: LogEvidence, error: float) -> LogEvidence:
    """Return an estimate with a further, independent error in nats."""
    return with_error(estimate, hypot(estimate.mcse, error), estimate.dof)


def with_error(estimate: LogEvidence, mcse: float, dof: float) -> LogEvidence:
    """Return an estimate with another error in nats, and its degrees of freedom."""
    lower, upper = interval(estimate.value, Spread(mcse, dof))
    return replace(estimate, mcse=mcse, dof=dof, lower=lower, upper=upper)


# From this number of independent groups on, they are the clusters, whatever their length.
_ENOUGH_GROUPS = 8
# Batches of ten autocorrelation times underestimate the variance by about a twentieth (for AR(1)
# the variance of the mean of a batch of length b is too small by the factor 1 - tau / (2 b)).
_BATCH = 10.0
# An error from 64 clusters has a Student quantile that is 2 % above the normal one: more batches
# would gain less than longer ones do.
_MOST_CLUSTERS = 64


@dataclass(frozen=True, slots=True)
class Clusters:
    """Which values of a record depend on each other."""

    group: Whole  # shape (n,): independent group of every value, numbered from 0
    # shape (n,): position of every value in the record of its group. Values of one group at one
    # time are those of chains that exchange states.
    time: Whole
    length: Whole  # shape (n_groups,): number of times in the record of each group

    @property
    def n_groups(self) -> int:
        """Number of independent groups."""
        return len(self.length)

    def index(self, influence: Floats) -> Whole:
        """Return the cluster of every value, numbered from 0, shape ``(n,)``.

        With eight groups or more, the clusters are the groups. With fewer, the record of each group
        is cut into consecutive batches of equal length, to within one value, of at least ten
        autocorrelation times of the influence, but no more than 64 in all. The autocorrelation time
        is that of the sum over the chains of a group. A record that is too short for two such
        batches is not cut.
        """
        if self.n_groups >= _ENOUGH_GROUPS:
            return self.group
        time = autocorrelation_time(self._series(influence))
        n_batches = (self.length / (_BATCH * time)).astype(np.int64)
        n_batches = np.clip(n_batches, 1, max(_MOST_CLUSTERS // self.n_groups, 1))
        first = np.append(0, np.cumsum(n_batches)[:-1])
        batch: Whole = self.time * n_batches[self.group] // self.length[self.group]
        return first[self.group] + batch

    def spread(self, influence: Floats) -> Spread:
        """Return the standard error of an estimate, and how well it is known."""
        return spread((influence, self.index(influence)))

    def _series(self, influence: Floats) -> list[Floats]:
        """Return the sum of influence over the chains of each group, at every time."""
        start = np.append(0, np.cumsum(self.length))
        sums = np.bincount(start[self.group] + self.time, influence, minlength=start[-1])
        return np.split(sums, start[1:-1])


def clusters(shape: tuple[int, ...], groups: ArrayLike | None) -> Clusters:
    """Return the clusters of an array of values in the order of its ``ravel()``."""
    n_times, n_chains = shape if len(shape) == 2 else (1, *shape)
    if groups is None:
        label = np.arange(n_chains)
    else:
        label = whole_array("groups", groups)
        if label.shape != (n_chains,):
            of = "chain" if len(shape) == 2 else "value"
            raise ValueError(
                f"groups must have one whole number for each {of}, shape ({n_chains},), got shape "
                f"{label.shape}; leave it out where each {of} is independent."
            )
        _, label = np.unique(label, return_inverse=True)
    if len(shape) == 2:
        group = np.tile(label, n_times)
        time = np.repeat(np.arange(n_times), n_chains)
        return Clusters(group, time, np.full(label.max() + 1, n_times))
    length = np.bincount(label)
    order = np.argsort(label, kind="stable")
    time = np.empty(n_chains, dtype=np.int64)
    time[order] = np.arange(n_chains) - np.repeat(np.cumsum(length) - length, length)
    return Clusters(label, time, length)


def merged(index: Whole, most: int = 1024) -> Whole:
    """Return clusters of which neighbours are merged, so that there are no more than ``most``."""
    n = int(index.max()) + 1
    return index if n <= most else index * most // n


def unbiased(n: int) -> float:
    """Return the factor of a sum of ``n`` squared contributions; NaN for a single one."""
    return n / (n - 1) if n > 1 else float("nan")


def autocorrelation_time(series: list[Floats]) -> float:
    """Return the integrated autocorrelation time of records with a mean of zero.

    Geyer (1992), section 3.3: sums of two neighbouring autocovariances are added as long as they
    are positive, and none counts for more than the one before it (the initial monotone sequence).
    Autocovariances are averaged over the records, around zero: records that stay at different
    levels have a long autocorrelation time.
    """
    longest = max(len(values) for values in series)
    covariance = np.zeros(longest)
    for values in series:
        covariance[: len(values)] += _autocovariance(values)
    n_pairs = longest // 2
    if n_pairs == 0 or not covariance[0] > 0.0:
        return 1.0
    pairs = covariance[: 2 * n_pairs].reshape(n_pairs, 2).sum(axis=1) / covariance[0]
    ends = np.flatnonzero(~(pairs > 0.0))
    initial = pairs[: ends[0]] if ends.size else pairs
    return max(2.0 * float(np.minimum.accumulate(initial).sum()) - 1.0, 1.0)


def _autocovariance(values: Floats) -> Floats:
    """Return ``sum_t values[t] values[t + lag]`` for every lag, shape ``(n,)``."""
    n = len(values)
    transform = np.fft.rfft(values, 2 * n)
    covariance: Floats = np.fft.irfft(np.abs(transform) ** 2, 2 * n)[:n]
    return covariance
