"""Log Z from the work of one direction: exponential averages, cumulants and bounds."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_flag, check_text, float_array
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.estimators.errors import (
    Spread,
    Verdict,
    checked_blocks,
    estimated,
    of_size,
    of_weights,
    spread,
    with_tail,
    without_error,
)

Floats = NDArray[np.float64]

# With this many weights or more, none above this multiple of their mean, there is no heavy tail.
_MANY, _LIGHT = 1000, 10.0
# Distance between the quantiles 0.85 and 0.98 of a standard normal distribution.
_BETWEEN_QUANTILES = 2.0537 - 1.0364
_REMEDY = "more draws or more stages"  # of a large error


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
        return without_error(name, value, Status.NO_SUPPORT, message)
    relative = np.exp(log_weight - value)
    found = spread(((relative - 1.0) / n, blocks))
    if not np.isfinite(found.mcse):
        message = "a single independent path or block gives no error estimate. Use at least two."
        return without_error(name, value, Status.NO_ERROR, message)
    effective = min(_effective(relative), _of_normal(log_weight))
    # if the largest of thousands of weights is below ten times their mean, there is no heavy tail,
    # and the shape of a fitted tail would be arbitrary
    light = n >= _MANY and bool(relative.max() < _LIGHT)
    of_tail = of_weights(log_weight, effective, light)
    return estimated(name, value, found, chain(of_tail, of_size(found.mcse, _REMEDY)))


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
    message = (
        "the error counts the variation within islands, but not the variation between them. Use "
        "the estimate 'smc', whose error counts both."
    )
    verdicts = [*of_size(mcse, _REMEDY), (Status.WITHIN_ISLANDS, message)]
    return estimated("single_run", value, Spread(mcse, np.inf), verdicts)


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
    message = "a strict bound, not an estimate: its expectation lies below log Z for any kernels."
    return _bound("lower_bound", checked_work(work), blocks, message)


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
    message = "a strict bound, not an estimate: its expectation lies above log Z for any kernels."
    if not exact:
        message = (
            "a bound, not an estimate: its expectation lies above log Z if the reverse "
            "paths start from draws of the posterior."
        )
    return _bound("upper_bound", checked_work(work, finite=True), blocks, message)


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
    return _one_sided("cumulant_forward", work, blocks, 1.0)


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
    return _one_sided("cumulant_reverse", work, blocks, -1.0)


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
    parts, value, cut, noise = [], 0.0, 0.0, 0.0
    for work, blocks, name, sign in (
        (forward, forward_blocks, "forward_blocks", 1.0),
        (reverse, reverse_blocks, "reverse_blocks", -1.0),
    ):
        of_paths = checked_blocks(name, blocks, work)
        residual, variance = _residual(work)
        value += -0.5 * float(work.mean()) + sign * variance / 12.0
        terms = -0.5 * residual + sign * (residual**2 - np.mean(residual**2)) / 12.0
        parts.append((terms / work.size, of_paths))
        cut += sign * (float(np.mean(residual**4)) - 3.0 * variance**2) / 720.0
        noise += 24.0 * variance**4 / work.size / 720.0**2
    fewest = min(forward.size, reverse.size)
    found = spread(*parts)
    verdicts = _of_expansion(found.mcse, abs(cut) + float(np.sqrt(noise)), fewest)
    return estimated("cumulant", value, found, verdicts)


def _residual(work: Floats) -> tuple[Floats, float]:
    """Return deviations from the mean, and their unbiased variance; zero for a single path."""
    deviation: Floats = work - work.mean()
    return deviation, float(np.sum(deviation**2)) / max(work.size - 1, 1)


def _one_sided(name: str, work: ArrayLike, blocks: ArrayLike | None, sign: float) -> LogEvidence:
    values = checked_work(work, finite=True)
    of_paths = checked_blocks("blocks", blocks, values)
    residual, variance = _residual(values)
    value = -float(values.mean()) + sign * 0.5 * variance
    terms = -residual + sign * 0.5 * (residual**2 - np.mean(residual**2))
    found = spread((terms / values.size, of_paths))
    noise = float(np.sqrt(6.0 * variance**3 / values.size)) / 6.0
    cut = abs(float(np.mean(residual**3)) / 6.0) + noise
    return estimated(name, value, found, _of_expansion(found.mcse, cut, values.size))


def _of_expansion(mcse: float, cut: float, fewest: int) -> Iterator[Verdict]:
    """Yield the verdicts on an estimate that neglects a term of at most about the size ``cut``."""
    if fewest < _FEWEST_PATHS or not np.isfinite(mcse):
        yield (
            Status.NO_ERROR,
            f"{fewest} paths are too few to estimate the variance of the work. Use at least "
            f"{_FEWEST_PATHS}.",
        )
    if cut > _LARGEST_CUT * mcse:
        yield (
            Status.NOT_NORMAL,
            "the work may not be normally distributed: the next cumulant could change log Z by "
            f"{cut:.2g} nats. Use the estimate 'bar', or more stages.",
        )


def _bound(name: str, work: Floats, blocks: ArrayLike | None, message: str) -> LogEvidence:
    of_paths = checked_blocks("blocks", blocks, work)
    value = -float(work.mean())
    if not np.isfinite(value):
        return without_error(name, value, Status.BOUND, message)
    found = spread(((-value - work) / work.size, of_paths))
    return estimated(name, value, found, [(Status.BOUND, message)])
