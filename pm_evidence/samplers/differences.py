"""Second derivatives of a log density by finite differences of its gradient."""

import numpy as np
from numpy.typing import NDArray

from pm_evidence.paths.posterior import Posterior
from pm_evidence.samplers.sparsity import Sparsity

__all__ = ["STEP", "Differences"]

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

# Step of the finite differences in units of the scale of the curvature, or of the prior.
STEP = 1e-3
# Largest number of gradients that are computed at once: it bounds the memory.
_MOST_ROWS = 256
# Second derivatives are overlooked if the change of a gradient differs by more, relative to the
# largest one that the known derivatives may give.
_OVERLOOKED = 0.05


class Differences:
    """Gradients of a log density and their differences.

    Parameters
    ----------
    posterior : Posterior
        The density.

    Attributes
    ----------
    n_evaluations : int
        Evaluations of the density and its gradient so far.
    """

    def __init__(self, posterior: Posterior) -> None:
        self.posterior, self.n_evaluations = posterior, 0

    def height(self, x: Floats) -> tuple[float, Floats]:
        """Return log density and gradient at a point."""
        height, gradient = self.heights(x[None])
        return float(height[0]), gradient[0]

    def heights(self, points: Floats) -> tuple[Floats, Floats]:
        """Return log density and gradient at every row of ``points``."""
        self.n_evaluations += len(points)
        return self.posterior.with_gradient(points)

    def change(self, x: Floats, gradient: Floats, steps: Floats) -> Floats:
        """Return how the gradient changes along each row of ``steps``, one in each row."""
        found = np.empty(steps.shape)
        for start in range(0, len(found), _MOST_ROWS):
            rows = slice(start, start + _MOST_ROWS)
            found[rows] = self.heights(x + steps[rows])[1] - gradient
        return found

    def sparsity(
        self, matrix: Floats, rows: Positions, lengths: Floats, tests: Floats
    ) -> Sparsity | None:
        """Return which second derivatives are zero, if most are.

        Parameters
        ----------
        matrix : ndarray, shape (m, m)
            Second derivatives at a point, where some may be zero by chance.
        rows : ndarray of int64, shape (m,)
            Their positions.
        lengths : ndarray, shape (m,)
            Scales of these variables.
        tests : ndarray, shape (n, d)
            Points at which no further one may be overlooked.
        """
        matrices, found = [matrix], Sparsity.of(matrix)
        for x in tests:
            if found is not None and self._overlooks(found, x, rows, lengths):
                matrices.append(self._matrix(x, rows, lengths))
                found = Sparsity.of(*matrices)
        return found

    def _overlooks(self, sparsity: Sparsity, x: Floats, rows: Positions, lengths: Floats) -> bool:
        """Return whether second derivatives at a point are overlooked, by one random direction."""
        rows, lengths = rows[sparsity.order], lengths[sparsity.order]
        direction = np.random.default_rng(rows.size).choice((-1.0, 1.0), rows.size) * lengths
        steps = np.zeros((sparsity.n_groups + 1, x.size))
        steps[:, rows] = np.vstack([sparsity.steps(lengths), direction])
        change = self.change(x, self.height(x)[1], STEP * steps)[:, rows] / STEP
        diagonal, below = sparsity.elements(change[:-1], lengths)
        found = sparsity.times(diagonal, below, direction)
        largest = sparsity.times(np.abs(diagonal), np.abs(below), lengths)
        return bool((np.abs(found - change[-1]) > _OVERLOOKED * largest).any())

    def _matrix(self, x: Floats, rows: Positions, lengths: Floats) -> Floats:
        """Return second derivatives at a point in units of the lengths, shape ``(m, m)``."""
        steps = np.zeros((rows.size, x.size))
        steps[np.arange(rows.size), rows] = STEP * lengths
        change = self.change(x, self.height(x)[1], steps)[:, rows] * (lengths / STEP)
        matrix: Floats = 0.5 * (change + change.T)
        return matrix
