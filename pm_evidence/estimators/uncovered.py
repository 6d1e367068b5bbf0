"""Whether a fitted density leaves out what islands met."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["uncovered"]

Floats = NDArray[np.float64]

# Standard errors by which the share must exceed zero.
_SIGNIFICANT = 2.0


def uncovered(works: Sequence[tuple[Floats, Floats]]) -> float:
    """Return the share of posterior draws with more weight than any draw from the fitted density.

    Parameters
    ----------
    works : sequence of tuple of two ndarray
        Of every island, ``log q(x) - log f(x)`` in nats at draws from the fitted density ``q`` and
        at its draws from the posterior ``f / Z``.

    Returns
    -------
    float
        The share, from 0 to 1; 0 where it is within the error of what islands tell.

    Notes
    -----
    Let ``w = f / (q Z)``, and ``t`` be the largest weight of ``n`` draws from ``q``. Importance
    sampling misses about ``P(w > t)`` of the evidence, with the probability taken under the
    posterior. Where weights have a Pareto tail of shape ``k < 1``, this is about
    ``t / (n (1 - k))``, and the error of importance sampling is at least ``t / n``; a share of many
    errors says that the draws did not meet the tail at all.
    """
    least = min(float(forward.min()) for forward, _ in works)
    share = np.array([float(np.mean(reverse < least)) for _, reverse in works])
    error = float(share.std(ddof=1)) / len(share) ** 0.5 if len(share) > 1 else 0.0
    mean = float(share.mean())
    return mean if mean > _SIGNIFICANT * error else 0.0
