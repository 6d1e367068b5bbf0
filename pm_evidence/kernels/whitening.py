"""Steps and distances in coordinates whitened by a population's shape.

A factor is a lower Cholesky factor, or standard deviations as a column.
"""

from pm_evidence.core.codegen.numba import njit

__all__ = ["move_along", "pull_back", "squared_distance"]


@njit
def move_along(position, free, factor, size, direction):
    """Move the free coordinates of ``position`` by ``size`` times the factor times a direction."""
    d = free.size
    if factor.shape[1] == d and d > 1:
        for j in range(d):
            total = 0.0
            for m in range(j + 1):
                total += factor[j, m] * direction[m]
            position[free[j]] += size * total
        return
    scale = factor.reshape(d)
    if d == position.size:  # no gather: the loop is vectorised
        for j in range(d):
            position[j] += size * scale[j] * direction[j]
        return
    for j in range(d):
        position[free[j]] += size * scale[j] * direction[j]


@njit
def pull_back(gradient, beta, free, factor, force):
    """Set ``force`` to the transposed factor times the gradient of the log density at beta."""
    d = free.size
    if factor.shape[1] == d and d > 1:
        force[:] = 0.0
        for j in range(d):
            slope = gradient[0, free[j]] + beta * gradient[1, free[j]]
            for m in range(j + 1):
                force[m] += factor[j, m] * slope
        return
    scale = factor.reshape(d)
    prior, likelihood = gradient[0], gradient[1]
    if d == prior.size:
        for j in range(d):
            force[j] = scale[j] * (prior[j] + beta * likelihood[j])
        return
    for j in range(d):
        force[j] = scale[j] * (prior[free[j]] + beta * likelihood[free[j]])


@njit
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
