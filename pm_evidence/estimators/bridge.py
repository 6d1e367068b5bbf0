"""Bridges from a fitted density to the target, one per independent block."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.numerics import ess_share, log_mean_exp
from pm_evidence.core.records import LogEvidence
from pm_evidence.estimators.bar import bar_log_evidence, checked_pair
from pm_evidence.estimators.errors import Spread
from pm_evidence.estimators.intervals import interval
from pm_evidence.estimators.jarzynski import checked_work, verdict

__all__ = ["bridge", "fit_share"]

Floats = NDArray[np.float64]

# With a smaller effective share of the fitted density's draws, the bridge rests on its tails.
_LEAST_FIT_SHARE = 0.01


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
    values = np.array([bar_log_evidence(*checked_pair(*pair)) for pair in works])
    if not np.isfinite(values).all() or len(values) < 2:
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
    return LogEvidence(
        value, mcse, "bridge", status, *interval(value, Spread(mcse, len(values) - 1)), message
    )


def fit_share(works: Sequence[tuple[ArrayLike, ArrayLike]]) -> float:
    """Return the effective share of draws from the fitted density as draws from the target.

    Parameters
    ----------
    works : sequence of (forward, reverse)
        As for ``bridge``.
    """
    return ess_share(-np.concatenate([checked_work(forward) for forward, _ in works]))
