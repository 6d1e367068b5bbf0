"""The exponential average of the work."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_text, float_array
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.records import LogEvidence
from pm_evidence.estimators.intervals import interval
from pm_evidence.estimators.pareto import is_heavy, pareto_k
from pm_evidence.estimators.standard_errors import Spread, checked_blocks, spread

__all__ = [
    "checked_work",
    "importance",
    "jarzynski",
    "jarzynski_reverse",
    "single_run",
    "verdict",
]

Floats = NDArray[np.float64]

# Below this many effective paths the spread of the weights says nothing about their mean.
_LEAST_EFFECTIVE_PATHS = 5.0
# Beyond this error the distribution of log Z is too skewed for a symmetric interval.
_LARGEST_MCSE = 0.5
_MANY, _LIGHT = 1000, 10.0
_BETWEEN_QUANTILES = 2.0537 - 1.0364  # of 0.85 and 0.98 in a standard normal density


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
    the mean weight by the delta method. Distrust it when few paths carry the weight: the status
    says so below 5 effective paths, beyond an error of 0.5 nats, or where the tail of the weights
    is too heavy for their number (Pareto k, from 30 paths on).

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
            "no path has any weight: the data have no support where the runs ended. Use more "
            "draws or more stages, or check the likelihood's support."
        )
        return LogEvidence(value, float("nan"), name, "no_support", message=message)
    if n < 2:
        message = "one path has no error estimate; use at least two."
        return LogEvidence(value, float("nan"), name, "no_error", message=message)
    relative = np.exp(log_weight - value)
    found = spread(((relative - 1.0) / n, blocks))
    effective = float(n**2 / np.sum(relative**2))
    # of thousands of weights the largest is below ten times the mean: they have no tail, and a fit
    # to what varies among the largest may say anything
    light = n >= _MANY and relative.max() < _LIGHT
    k = float("nan") if light else pareto_k(log_weight)
    status, message = verdict(found.mcse, min(effective, _of_normal(log_weight)), n, k)
    return LogEvidence(value, found.mcse, name, status, *interval(value, found), message, found.dof)


def _of_normal(log_weight: Floats) -> float:
    """Return the effective number of weights if their upper part is that of a lognormal density.

    A sample that is too small for its spread shows no heavy tail, because it has not met it.
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
    paths start from the target; biased upwards by about ``mcse ** 2 / 2``. Distrust it as
    `jarzynski`, and where the starts miss a part of the target. Reverse work cannot show the paths
    that it never meets: the status is a verdict only next to forward work, as in a run.
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
    consistent, provided that ``q`` was fitted to other draws and reaches wherever ``f`` does. The
    error is that of `jarzynski`. Distrust it where ``q`` may be narrower than the posterior: the
    tail of the weights shows that in most runs but not in all (of a normal ``q`` five times too
    narrow in four of five), and nothing in them shows a mode that ``q`` leaves out altogether. A
    run therefore holds it against annealing.

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
    return jarzynski(work, name="importance")


def single_run(work: ArrayLike, relative_variance: ArrayLike) -> LogEvidence:
    """Estimate log Z from islands, with the error that each island states of itself.

    Parameters
    ----------
    work : array_like of float64, shape (n_islands,)
        Minus log evidence estimate of every island in nats.
    relative_variance : array_like of float64, shape (n_islands,)
        Each island's own estimate of the variance of its Z over its square.

    Raises
    ------
    ValueError
        If there is no work, some of it is NaN, the lengths differ, or a variance is negative or
        NaN.

    Notes
    -----
    It takes the chains of an island as independent at every stage (Dau and Chopin 2022, section
    4.2): distrust it where ``jarzynski`` of the same work has a much larger error.
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
            f"island {bad[0]}; use jarzynski where islands do not state their own variance."
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
        remedy = "find out why those paths failed; leaving them out would bias the estimate"
        if name != "work_reverse" and np.all(values[bad] == np.inf):
            remedy = "use jarzynski or bar, where forward paths of weight zero are legal"
        raise ValueError(
            f"{name} must be {'finite' if finite else 'a number or inf'}, got {values[bad[0]]} at "
            f"{bad.size} of {values.size} paths, first at index {bad[0]}; {remedy}."
        )
    return values


def verdict(mcse: float, effective: float, n: int, k: float = float("nan")) -> tuple[str, str]:
    """Return status and message of a mean of ``n`` weights.

    Parameters
    ----------
    mcse : float
        Error in nats.
    effective : float
        Effective number of weights.
    n : int
        Number of weights.
    k : float
        Shape of their Pareto tail, NaN where it is not known.
    """
    if not np.isfinite(mcse):
        return "no_error", "one independent block has no error estimate; use at least two."
    if effective < min(_LEAST_EFFECTIVE_PATHS, 0.5 * n):
        return "dominated", (
            f"a few paths carry all the weight (effective number {effective:.1f} of {n}): the "
            "error is not to be trusted. Use more draws, more stages or a better kernel."
        )
    if is_heavy(k, n):
        return "heavy_tail", (
            f"the heaviest paths have not been met (Pareto k {k:.2f} with {n} paths): the error is "
            "not to be trusted. Use more stages, more draws or a better kernel."
        )
    if mcse > _LARGEST_MCSE:
        return "high_variance", (
            f"the error of {mcse:.2f} nats is too large for the interval to hold; use more draws "
            "or more stages."
        )
    return "ok", ""
