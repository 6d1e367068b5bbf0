"""Known peaks of a log density, at which ascents end before they have converged."""

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

__all__ = ["KnownPeaks", "reached"]

Floats = NDArray[np.float64]

# An ascent has reached a peak if the curvature there predicts the log density, and the gain of a
# Newton step, this well, in nats.
_CLOSE = 0.25


@dataclass(frozen=True, slots=True)
class KnownPeaks:
    """Peaks with the normal densities that have the same curvature.

    Parameters
    ----------
    mean : ndarray, shape (k, d)
        Positions of the peaks.
    factor : ndarray, shape (k, d, d)
        Lower Cholesky factors of the inverse of minus the second derivatives.
    height : ndarray, shape (k,)
        Log densities, in nats.
    """

    mean: Floats
    factor: Floats
    height: Floats

    @classmethod
    def none(cls, n_dim: int) -> "KnownPeaks":
        """Return no peak in ``n_dim`` dimensions."""
        return cls(np.empty((0, n_dim)), np.empty((0, n_dim, n_dim)), np.empty(0))


def reached(x: Floats, height: Floats, gradient: Floats, known: KnownPeaks) -> NDArray[np.int64]:
    """Return the index of the peak whose curvature explains what is found at each point, or -1.

    Log density and slope are compared: another peak nearby would change one of them.

    Parameters
    ----------
    x, gradient : ndarray, shape (n, d)
        Points, and the gradients of the log density there.
    height : ndarray, shape (n,)
        Log densities.
    known : KnownPeaks
        The peaks.
    """
    found = np.full(len(x), -1)
    for k in range(len(known.height)):
        rows = np.flatnonzero(found < 0)
        if not rows.size:
            break
        factor, mean = known.factor[k], known.mean[k]
        z = scipy.linalg.solve_triangular(
            factor, (x[rows] - mean).T, lower=True, check_finite=False
        ).T
        misfit = np.abs(known.height[k] - 0.5 * (z**2).sum(axis=1) - height[rows])
        apart = ((z + gradient[rows] @ factor) ** 2).sum(axis=1)
        found[rows[(misfit < _CLOSE) & (0.5 * apart < _CLOSE)]] = k
    return found
