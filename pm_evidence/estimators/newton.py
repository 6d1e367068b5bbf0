"""Log normalising constants that make expected counts equal to given ones, by damped Newton steps.

The equations of MBAR and of the combined estimate of tempering have this form: the unknown log
constants enter probabilities of states, which are summed over points or over rounds.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["laplacian", "minimise"]

Floats = NDArray[np.float64]

_MAX_ITERATIONS = 500
# Newton's steps converge quadratically: after one of this size (nats) the rest is rounding.
_CONVERGED = 1e-9
# Steps of less than this size that no longer become smaller consist of rounding errors.
_STALLED = 1e-3
_ROUNDING = 1e-14  # of the gradient, relative to the root of the number of points
_TINY = 1e-300


def minimise(
    expected: Callable[[Floats], tuple[Floats, Floats]], counts: Floats, log_z: Floats
) -> tuple[Floats, Floats]:
    """Return log constants at which the expected counts are those observed.

    Parameters
    ----------
    expected : callable
        Returns for log constants, shape ``(n_states,)``, the expected counts
        ``sum_n p[n, k]``, shape ``(n_states,)``, and their products ``sum_n p[n, j] p[n, k]``.
        The probability ``p[n, k]`` of state ``k`` is proportional to ``exp(-log_z[k])``, and those
        of a point add up to 1.
    counts : ndarray, shape (n_states,)
        Observed counts, positive.
    log_z : ndarray, shape (n_states,)
        Log constants to start from, in nats.

    Returns
    -------
    log_z : ndarray, shape (n_states,)
        The solution in nats, whose first entry is free.
    products : ndarray, shape (n_states, n_states)
        The products of probabilities there.

    Notes
    -----
    The log likelihood whose derivatives the equations are is concave. Its curvature along a line
    changes by no more than the factor ``exp(t)`` while two constants change by ``t`` relative to
    each other, so that a Newton step ``d`` scaled by ``log(1 + r) / r``, where
    ``r = max(d) - min(d)``, always increases it. If a step does not reduce the norm of the
    gradient, or the matrix is singular, a self-consistent iteration follows, which increases it
    too.
    """
    products = np.empty((len(counts), len(counts)))
    last_norm = last_size = np.inf
    for _ in range(_MAX_ITERATIONS):
        sums, products = expected(log_z)
        gradient = sums - counts
        norm = float(np.sqrt(np.sum(gradient**2 / counts)))
        if norm <= _ROUNDING * np.sqrt(counts.sum()):
            break
        step = _newton(gradient, products) if norm < last_norm else None
        if step is None:
            log_z = log_z + np.log(np.maximum(sums, _TINY) / counts)
            last_norm = last_size = np.inf
            continue
        size = float(np.ptp(step))
        if size < _STALLED and size > 0.5 * last_size:
            break
        log_z = log_z + step * (np.log1p(size) / size if size > 0.0 else 1.0)
        if size < _CONVERGED:
            break
        last_norm, last_size = norm, size
    return log_z, products


def _newton(gradient: Floats, products: Floats) -> Floats | None:
    """Return the Newton step of ``log_z``, whose first entry is held; None if there is none."""
    matrix = laplacian(products)[1:, 1:]
    root = np.sqrt(np.maximum(np.diag(matrix), _TINY))
    step = np.zeros(len(gradient))
    try:
        step[1:] = np.linalg.solve(matrix / np.outer(root, root), gradient[1:] / root) / root
    except np.linalg.LinAlgError:
        return None
    return step if np.isfinite(step).all() and gradient @ step >= 0.0 else None


def laplacian(products: Floats) -> Floats:
    """Return the second derivatives of minus the log likelihood.

    They are ``diag(sum_n p[n, k]) - sum_n p[n, j] p[n, k]``, the Laplacian of a graph: rows add up
    to zero because the probabilities of a point add up to one. So the diagonal is computed from the
    rest of its row, without cancellation where states hardly overlap.
    """
    edges = products.copy()
    np.fill_diagonal(edges, 0.0)
    matrix: Floats = np.diag(edges.sum(axis=1)) - edges
    return matrix
