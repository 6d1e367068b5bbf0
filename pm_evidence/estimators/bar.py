"""Bennett's acceptance ratio: forward and reverse work together."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.numerics import ess_share, log_mean_exp
from pm_evidence.core.records import LogEvidence
from pm_evidence.estimators.intervals import interval
from pm_evidence.estimators.jarzynski import checked_work, verdict

__all__ = ["bar_log_evidence", "bridge", "fit_share"]

Floats = NDArray[np.float64]

# With a smaller effective share of the fitted density's draws, the bridge rests on its tails.
_LEAST_FIT_SHARE = 0.01


def bar_log_evidence(work_forward: Floats, work_reverse: Floats) -> float:
    """Return Bennett's estimate of log Z in nats.

    Parameters
    ----------
    work_forward : ndarray, shape (n_forward,)
        Work of forward paths in nats; ``inf`` is legal.
    work_reverse : ndarray, shape (n_reverse,)
        Minus the work that reverse paths do against the forward direction, that is the forward
        work of the same paths, in nats.

    Notes
    -----
    Bennett (1976); Habeck (2017), Eq. 14, for unequal numbers of paths. The equation has one root,
    which is bracketed and bisected: plain iteration stalls where the overlap is small. NaN where
    the two have no overlap at all.
    """
    # SciPy is imported where it is used: it takes as long as the rest of the package
    from scipy.optimize import brentq
    from scipy.special import expit

    shift = np.log(len(work_forward) / len(work_reverse))
    ends = np.concatenate([work_forward, work_reverse])
    ends = ends[np.isfinite(ends)]
    if not np.isfinite(work_forward).any() or not np.isfinite(work_reverse).any():
        return float("nan")

    def excess(free_energy: float) -> float:
        forward = expit(free_energy - work_forward - shift).sum()
        reverse = expit(work_reverse - free_energy + shift).sum()
        return float(np.log(forward + 1e-300) - np.log(reverse + 1e-300))

    low, high = ends.min() - abs(shift) - 50.0, ends.max() + abs(shift) + 50.0
    return -float(brentq(excess, low, high, xtol=1e-12, rtol=1e-14))


def bridge(works: Sequence[tuple[ArrayLike, ArrayLike]]) -> LogEvidence:
    """Estimate log Z from bridges between a fitted density and the target, one per block.

    Parameters
    ----------
    works : sequence of (forward, reverse)
        For every independent block, ``log q(x) - log f(x)`` in nats at draws from the fitted
        density ``q``, shape ``(n_forward,)``, and at draws from the target, shape ``(n_reverse,)``.

    Returns
    -------
    LogEvidence
        Log of the mean over blocks of each block's estimate, with a Student interval from their
        spread: it needs no assumption on how the draws of one block depend on each other.

    Raises
    ------
    ValueError
        If there is no work, or some of it is NaN.

    Notes
    -----
    Meng and Wong (1996) with the optimal bridge, which is Bennett's (1976) ratio. Consistent; its
    bias is of the order of a block's variance. Distrust it where posterior draws miss a mode, as
    they then do in every estimate made from them.
    """
    values = np.array([bar_log_evidence(*map(checked_work, pair)) for pair in works])
    if np.isnan(values).any() or len(values) < 2:
        message = "the fitted density and the posterior do not overlap; use another estimator."
        return LogEvidence(float("nan"), float("nan"), "bridge", "no_overlap", message=message)
    share = fit_share(works)
    if share < _LEAST_FIT_SHARE:
        message = (
            f"the fitted density is a poor image of the target (effective share {share:.4f} of its "
            "draws): its error is not to be trusted; use another estimator."
        )
        return LogEvidence(
            log_mean_exp(values), float("nan"), "bridge", "low_overlap", message=message
        )
    value = log_mean_exp(values)
    relative = np.exp(values - value)
    mcse = float(relative.std(ddof=1) / np.sqrt(len(values)))
    effective = float(len(values) ** 2 / np.sum(relative**2))
    status, message = verdict(mcse, effective, len(values))
    return LogEvidence(value, mcse, "bridge", status, *interval(value, mcse, len(values)), message)


def fit_share(works: Sequence[tuple[ArrayLike, ArrayLike]]) -> float:
    """Return the effective share of draws from the fitted density as draws from the target.

    Parameters
    ----------
    works : sequence of (forward, reverse)
        As for ``bridge``.
    """
    return ess_share(-np.concatenate([checked_work(forward) for forward, _ in works]))
