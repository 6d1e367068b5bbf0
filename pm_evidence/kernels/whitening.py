"""Steps and distances in coordinates whitened by a population's shape.

A factor is a lower Cholesky factor, or standard deviations as a column.
"""

import numba as nb

__all__ = ["move_along", "squared_distance"]


@nb.njit(cache=True, nogil=True, error_model="numpy")
def move_along(position, free, factor, size, direction):
    """Move the free coordinates of ``position`` by ``size`` times the factor times a direction."""
    d = free.size
    if factor.shape[1] != d:
        for j in range(d):
            position[free[j]] += size * factor[j, 0] * direction[j]
        return
    for j in range(d):
        total = 0.0
        for m in range(j + 1):
            total += factor[j, m] * direction[m]
        position[free[j]] += size * total


@nb.njit(cache=True, nogil=True, error_model="numpy")
def squared_distance(position, free, mean, factor, work):
    """Return the squared Mahalanobis distance from the mean; ``work`` is overwritten."""
    d = free.size
    dense = factor.shape[1] == d
    total = 0.0
    for j in range(d):
        residual = position[free[j]] - mean[j]
        if dense:
            for m in range(j):
                residual -= factor[j, m] * work[m]
            work[j] = residual / factor[j, j]
        else:
            work[j] = residual / factor[j, 0]
        total += work[j] * work[j]
    return total
