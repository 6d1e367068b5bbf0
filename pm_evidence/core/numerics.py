"""Sums of exponentials and weights that neither overflow nor hide an infinity."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ess_share", "log_mean_exp", "log_sum_exp", "normalised"]

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
    """Return ``log(mean(exp(log_terms)))``; members at ``-inf`` stay in the count."""
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

    Over the last axis; 0 where every weight is zero or one is NaN or infinite.
    """
    top = np.max(log_weight, axis=-1, keepdims=True)
    usable = np.isfinite(top)
    with np.errstate(invalid="ignore"):
        weight = log_weight - top
        weight = np.exp(weight, out=weight)
        share = weight.sum(axis=-1) ** 2 / np.einsum("...i,...i->...", weight, weight)
    return np.where(usable[..., 0], share / weight.shape[-1], 0.0)[()]
