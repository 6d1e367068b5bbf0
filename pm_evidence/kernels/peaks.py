"""Known peaks of a log density, at which ascents end before they have converged."""

from dataclasses import dataclass

import numba as nb
import numpy as np
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


@nb.njit(cache=True, nogil=True, error_model="numpy")
def reached(x, height, gradient, mean, factor, heights):
    """Return the index of the peak whose curvature explains what is found at ``x``, or -1.

    Log density and slope are compared: another peak nearby would change one of them. The rows of
    ``gradient`` are those of the log prior and of the log likelihood.
    """
    d = x.size
    z = np.empty(d)
    for k in range(heights.size):
        square = 0.0
        for i in range(d):  # forward substitution
            z[i] = x[i] - mean[k, i]
            for j in range(i):
                z[i] -= factor[k, i, j] * z[j]
            z[i] /= factor[k, i, i]
            square += z[i] * z[i]
        if not abs(heights[k] - 0.5 * square - height) < _CLOSE:
            continue
        apart = 0.0
        for j in range(d):
            slope = z[j]
            for i in range(j, d):
                slope += factor[k, i, j] * (gradient[0, i] + gradient[1, i])
            apart += slope * slope
        if 0.5 * apart < _CLOSE:
            return k
    return -1
