"""Cumulant expansions of the work, and the bounds on log Z that are their first terms."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_flag
from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.estimators.bar import checked_pair
from pm_evidence.estimators.errors import Spread, checked_blocks, interval, spread
from pm_evidence.estimators.jarzynski import checked_work

Floats = NDArray[np.float64]

# The status is "ok" while the first neglected term is below this number of standard errors.
_LARGEST_CUT = 0.25
_FEWEST_PATHS = 10


def lower_bound(work: ArrayLike, *, blocks: ArrayLike | None = None) -> LogEvidence:
    """Estimate a lower bound of log Z: minus the mean work of forward paths.

    Parameters
    ----------
    work : array_like of float64, shape (n_paths,)
        Work of forward paths in nats.
    blocks : array_like of int, shape (n_paths,), optional
        Paths of one block may depend on each other; by default all are independent.

    Returns
    -------
    LogEvidence
        The bound, with the interval of the *bound*; its status is ``"bound"``.

    Raises
    ------
    ValueError
        If there is no work, or some of it is NaN or minus infinity.

    Notes
    -----
    Habeck (2017), Eq. 7. The expectation lies below log Z for any kernels, including kernels that
    do not mix.
    """
    values = checked_work(work)
    message = "a strict bound, not an estimate: its expectation lies below log Z for any kernels."
    return _bound(values, checked_blocks("blocks", blocks, values), "lower_bound", message)


def upper_bound(
    work: ArrayLike, *, blocks: ArrayLike | None = None, exact: bool = False
) -> LogEvidence:
    """Estimate an upper bound of log Z: minus the mean work on reverse paths.

    Parameters
    ----------
    work : array_like of float64, shape (n_paths,)
        Work in nats that the *forward* direction does on the paths that reverse runs took.
    blocks : array_like of int, shape (n_paths,), optional
        Paths of one block may depend on each other; by default all are independent.
    exact : bool
        Whether the paths start from exact draws of the target.

    Returns
    -------
    LogEvidence
        The bound, with the interval of the *bound*; its status is ``"bound"``.

    Raises
    ------
    ValueError
        If there is no work, or some of it is not finite.

    Notes
    -----
    Habeck (2017), Eq. 7. If every reverse path starts from an exact draw of the target, as with
    simulated data (`simulate_and_certify`), the expectation lies above log Z for any kernels. If
    the paths start from draws of MCMC or SMC, this holds only if those have converged.
    """
    check_flag("exact", exact)
    values = checked_work(work, finite=True)
    message = "a strict bound, not an estimate: its expectation lies above log Z for any kernels."
    if not exact:
        message = (
            "a bound, not an estimate: its expectation lies above log Z if the reverse "
            "paths start from draws of the posterior."
        )
    return _bound(values, checked_blocks("blocks", blocks, values), "upper_bound", message)


def cumulant_forward(work: ArrayLike, *, blocks: ArrayLike | None = None) -> LogEvidence:
    """Estimate log Z from mean and variance of the work of forward paths.

    Parameters
    ----------
    work : array_like of float64, shape (n_paths,)
        Work of forward paths in nats, finite.
    blocks : array_like of int, shape (n_paths,), optional
        Paths of one block may depend on each other; by default all are independent.

    Returns
    -------
    LogEvidence
        ``-mean + variance / 2`` with a Student interval.

    Raises
    ------
    ValueError
        If there is no work, or some of it is not finite.

    Notes
    -----
    Hummer (2001); Habeck (2017), Eq. 12, with the sample variance. Unbiased for normally
    distributed work and biased otherwise:
    the status is ``"not_normal"`` if the third cumulant could change the estimate by more than a
    quarter of its error.
    """
    return _one_sided(checked_work(work, finite=True), blocks, 1.0, "cumulant_forward")


def cumulant_reverse(work: ArrayLike, *, blocks: ArrayLike | None = None) -> LogEvidence:
    """Estimate log Z from mean and variance of the work on reverse paths.

    Parameters
    ----------
    work : array_like of float64, shape (n_paths,)
        Work in nats that the *forward* direction does on the paths that reverse runs took.
    blocks : array_like of int, shape (n_paths,), optional
        Paths of one block may depend on each other; by default all are independent.

    Returns
    -------
    LogEvidence
        ``-mean - variance / 2`` with a Student interval.

    Raises
    ------
    ValueError
        If there is no work, or some of it is not finite.

    Notes
    -----
    Hummer (2001); Habeck (2017), Eq. 12. The status is that of `cumulant_forward`.
    """
    return _one_sided(checked_work(work, finite=True), blocks, -1.0, "cumulant_reverse")


def cumulant(
    work_forward: ArrayLike,
    work_reverse: ArrayLike,
    *,
    forward_blocks: ArrayLike | None = None,
    reverse_blocks: ArrayLike | None = None,
) -> LogEvidence:
    """Estimate log Z from means and variances of forward and reverse work.

    Parameters
    ----------
    work_forward : array_like of float64, shape (n_forward,)
        Work of forward paths in nats, finite.
    work_reverse : array_like of float64, shape (n_reverse,)
        Work in nats that the *forward* direction does on the paths that reverse runs took.
    forward_blocks, reverse_blocks : array_like of int, optional
        Paths of one block may depend on each other; by default all are independent.

    Returns
    -------
    LogEvidence
        Mean of the two bounds plus a twelfth of the difference of the variances, with a Student
        interval.

    Raises
    ------
    ValueError
        If there is no work, or some of it is not finite.

    Notes
    -----
    Hummer (2001); Habeck (2017), Eq. 13: a trapezoid with end corrections between the two work
    densities, whose next term is the difference of the fourth cumulants over 720. The status is
    ``"not_normal"`` if that term could change the estimate by more than a quarter of its error.
    """
    forward, reverse = checked_pair(work_forward, work_reverse)
    forward = checked_work(forward, name="work_forward", finite=True)
    parts, values, cut, noise = [], [], 0.0, 0.0
    for work, blocks, name, sign in (
        (forward, forward_blocks, "forward_blocks", 1.0),
        (reverse, reverse_blocks, "reverse_blocks", -1.0),
    ):
        of_paths = checked_blocks(name, blocks, work)
        residual, variance = _residual(work), _variance(work)
        values.append(-0.5 * float(work.mean()) + sign * variance / 12.0)
        terms = -0.5 * residual + sign * (residual**2 - np.mean(residual**2)) / 12.0
        parts.append((terms / work.size, of_paths))
        cut += sign * (float(np.mean(residual**4)) - 3.0 * variance**2) / 720.0
        noise += 24.0 * variance**4 / work.size / 720.0**2
    fewest = min(forward.size, reverse.size)
    return _expanded(sum(values), spread(*parts), cut, np.sqrt(noise), fewest, "cumulant")


def _residual(work: Floats) -> Floats:
    deviation: Floats = work - work.mean()
    return deviation


def _variance(work: Floats) -> float:
    """Return the sample variance, which is unbiased; zero for a single path."""
    return float(np.sum(_residual(work) ** 2)) / max(work.size - 1, 1)


def _one_sided(work: Floats, blocks: ArrayLike | None, sign: float, name: str) -> LogEvidence:
    of_paths = checked_blocks("blocks", blocks, work)
    residual, variance = _residual(work), _variance(work)
    value = -float(work.mean()) + sign * 0.5 * variance
    terms = -residual + sign * 0.5 * (residual**2 - np.mean(residual**2))
    found = spread((terms / work.size, of_paths))
    cut = float(np.mean(residual**3)) / 6.0
    noise = np.sqrt(6.0 * variance**3 / work.size) / 6.0
    return _expanded(value, found, cut, noise, work.size, name)


def _expanded(
    value: float, found: Spread, cut: float, noise: float, fewest: int, name: str
) -> LogEvidence:
    """Return an estimate that neglects a term of size ``cut``, whose own error is ``noise``."""
    status, message = Status.OK, ""
    if fewest < _FEWEST_PATHS or not np.isfinite(found.mcse):
        status = Status.NO_ERROR
        message = (
            f"{fewest} paths are too few to estimate the variance of the work. Use at least "
            f"{_FEWEST_PATHS}."
        )
    elif abs(cut) + noise > _LARGEST_CUT * found.mcse:
        status = Status.NOT_NORMAL
        message = (
            "the work may not be normally distributed: the next cumulant could change log Z by "
            f"{abs(cut) + noise:.2g} nats. Use the estimate 'bar', or more stages."
        )
    return LogEvidence(value, found.mcse, name, status, *interval(value, found), message, found.dof)


def _bound(work: Floats, blocks: NDArray[np.int64] | None, name: str, message: str) -> LogEvidence:
    value = -float(work.mean())
    if not np.isfinite(value):
        return LogEvidence(value, float("nan"), name, Status.BOUND, message=message)
    found = spread(((-value - work) / work.size, blocks))
    return LogEvidence(
        value, found.mcse, name, Status.BOUND, *interval(value, found), message, found.dof
    )
