"""A bridge between a fitted density and the target."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.numerics import ess_share
from pm_evidence.core.records import LogEvidence
from pm_evidence.estimators.bar import bar
from pm_evidence.estimators.jarzynski import checked_work

__all__ = ["bridge", "fit_share"]

# With a smaller effective share of the fitted density's draws, the bridge rests on its tails.
_LEAST_FIT_SHARE = 0.01


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
        If there is no work, or some of it is NaN.

    Notes
    -----
    Meng and Wong (1996) with the optimal bridge, which is Bennett's (1976) ratio. Distrust it where
    posterior draws miss a mode, as they then do in every estimate made from them.
    """
    if not works:
        raise ValueError("works must hold at least one block, got none; run the sampler.")
    forward = [np.asarray(values, dtype=float) for values, _ in works]
    reverse = [np.asarray(values, dtype=float) for _, values in works]
    found = bar(
        np.concatenate(forward),
        np.concatenate(reverse),
        forward_blocks=_blocks(forward),
        reverse_blocks=_blocks(reverse),
        name="bridge",
    )
    share = fit_share(works)
    if found.status != "ok" or share >= _LEAST_FIT_SHARE:
        return found
    message = (
        f"the fitted density is a poor image of the target (effective share {share:.4f} of its "
        "draws): its error is not to be trusted; use another estimator."
    )
    nan = float("nan")
    return replace(found, mcse=nan, lower=nan, upper=nan, status="low_overlap", message=message)


def fit_share(works: Sequence[tuple[ArrayLike, ArrayLike]]) -> float:
    """Return the effective share of draws from the fitted density as draws from the target.

    Parameters
    ----------
    works : sequence of (forward, reverse)
        As for ``bridge``.
    """
    return float(ess_share(-np.concatenate([checked_work(forward) for forward, _ in works])))


def _blocks(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(parts)), [len(part) for part in parts])
