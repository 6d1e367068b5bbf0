"""The order in which data points are added."""

import numpy as np
from numpy.typing import NDArray

from pm_evidence.families.gp_classification.checks import factor_of

__all__ = ["greedy_order", "order_of", "whitening_of"]

Floats = NDArray[np.float64]


def order_of(order: str | NDArray[np.int64], seed: int, covariance: Floats) -> NDArray[np.int64]:
    """Return the data points in the order in which they are added, shape ``(n,)``.

    Parameters
    ----------
    order : str or ndarray
        ``"random"``, ``"informative"``, ``"given"``, or the points themselves.
    seed : int
        Seed of a random order.
    covariance : ndarray, shape (n, n)
        Covariance of what the labels are the signs of.
    """
    if not isinstance(order, str):
        return order
    n = len(covariance)
    if order == "random":
        return np.random.default_rng(seed).permutation(n)
    return np.arange(n) if order == "given" else greedy_order(covariance)


def greedy_order(covariance: Floats) -> NDArray[np.int64]:
    """Return the points so that each has the largest variance given those before it.

    This is the order of the pivots of a Cholesky factorisation. Ties, as the first point of a
    stationary process, are broken by the smallest index. Points of which nothing is left to know
    come last, in the order of the data.
    """
    n = len(covariance)
    variance = covariance.diagonal().copy()
    factor = np.zeros((n, n))  # by column of the factor
    chosen = np.empty(n, np.int64)
    for k in range(n):
        pivot = int(np.argmax(variance))
        if not variance[pivot] > 0.0:
            chosen[k:] = np.setdiff1d(np.arange(n), chosen[:k])
            break
        chosen[k] = pivot
        column = covariance[:, pivot] - factor[:k].T @ factor[:k, pivot]
        factor[k] = column / np.sqrt(variance[pivot])
        variance -= factor[k] ** 2
        variance[chosen[: k + 1]] = -np.inf
    return chosen


def whitening_of(covariance: Floats, order: NDArray[np.int64]) -> Floats:
    """Return the inverse of the lower Cholesky factor of a covariance in an order of its points.

    Its leading ``k`` rows and columns are those of the first ``k`` points alone, so that all
    conditional distributions of later points given earlier ones can be read from its rows.

    Raises
    ------
    ValueError
        If the matrix is not positive definite.
    """
    factor = factor_of(
        covariance[np.ix_(order, order)],
        "covariance with 1 added to its diagonal",
        "pass a covariance without negative eigenvalues, or name a jitter",
    )
    return np.tril(np.linalg.solve(factor, np.eye(len(factor))))
