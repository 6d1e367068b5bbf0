"""Sums of exponentials and weights that do not overflow and are right for infinite terms."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "add_up",
    "ess_share",
    "log_mean_exp",
    "log_sum_exp",
    "moments",
    "normalised",
]

Floats = NDArray[np.float64]


def log_sum_exp(log_terms: Floats) -> float:
    """Return ``log(sum(exp(log_terms)))``; ``-inf`` for an empty or all ``-inf`` array."""
    if log_terms.size == 0:
        return -np.inf
    top = float(np.max(log_terms))
    if not np.isfinite(top):
        return top
    return top + float(np.log(np.sum(np.exp(log_terms - top))))


def log_mean_exp(log_terms: Floats) -> float:
    """Return ``log(mean(exp(log_terms)))``, where terms of ``-inf`` are counted as well."""
    return log_sum_exp(log_terms) - float(np.log(log_terms.size))


def normalised(log_weight: Floats) -> Floats:
    """Return the weights ``exp(log_weight)`` scaled to sum to one.

    Raises
    ------
    FloatingPointError
        If every weight is zero or one of them is NaN or infinite.
    """
    top = np.max(log_weight)
    if not np.isfinite(top):
        raise FloatingPointError(f"weights cannot be normalised: the largest log weight is {top}")
    weight = np.exp(log_weight - top)
    scaled: Floats = weight / weight.sum()
    return scaled


def ess_share(log_weight: Floats) -> Any:
    """Return the effective sample size of weights as a share of their number, in [0, 1].

    It is computed over the last axis, and is 0 if all weights are zero or one is NaN or infinite.
    """
    top = log_weight.max(axis=-1, keepdims=True)
    with np.errstate(all="ignore"):
        weight = np.exp(log_weight - top)
        share = weight.sum(axis=-1) ** 2 / (weight**2).sum(axis=-1) / log_weight.shape[-1]
    return np.where(np.isfinite(top[..., 0]) & (share > 0.0), share, 0.0)[()]


def moments(table: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of the finite entries of every row; NaN where there are none."""
    alive = np.isfinite(table)
    count = alive.sum(axis=1)
    known = np.where(alive, table, 0.0)
    with np.errstate(all="ignore"):
        mean = known.sum(axis=1) / count
        rest = np.where(alive, table - mean[:, None], 0.0)
        return mean, (rest**2).sum(axis=1) / count


def add_up(start: Floats, steps: Floats) -> tuple[Floats, Floats, Floats]:
    """Add rows of log weights to ``start`` one after another.

    Returns
    -------
    log_weight : ndarray, shape (n,)
        Sum of ``start`` and all rows.
    share : ndarray, shape (m,)
        ``ess_share`` of each row.
    accumulated : ndarray, shape (m,)
        ``ess_share`` of the sum of ``start`` and all rows up to each.
    """
    sums = np.cumsum(np.concatenate([start[None], steps]), axis=0)
    return sums[-1], ess_share(steps), ess_share(sums[1:])
