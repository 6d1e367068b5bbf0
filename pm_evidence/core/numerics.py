"""Sums of exponentials and weights that do not overflow and are right for infinite terms."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen.fast_math import fast_exp
from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.sums import dot, total

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
    shape = log_weight.shape
    share = np.empty(shape[:-1])
    _ess_shares(np.ascontiguousarray(log_weight).reshape(-1, shape[-1]), share.reshape(-1))
    return share[()]


def moments(table: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of the finite entries of every row; NaN where there are none."""
    mean, var = np.empty((2, len(table)))
    _moments(np.ascontiguousarray(table), mean, var)
    return mean, var


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
    log_weight, (share, accumulated) = start.copy(), np.empty((2, len(steps)))
    _add_up(log_weight, steps, share, accumulated)
    return log_weight, share, accumulated


@njit
def _add_up(log_weight: Any, steps: Any, share: Any, accumulated: Any) -> None:
    weight = np.empty(log_weight.size)
    for k in range(steps.shape[0]):
        for c in range(log_weight.size):
            log_weight[c] += steps[k, c]
        share[k] = _ess_share(steps[k], weight)
        accumulated[k] = _ess_share(log_weight, weight)


@njit
def _ess_shares(log_weight: Any, share: Any) -> None:
    weight = np.empty(log_weight.shape[1])
    for k in range(log_weight.shape[0]):
        share[k] = _ess_share(log_weight[k], weight)


@njit
def _ess_share(log_weight: Any, weight: Any) -> Any:
    """Return the share, and store the weights, scaled to a maximum of 1, in ``weight``."""
    top = -np.inf
    for c in range(log_weight.size):
        top = max(top, log_weight[c])
    if not np.isfinite(top):
        return 0.0
    for c in range(log_weight.size):
        weight[c] = fast_exp(log_weight[c] - top)
    share = total(weight) ** 2 / dot(weight, weight) / log_weight.size
    return share if share > 0.0 else 0.0  # NaN if a weight is NaN


@njit
def _moments(table: Any, mean: Any, var: Any) -> None:
    for k in range(table.shape[0]):
        row = table[k]
        mean[k], var[k] = _mean_and_var(row)
        if not np.isfinite(mean[k]):
            mean[k], var[k] = _mean_and_var(row[np.isfinite(row)])


@njit
def _mean_and_var(row: Any) -> Any:
    mean = total(row) / row.size
    rest = row - mean
    return mean, dot(rest, rest) / row.size
