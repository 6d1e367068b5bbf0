"""Log Z from forward and reverse work together: Bennett's acceptance ratio, bridges, histograms."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_count, check_text, described, plain_array, real_number
from pm_evidence.core.numerics import log_sum_exp
from pm_evidence.core.random import resolve_seed
from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.estimators.errors import (
    Spread,
    Verdict,
    checked_blocks,
    checked_pairs,
    estimated,
    spread,
    with_tail,
    without_error,
)
from pm_evidence.estimators.jarzynski import checked_pair, checked_work

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


_MAX_ITERATIONS = 200
# With fewer paths in the overlap of both directions the interval does not have its coverage.
_LEAST_COMMON_PATHS = 10.0
# The two directions may violate the fluctuation theorem by this number of standard errors.
_LARGEST_MISFIT = 4.0
_ROUNDING = 1e-9
_NOTHING = 1e-100  # paths in the overlap
_NO_OVERLAP = (
    "forward and reverse work hardly overlap (about {:.1f} paths in the overlap): the error cannot "
    "be trusted. Use more stages, more steps or a better kernel."
)


def bar(
    work_forward: ArrayLike,
    work_reverse: ArrayLike,
    *,
    forward_blocks: ArrayLike | None = None,
    reverse_blocks: ArrayLike | None = None,
    reverse_size: float | None = None,
    name: str = "bar",
) -> LogEvidence:
    """Estimate log Z from the work of forward and reverse paths.

    Parameters
    ----------
    work_forward : array_like of float64, shape (n_forward,)
        Work of forward paths in nats; ``inf`` (weight zero) is legal and counts.
    work_reverse : array_like of float64, shape (n_reverse,)
        Work in nats that the *forward* direction does on the paths that reverse runs took.
    forward_blocks, reverse_blocks : array_like of int, optional
        Paths of one block may depend on each other; by default all are independent.
    reverse_size : float, optional
        Effective number of reverse paths, which decides how much the two directions count; by
        default their number. The estimate is consistent with any positive value.
    name : str
        Name of the estimator in the result.

    Returns
    -------
    LogEvidence
        Bennett's estimate with a Student interval.

    Raises
    ------
    ValueError
        If one direction has no work, or some work is NaN or minus infinity, or a reverse path
        has infinite work; if ``reverse_size`` is not positive and finite.

    Notes
    -----
    Bennett (1976); Habeck (2017), Eq. 14, for unequal numbers of paths. Consistent where reverse
    paths start from the target, with the smallest asymptotic variance of all estimators that only
    see the work; the error is that variance (Bennett's Eq. 10a; Shirts, Bair, Hooker and Pande
    2003), or its sum over blocks. It cannot be trusted if fewer than about ten paths lie in the
    overlap of both directions (status ``"no_overlap"``), or if the two directions contradict the
    fluctuation theorem, which says that ``p_F(w) / p_R(w) = exp(w + log Z)`` for the densities of
    forward and reverse work (``"inconsistent"``): then the reverse paths did not start from the
    target, or a kernel was not reversed.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> bar(rng.normal(3.0, 2.0, 1000), rng.normal(-1.0, 2.0, 1000))  # exactly -1
    LogEvidence(value=-0.999, mcse=0.049, estimator="bar", status="ok")
    """
    check_text("name", name)
    forward, reverse = checked_pair(work_forward, work_reverse)
    blocks = (
        checked_blocks("forward_blocks", forward_blocks, forward),
        checked_blocks("reverse_blocks", reverse_blocks, reverse),
    )
    size = real_number(len(reverse) if reverse_size is None else reverse_size)
    if size is None or not 0.0 < size < np.inf:
        raise ValueError(
            f"reverse_size must be a number above zero, got {described(reverse_size)}; leave it "
            "out if the reverse paths are independent."
        )
    shared = overlap(forward, reverse, size / len(reverse))
    value = shared.log_evidence
    if not np.isfinite(value):
        message = "every forward path has weight zero. Use more draws or more stages."
        return without_error(name, value, Status.NO_SUPPORT, message)
    if shared.n_common < _NOTHING:
        return without_error(name, value, Status.NO_OVERLAP, _NO_OVERLAP.format(0.0))
    found = spread(*zip(shared.contributions(), blocks, strict=True))
    return estimated(name, value, found, _verdicts(shared, found, blocks))


@dataclass(frozen=True, slots=True)
class Overlap:
    """The overlap of forward and reverse work."""

    log_evidence: float  # bennett's estimate of log Z in nats
    # shape (n_forward,): for every forward path, the probability that a path with this work is a
    # reverse one if it is picked at random from all paths of both directions
    forward: Floats
    # shape (n_reverse,): for every reverse path, the probability that such a path is a forward one
    reverse: Floats
    work_forward: Floats  # the work itself, in nats
    work_reverse: Floats
    # Effective number of reverse paths over their number: every reverse path counts as so many
    weight: float = 1.0

    @property
    def n_common(self) -> float:
        """Expected number of paths in the overlap of both directions."""
        return float(0.5 * (self.forward.sum() + self.weight * self.reverse.sum()))

    @property
    def most_common(self) -> float:
        """Number of paths in the overlap if both densities were the same."""
        n_forward, n_reverse = len(self.forward), self.weight * len(self.reverse)
        return n_forward * n_reverse / (n_forward + n_reverse)

    @property
    def share(self) -> float:
        """Overlap of the two work densities, from 0 to 1."""
        return self.n_common / self.most_common

    def contributions(self) -> tuple[Floats, Floats]:
        """Return the contribution of every path to the error of log Z, by direction."""
        return (
            (self.forward.mean() - self.forward) / -self.n_common,
            (self.reverse.mean() - self.reverse) * self.weight / self.n_common,
        )

    def misfit(
        self,
        forward_blocks: Whole | None = None,
        reverse_blocks: Whole | None = None,
    ) -> float:
        """Return by how many standard errors the work violates the fluctuation theorem.

        By the fluctuation theorem the log odds of a path's direction are its work plus log Z, with
        a slope of one; this is the score test of the slope.
        """
        n_forward = len(self.forward)
        work = np.concatenate([self.work_forward, self.work_reverse])
        is_reverse = np.arange(work.size) >= n_forward
        probability = np.concatenate([self.forward, 1.0 - self.reverse])  # of the reverse direction
        counts = np.where(is_reverse, self.weight, 1.0)
        weight = counts * probability * (1.0 - probability)
        total = float(weight.sum())
        if total == 0.0:  # the direction of every path is certain
            return 0.0
        work = np.where(weight > 0.0, work, 0.0)
        deviation = np.where(weight > 0.0, work - float(weight @ work) / total, 0.0)
        scores = counts * deviation * (is_reverse - probability)
        parts = [part - part.mean() for part in np.split(scores, [n_forward])]
        alone = spread(*((part, None) for part in parts))
        grouped = spread(*zip(parts, (forward_blocks, reverse_blocks), strict=True))
        inflation = grouped.mcse / alone.mcse if alone.mcse > 0.0 else 1.0
        error = float(np.sqrt(weight @ deviation**2)) * max(inflation, 1.0)
        # work that hardly varies agrees to within rounding
        return float(scores.sum()) / error if error > _ROUNDING * total else 0.0


def overlap(work_forward: Floats, work_reverse: Floats, weight: float = 1.0) -> Overlap:
    """Solve Bennett's equation and return the overlap of the directions; see `bar`."""
    value = bar_log_evidence(work_forward, work_reverse, weight)
    shift = np.log(len(work_forward) / (weight * len(work_reverse)))
    if not np.isfinite(value):
        nothing = np.zeros(len(work_forward)), np.zeros(len(work_reverse))
        return Overlap(value, *nothing, work_forward, work_reverse, weight)
    return Overlap(
        value,
        np.exp(_log_expit(-value - work_forward - shift)),
        np.exp(_log_expit(work_reverse + value + shift)),
        work_forward,
        work_reverse,
        weight,
    )


def bar_log_evidence(work_forward: Floats, work_reverse: Floats, weight: float = 1.0) -> float:
    """Return Bennett's estimate of log Z in nats; minus infinity where no forward path has weight.

    Every reverse path counts as ``weight`` paths.

    The logs of both sides of Bennett's equation are smooth and monotone in log Z: Newton's method
    with a bracket to fall back on finds the root where plain iteration stalls.
    """
    if not np.isfinite(work_forward).any():
        return -np.inf
    shift = float(np.log(len(work_forward) / (weight * len(work_reverse))))
    finite = work_forward[np.isfinite(work_forward)]
    # outside of this interval one side of the equation exceeds the other, however far the work of
    # single paths lies from that of the others
    ends = float(finite.min()), float(work_reverse.max())
    low, high = min(ends) - abs(shift) - 50.0, max(ends) + abs(shift) + 50.0
    # the root lies between the two exponential averages wherever both are known well
    free_energy = 0.5 * float(
        np.log(len(work_forward))
        - log_sum_exp(-work_forward)
        + log_sum_exp(work_reverse)
        - np.log(len(work_reverse))
    )
    for _ in range(_MAX_ITERATIONS):
        log_forward = _log_expit(free_energy - work_forward - shift)
        log_reverse = _log_expit(work_reverse - free_energy + shift)
        log_sums = log_sum_exp(log_forward), log_sum_exp(log_reverse) + float(np.log(weight))
        excess = log_sums[0] - log_sums[1]
        if excess > 0.0:
            high = free_energy
        else:
            low = free_energy
        weights = np.exp(log_forward - log_sums[0]), np.exp(log_reverse - log_sums[1]) * weight
        slope = 2.0 - float(weights[0] @ np.exp(log_forward) + weights[1] @ np.exp(log_reverse))
        step = -excess / slope if slope > 0.0 else np.inf
        following = free_energy + step
        if not low < following < high:
            following = 0.5 * (low + high)
        if abs(following - free_energy) <= 1e-13 * (1.0 + abs(free_energy)):
            break
        free_energy = following
    return -free_energy


def _log_expit(x: Floats) -> Floats:
    values: Floats = np.minimum(x, 0.0) - np.log1p(np.exp(-np.abs(x)))
    return values


def _verdicts(
    shared: Overlap, found: Spread, blocks: tuple[Whole | None, Whole | None]
) -> Iterator[Verdict]:
    # SciPy is imported where it is used: it takes as long as the rest of the package
    from scipy.special import ndtr, stdtrit

    if not np.isfinite(found.mcse):
        message = "a single independent path or block gives no error estimate. Use at least two."
        yield Status.NO_ERROR, message
    if shared.n_common < min(_LEAST_COMMON_PATHS, 0.5 * shared.most_common):
        yield Status.NO_OVERLAP, _NO_OVERLAP.format(shared.n_common)
    misfit = abs(shared.misfit(*blocks))
    if misfit > stdtrit(max(found.dof, 1.0), ndtr(_LARGEST_MISFIT)):
        yield (
            Status.INCONSISTENT,
            "forward and reverse work contradict each other (the fluctuation theorem is violated "
            f"by {misfit:.1f} standard errors): the reverse paths did not start from the "
            "posterior. Give them better starts by method=pe.methods.AIS(reverse_start=idata), "
            "more stages or a better kernel.",
        )


# The fit is poor, and the usual ratio is taken, if its error is this many times smaller, or if this
# share of the posterior draws lies beyond the largest weight.
_GROSS, _BEYOND = 2.0, 0.05
# With so many posterior draws beyond the largest weight, the usual ratio has no tail left to miss.
_ENOUGH = 10


def bridge(works: Sequence[tuple[ArrayLike, ArrayLike]]) -> LogEvidence:
    """Estimate log Z from the work between a fitted density and the target.

    Parameters
    ----------
    works : sequence of (forward, reverse)
        For every independent block, ``log q(x) - log f(x)`` in nats at draws from the fitted
        density ``q``, shape ``(n_forward,)``, and at draws from the target, shape ``(n_reverse,)``.

    Returns
    -------
    LogEvidence
        Bennett's estimate from all blocks together, with a Student interval from their spread: it
        needs no assumption on how the draws of one block depend on each other.

    Raises
    ------
    ValueError
        If there is no work on one side, some of it is NaN, or that of the target's draws infinite.

    Notes
    -----
    Meng and Wong (1996), with Bennett's (1976) ratio, which is optimal for independent draws. The
    draws from the posterior depend on each other, and may reach its tails too rarely. So they count
    as no more than the square root of the number of draws from the fitted density. The estimate is
    then importance sampling with weights that are cut off smoothly at the square root of the number
    of draws, the rate of Ionides (2008), and the posterior draws supply the part that is cut off.
    Where the fit is too poor for that, the usual ratio is taken. If the posterior draws miss a mode
    with large weights, the estimate misses its evidence too, and its error does not show it.

    The error is that from the spread of the blocks and, added in quadrature, the share of the
    evidence that is expected beyond the largest weight of the draws from the fitted density, by
    their Pareto tail, less the share of the posterior draws that lie there. Where the fit is poor,
    this is only added if hardly any posterior draws lie there.
    """
    forward, reverse = zip(*checked_works(works), strict=True)
    ratio = partial(
        bar,
        np.concatenate(forward),
        np.concatenate(reverse),
        forward_blocks=_blocks(forward),
        reverse_blocks=_blocks(reverse),
        name="bridge",
    )
    log_weight, at_target = -np.concatenate(forward), -np.concatenate(reverse)
    beyond = at_target > log_weight.max()
    found = whole = ratio()
    if whole.status == Status.OK and log_weight.size**0.5 < at_target.size:
        cut = ratio(reverse_size=log_weight.size**0.5)
        gross = cut.status == Status.NO_OVERLAP or whole.mcse * _GROSS < cut.mcse
        found = whole if gross or np.mean(beyond) > _BEYOND else cut
    if found is whole and np.sum(beyond) >= _ENOUGH:
        return whole
    return with_tail(found, log_weight, float(np.mean(beyond)))


def checked_works(works: Any) -> list[list[Floats]]:
    """Return the work of every block; raise ValueError if it is missing or not a pair."""
    remedy = "pass the work at draws of the fitted density, and of the target"
    found = [
        [_side(f"works[{i}][{k}]", values) for k, values in enumerate(pair)]
        for i, pair in enumerate(checked_pairs("works", works, "(forward, reverse)", remedy))
    ]
    for k, side in enumerate(("forward", "reverse")):
        if not sum(len(pair[k]) for pair in found):
            raise ValueError(
                f"works must hold {side} work of at least one block, got none; run the sampler."
            )
    return found


def _side(name: str, values: ArrayLike) -> Floats:
    """Return the work of a block on one side, where there may be none."""
    is_empty = np.shape(plain_array(name, values)) == (0,)
    return np.empty(0) if is_empty else checked_work(values, name=name)


def _blocks(parts: Sequence[Floats]) -> Whole:
    return np.repeat(np.arange(len(parts)), [len(part) for part in parts])


_BURN_IN = 200
_MOST_DRAWS = 10_000_000


def work_density(work_forward: ArrayLike, work_reverse: ArrayLike) -> tuple[Floats, Floats]:
    """Return the most likely distribution of forward work, given work of both directions.

    Parameters
    ----------
    work_forward : array_like of float64, shape (n_forward,)
        Work of forward paths in nats; ``inf`` is legal.
    work_reverse : array_like of float64, shape (n_reverse,)
        Work in nats that the *forward* direction does on the paths that reverse runs took.

    Returns
    -------
    work : ndarray, shape (n_forward + n_reverse,)
        All work values.
    log_probability : ndarray, same shape
        Log of the probability of each under the forward direction; they sum to one.

    Raises
    ------
    ValueError
        As `bar`.

    Notes
    -----
    Habeck (2017), Eq. 15. The fixed point of the histogram iterations is the root of Bennett's
    equation, so it is found by solving that.
    """
    forward, reverse = checked_pair(work_forward, work_reverse)
    work = np.concatenate([forward, reverse])
    return work, _log_probability(work, len(forward), _log_evidence(forward, reverse))


def _log_evidence(forward: Floats, reverse: Floats) -> float:
    """Return Bennett's estimate; raise ValueError if no forward path has any weight."""
    if not np.isfinite(forward).any():
        raise ValueError(
            "work_forward must hold a finite value, got none: every forward path has weight zero. "
            "Use more draws or more stages."
        )
    return overlap(forward, reverse).log_evidence


def _log_probability(work: Floats, n_forward: int, log_z: float) -> Floats:
    log_p: Floats = -np.logaddexp(np.log(n_forward), np.log(work.size - n_forward) - work - log_z)
    return log_p


def histogram(
    work_forward: ArrayLike,
    work_reverse: ArrayLike,
    *,
    forward_blocks: ArrayLike | None = None,
    reverse_blocks: ArrayLike | None = None,
) -> LogEvidence:
    """Estimate log Z by the mean weight under the pooled density of the work.

    Parameters
    ----------
    work_forward, work_reverse, forward_blocks, reverse_blocks
        As for `bar`.

    Returns
    -------
    LogEvidence
        Estimate with a Student interval.

    Raises
    ------
    ValueError
        As `bar`.

    Notes
    -----
    Habeck (2017), Eq. 16. The histogram is the nonparametric maximum likelihood estimate with two
    "temperatures", the two directions, so its log Z is Bennett's, and so are its error and status.
    In addition there are the density itself (`work_density`) and a posterior of log Z
    (`histogram_posterior`).
    """
    return bar(
        work_forward,
        work_reverse,
        forward_blocks=forward_blocks,
        reverse_blocks=reverse_blocks,
        name="histogram",
    )


def histogram_draws(
    work_forward: ArrayLike,
    work_reverse: ArrayLike,
    *,
    draws: int = 1000,
    random_seed: int | np.random.Generator | None = None,
) -> Floats:
    """Draw log Z from its posterior given the work of both directions.

    Parameters
    ----------
    work_forward : array_like of float64, shape (n_forward,)
        Work of independent forward paths in nats; ``inf`` is legal.
    work_reverse : array_like of float64, shape (n_reverse,)
        Work in nats that the *forward* direction does on independent reverse paths.
    draws : int
        Number of draws after burn-in.
    random_seed : int or numpy.random.Generator, optional
        Source of the draws.

    Returns
    -------
    ndarray, shape (draws,)
        Log Z in nats.

    Raises
    ------
    ValueError
        As `bar`; or if ``draws`` is not a positive integer.

    Notes
    -----
    Habeck (2017), section 5.3 and supplement: the probabilities of the observed work values are
    unknown, and a Gibbs sampler draws them under a flat prior on their logarithms, with two gamma
    variables that make them independent of each other. The sampler mixes slowly if the directions
    hardly overlap, in which case the status of `bar` is ``"no_overlap"``.
    """
    forward, reverse = checked_pair(work_forward, work_reverse)
    check_count("draws", draws, 1, _MOST_DRAWS)
    rng = np.random.default_rng(resolve_seed(random_seed))
    work = np.concatenate([forward, reverse])
    log_p = _log_probability(work, len(forward), _log_evidence(forward, reverse))
    log_z = np.empty(_BURN_IN + draws)
    for sweep in range(log_z.size):
        log_sum, log_weighted = log_sum_exp(log_p), log_sum_exp(log_p - work)
        log_u = np.log(rng.gamma(len(forward))) - log_sum
        log_v = np.log(rng.gamma(len(reverse))) - log_weighted
        log_p = np.log(rng.standard_exponential(work.size)) - np.logaddexp(log_u, log_v - work)
        # only ratios of probabilities matter
        log_p -= log_sum_exp(log_p)
        log_z[sweep] = log_sum_exp(log_p - work)
    return log_z[_BURN_IN:]


def histogram_posterior(
    work_forward: ArrayLike,
    work_reverse: ArrayLike,
    *,
    draws: int = 1000,
    random_seed: int | np.random.Generator | None = None,
) -> LogEvidence:
    """Estimate log Z by its posterior given the work of both directions.

    Parameters
    ----------
    work_forward, work_reverse, draws, random_seed
        As for `histogram_draws`.

    Returns
    -------
    LogEvidence
        Posterior mean, standard deviation and central 95 % interval.

    Raises
    ------
    ValueError
        As `histogram_draws`.

    Notes
    -----
    Habeck (2017), section 5.3. All paths are assumed to be independent; use `bar` with blocks if
    they are not.
    """
    log_z = histogram_draws(work_forward, work_reverse, draws=draws, random_seed=random_seed)
    asymptotic = bar(work_forward, work_reverse)
    low, high = np.quantile(log_z, (0.025, 0.975))
    return LogEvidence(
        float(log_z.mean()),
        float(log_z.std(ddof=1)) if draws > 1 else float("nan"),
        "histogram_posterior",
        asymptotic.status,
        float(low),
        float(high),
        asymptotic.message,
    )
