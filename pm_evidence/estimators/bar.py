"""Bennett's acceptance ratio: forward and reverse work together."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_text, described, float_array, real_number
from pm_evidence.core.numerics import log_sum_exp
from pm_evidence.core.records import LogEvidence
from pm_evidence.core.statuses import Status
from pm_evidence.estimators.intervals import interval
from pm_evidence.estimators.jarzynski import checked_work
from pm_evidence.estimators.standard_errors import Spread, checked_blocks, spread

__all__ = ["Overlap", "bar", "bar_log_evidence", "overlap"]

Floats = NDArray[np.float64]

_MAX_ITERATIONS = 200
# With fewer paths in the overlap of both directions the interval does not have its coverage.
_LEAST_COMMON_PATHS = 10.0
# The two directions may violate the fluctuation theorem by this number of standard errors.
_LARGEST_MISFIT = 4.0
_ROUNDING = 1e-9
_NOTHING = 1e-100  # paths in the overlap


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
    if not np.isfinite(shared.log_evidence):
        message = "every forward path has weight zero. Use more draws or more stages."
        return LogEvidence(-np.inf, float("nan"), name, Status.NO_SUPPORT, message=message)
    value = shared.log_evidence
    if shared.n_common < _NOTHING:
        return LogEvidence(value, float("nan"), name, Status.NO_OVERLAP, message=_no_overlap(0.0))
    found = spread(*zip(shared.contributions(), blocks, strict=True))
    status, message = _verdict(shared, found, shared.misfit(*blocks))
    return LogEvidence(value, found.mcse, name, status, *interval(value, found), message, found.dof)


@dataclass(frozen=True, slots=True)
class Overlap:
    """The overlap of forward and reverse work.

    Parameters
    ----------
    log_evidence : float
        Bennett's estimate of log Z in nats.
    forward : ndarray, shape (n_forward,)
        For every forward path, the probability that a path with this work is a reverse one if it
        is picked at random from all paths of both directions.
    reverse : ndarray, shape (n_reverse,)
        For every reverse path, the probability that such a path is a forward one.
    work_forward, work_reverse : ndarray
        The work itself, in nats.
    weight : float
        Effective number of reverse paths over their number: every reverse path counts as so many.
    """

    log_evidence: float
    forward: Floats
    reverse: Floats
    work_forward: Floats
    work_reverse: Floats
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
        forward_blocks: NDArray[np.int64] | None = None,
        reverse_blocks: NDArray[np.int64] | None = None,
    ) -> float:
        """Return by how many standard errors the work violates the fluctuation theorem.

        By the fluctuation theorem the log odds of a path's direction are its work plus log Z, with
        a slope of one; this is the score test of the slope.
        """
        work = np.concatenate([self.work_forward, self.work_reverse])
        reverse = np.concatenate([self.forward, 1.0 - self.reverse])  # probability of reverse
        counts = np.repeat([1.0, self.weight], [len(self.forward), len(self.reverse)])
        weight = counts * reverse * (1.0 - reverse)
        total = float(weight.sum())
        if total == 0.0:  # the direction of every path is certain
            return 0.0
        work = np.where(weight > 0.0, work, 0.0)
        deviation = work - float(weight @ work) / total
        scores = np.where(weight > 0.0, deviation, 0.0) * -reverse
        scores[len(self.forward) :] += np.where(weight > 0.0, deviation, 0.0)[len(self.forward) :]
        scores *= counts
        parts = np.split(scores, [len(self.forward)])
        parts = [part - part.mean() for part in parts]
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


def checked_pair(work_forward: ArrayLike, work_reverse: ArrayLike) -> tuple[Floats, Floats]:
    """Return the work of both directions as vectors; raise ValueError where it is unusable."""
    for name, values in (("work_forward", work_forward), ("work_reverse", work_reverse)):
        if float_array(name, values).size == 0:
            raise ValueError(
                f"{name} must have at least one path, got none: this estimator needs both "
                "directions. Run with direction='both', or use jarzynski or jarzynski_reverse."
            )
    return (
        checked_work(work_forward, name="work_forward"),
        checked_work(work_reverse, name="work_reverse", finite=True),
    )


def _log_expit(x: Floats) -> Floats:
    values: Floats = np.minimum(x, 0.0) - np.log1p(np.exp(-np.abs(x)))
    return values


def _no_overlap(n_common: float) -> str:
    return (
        f"forward and reverse work hardly overlap (about {n_common:.1f} paths in the overlap): the "
        "error cannot be trusted. Use more stages, more steps or a better kernel."
    )


def _verdict(shared: Overlap, found: Spread, misfit: float) -> tuple[Status, str]:
    # SciPy is imported where it is used: it takes as long as the rest of the package
    from scipy.special import ndtr, stdtrit

    if not np.isfinite(found.mcse):
        message = "a single independent path or block gives no error estimate. Use at least two."
        return Status.NO_ERROR, message
    if shared.n_common < min(_LEAST_COMMON_PATHS, 0.5 * shared.most_common):
        return Status.NO_OVERLAP, _no_overlap(shared.n_common)
    if abs(misfit) > stdtrit(max(found.dof, 1.0), ndtr(_LARGEST_MISFIT)):
        return Status.INCONSISTENT, (
            "forward and reverse work contradict each other (the fluctuation theorem is violated "
            f"by {abs(misfit):.1f} standard errors): the reverse paths did not start from the "
            "posterior. Give them better starts "
            "(reverse_start=), more stages or a better kernel."
        )
    return Status.OK, ""
