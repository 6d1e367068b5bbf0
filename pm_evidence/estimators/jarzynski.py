"""The exponential average of the work."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_text, float_array
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.estimators.errors import (
    Spread,
    checked_blocks,
    interval,
    is_heavy,
    pareto_k,
    spread,
)
from pm_evidence.estimators.verdicts import LARGEST_MCSE, with_tail

Floats = NDArray[np.float64]

# With fewer effective paths than this, the sample variance of the weights does not estimate the
# error of their mean.
_LEAST_EFFECTIVE_PATHS = 5.0
# Beyond this error the distribution of log Z is too skewed for a symmetric interval.
# With this many weights or more, none above this multiple of their mean, there is no heavy tail.
_MANY, _LIGHT = 1000, 10.0
# Distance between the quantiles 0.85 and 0.98 of a standard normal distribution.
_BETWEEN_QUANTILES = 2.0537 - 1.0364


def jarzynski(
    work: ArrayLike, *, blocks: ArrayLike | None = None, name: str = "jarzynski"
) -> LogEvidence:
    """Estimate log Z from the work of forward paths.

    Parameters
    ----------
    work : array_like of float64, shape (n_paths,)
        Minus log weight of every path in nats. ``inf`` (weight zero) is legal and counts.
    blocks : array_like of int, shape (n_paths,), optional
        Paths of one block may depend on each other; by default all are independent.
    name : str
        Name of the estimator in the result.

    Returns
    -------
    LogEvidence
        Log of the mean weight, with a Student interval.

    Raises
    ------
    ValueError
        If there is no work, or some of it is NaN or minus infinity.

    Notes
    -----
    Jarzynski (1997); Neal (2001); Habeck (2017), Eq. 4 and 9. The mean weight is unbiased for Z
    and consistent; its log is biased downwards by about ``mcse ** 2 / 2``. The error is that of
    the mean weight by the delta method. It cannot be trusted if a few paths carry most of the
    weight. The status is not ``"ok"`` below 5 effective paths, above an error of 0.5 nats, and if
    the tail of the weights is too heavy for their number (Pareto k, from 30 paths on).

    Examples
    --------
    >>> import numpy as np
    >>> work = np.random.default_rng(1).normal(2.5, 1.0, size=10_000)
    >>> jarzynski(work)  # exactly -2.5 + 0.5
    LogEvidence(value=-1.988, mcse=0.013, estimator="jarzynski", status="ok")
    """
    check_text("name", name)
    log_weight = -checked_work(work)
    blocks = checked_blocks("blocks", blocks, log_weight)
    n = log_weight.size
    value = log_mean_exp(log_weight)
    if value == -np.inf:
        message = (
            "every path has weight zero: the likelihood is zero wherever the runs ended. Use more "
            "draws or more stages, or check the support of the likelihood."
        )
        return LogEvidence(value, float("nan"), name, Status.NO_SUPPORT, message=message)
    if n < 2:
        message = "a single path gives no error estimate. Use at least two."
        return LogEvidence(value, float("nan"), name, Status.NO_ERROR, message=message)
    relative = np.exp(log_weight - value)
    found = spread(((relative - 1.0) / n, blocks))
    effective = _effective(relative)
    # if the largest of thousands of weights is below ten times their mean, there is no heavy tail,
    # and the shape of a fitted tail would be arbitrary
    light = n >= _MANY and relative.max() < _LIGHT
    k = float("nan") if light else pareto_k(log_weight)
    status, message = verdict(found.mcse, min(effective, _of_normal(log_weight)), n, k)
    return LogEvidence(value, found.mcse, name, status, *interval(value, found), message, found.dof)


def _effective(relative: Floats) -> float:
    """Return the effective number of weights whose mean is 1."""
    return float(relative.size**2 / np.sum(relative**2))


def effective_sample_size(work: ArrayLike) -> float:
    """Return the effective sample size of the weights of independent paths.

    Parameters
    ----------
    work : array_like of float64, shape (n_paths,)
        Minus log weight of every path in nats, such as ``dt["work"]["forward"]`` of a run. ``inf``
        (weight zero) is legal and counts. Of reverse paths, whose weights are ``exp(work)``, pass
        ``-work``.

    Returns
    -------
    float
        Number of equally weighted paths that would be as informative: from 1, where one path
        carries all of the weight, to ``n_paths``, where all weights are equal. It is 0 if every
        weight is zero.

    Raises
    ------
    ValueError
        If there is no work, or some of it is NaN or minus infinity.

    Notes
    -----
    Kiwaki (2015), Eq. 5, after Neal (2001): ``n_paths / (1 + s**2)``, where ``s**2`` is the
    variance of the weights divided by their mean; that is ``(sum w)**2 / sum w**2``. With few
    effective paths it is itself noisy, and too large if the largest weights have not occurred.

    Examples
    --------
    >>> import numpy as np
    >>> work = np.random.default_rng(1).normal(2.5, 1.0, size=10_000)
    >>> round(effective_sample_size(work) / 10_000, 1)  # exactly exp(-1) of many weights
    0.4
    """
    log_weight = -checked_work(work)
    value = log_mean_exp(log_weight)
    return 0.0 if value == -np.inf else _effective(np.exp(log_weight - value))


def _of_normal(log_weight: Floats) -> float:
    """Return the effective number of weights if their upper part is that of a lognormal density.

    In a sample that is too small for the variance of the log weights, the largest weights do not
    occur, so that the usual effective number is far too large.
    """
    alive = log_weight[np.isfinite(log_weight)]
    low, high = np.quantile(alive, (0.85, 0.98))
    spread_of_logs = (high - low) / _BETWEEN_QUANTILES
    return float(len(log_weight) * np.exp(-min(spread_of_logs**2, 700.0)))


def jarzynski_reverse(work: ArrayLike, *, blocks: ArrayLike | None = None) -> LogEvidence:
    """Estimate log Z from the work of reverse paths.

    Parameters
    ----------
    work : array_like of float64, shape (n_paths,)
        Work in nats that the *forward* direction does on the path that a reverse run took.
    blocks : array_like of int, shape (n_paths,), optional
        Paths of one block may depend on each other; by default all are independent.

    Returns
    -------
    LogEvidence
        Minus the log of the mean of ``exp(work)``, with a Student interval.

    Raises
    ------
    ValueError
        If there is no work, or some of it is not finite.

    Notes
    -----
    Burda, Grosse and Salakhutdinov (2015, RAISE); Habeck (2017), section 5.1. Consistent where the
    paths start from the target; biased upwards by about ``mcse ** 2 / 2``. It cannot be trusted in
    the same cases as `jarzynski`, and if the starts miss a part of the target. Paths that were not
    sampled leave no trace in reverse work, so an ``"ok"`` from this function alone says little; a
    run also checks the estimate by its forward work.
    """
    values = checked_work(work, finite=True)
    mirrored = jarzynski(-values, blocks=blocks, name="jarzynski_reverse")
    return replace(mirrored, value=-mirrored.value, lower=-mirrored.upper, upper=-mirrored.lower)


def importance(work: ArrayLike) -> LogEvidence:
    """Estimate log Z by importance sampling from a fitted density.

    Parameters
    ----------
    work : array_like of float64, shape (n_draws,)
        ``log q(x) - log f(x)`` in nats at independent draws from the fitted density ``q``, where
        ``f`` is prior times likelihood. ``inf`` (weight zero) is legal and counts.

    Returns
    -------
    LogEvidence
        Log of the mean weight ``f / q``, with a Student interval.

    Raises
    ------
    ValueError
        If there is no work, or some of it is NaN or minus infinity.

    Notes
    -----
    Annealing in a single step, from ``q`` to the posterior: the mean weight is unbiased for Z and
    consistent, provided that ``q`` was fitted to other draws and is positive wherever ``f`` is. The
    error is that of `jarzynski` and, added in quadrature, the share of the evidence that is
    expected beyond the largest weight, by the Pareto tail that is fitted to the weights. It cannot
    be trusted if ``q`` is narrower than the posterior: the tail of the weights shows this in most
    runs, but not in all (if ``q`` is a normal density that is five times too narrow, in four runs
    of five). The weights never show that ``q`` misses a whole mode. A run therefore compares this
    estimate with annealing.

    Examples
    --------
    The integral of ``exp(-x**2 / 2)`` is ``0.5 log(2 pi) = 0.919`` on the log scale.

    >>> import numpy as np
    >>> from scipy import stats
    >>> fitted = stats.t(5, scale=1.1)
    >>> x = fitted.rvs(10_000, random_state=1)
    >>> importance(fitted.logpdf(x) + x**2 / 2)
    LogEvidence(value=0.9245, mcse=0.0027, estimator="importance", status="ok")
    """
    return with_tail(jarzynski(work, name="importance"), -checked_work(work))


def single_run(work: ArrayLike, relative_variance: ArrayLike) -> LogEvidence:
    """Estimate log Z from islands, with the error that is estimated from within each island.

    Parameters
    ----------
    work : array_like of float64, shape (n_islands,)
        Minus log evidence estimate of every island in nats.
    relative_variance : array_like of float64, shape (n_islands,)
        Each island's own estimate of the variance of its Z over its square.

    Returns
    -------
    LogEvidence
        The same value as that of `jarzynski`, with the status ``"within_islands"``.

    Raises
    ------
    ValueError
        If there is no work, some of it is NaN, the lengths differ, or a variance is negative or
        NaN.

    Notes
    -----
    The error assumes that the chains of an island are independent at every stage (Dau and Chopin
    2022, section 4.2). It cannot be trusted if ``jarzynski`` has a much larger error for the same
    work.
    """
    log_weight = -checked_work(work)
    variance = float_array("relative_variance", relative_variance)
    if variance.shape != log_weight.shape:
        raise ValueError(
            f"relative_variance must have one value per island, got shape {variance.shape} for "
            f"work of {log_weight.size} islands; pass both of the same islands."
        )
    bad = np.flatnonzero(~(variance >= 0.0))
    if bad.size:
        raise ValueError(
            f"relative_variance must be a number that is not negative, got {variance[bad[0]]} at "
            f"island {bad[0]}; use jarzynski if these variances are not known."
        )
    value = log_mean_exp(log_weight)
    if value == -np.inf:
        return jarzynski(work, name="single_run")
    squares = np.exp(2.0 * (log_weight - value)) * variance
    mcse = float(np.sqrt(squares.sum()) / log_weight.size)
    status, message = verdict(mcse, np.inf, log_weight.size)
    ends = interval(value, Spread(mcse, np.inf))
    return LogEvidence(value, mcse, "single_run", status, *ends, message)


def checked_work(work: ArrayLike, *, name: str = "work", finite: bool = False) -> Floats:
    """Return work as a vector; raise ValueError if it is empty or not a number (or infinite)."""
    values = float_array(name, work)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(
            f"{name} must be a non-empty vector, got shape {values.shape}; pass one value per path."
        )
    wrong = ~np.isfinite(values) if finite else np.isnan(values) | (values == -np.inf)
    bad = np.flatnonzero(wrong)
    if bad.size:
        remedy = "find out why these paths failed; to leave them out would bias the estimate"
        if name != "work_reverse" and np.all(values[bad] == np.inf):
            remedy = "use jarzynski or bar, where forward paths of weight zero are legal"
        raise ValueError(
            f"{name} must be {'finite' if finite else 'a number or inf'}, got {values[bad[0]]} at "
            f"{bad.size} of {values.size} paths, first at index {bad[0]}; {remedy}."
        )
    return values


def verdict(mcse: float, effective: float, n: int, k: float = float("nan")) -> tuple[Status, str]:
    """Return status and message of a mean of ``n`` weights."""
    if not np.isfinite(mcse):
        return (
            Status.NO_ERROR,
            "a single independent block gives no error estimate. Use at least two.",
        )
    if effective < min(_LEAST_EFFECTIVE_PATHS, 0.5 * n):
        return Status.DOMINATED, (
            "a few paths carry nearly all of the weight (effective number "
            f"{effective:.1f} of {n}): the error cannot be trusted. Use more draws, more stages "
            "or a better kernel."
        )
    if is_heavy(k, n):
        return Status.HEAVY_TAIL, (
            f"the weights have a heavy tail (Pareto k {k:.2f} with {n} paths), so that the largest "
            "weights may not have occurred: the error cannot be trusted. Use more stages, more "
            "draws or a better kernel."
        )
    if mcse > LARGEST_MCSE:
        return Status.HIGH_VARIANCE, (
            f"the error of {mcse:.2f} nats is too large for a symmetric interval. Use more draws "
            "or more stages."
        )
    return Status.OK, ""
