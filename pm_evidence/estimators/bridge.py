"""A bridge between a fitted density and the target."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.numerics import ess_share
from pm_evidence.core.records import LogEvidence
from pm_evidence.estimators.bar import bar
from pm_evidence.estimators.jarzynski import checked_work

__all__ = ["bridge", "fit_share"]


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
    return bar(
        np.concatenate(forward),
        np.concatenate(reverse),
        forward_blocks=_blocks(forward),
        reverse_blocks=_blocks(reverse),
        name="bridge",
    )


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
