"""A density of a few hyperparameters, times a normal density of the other variables given them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape
from pm_evidence.core.sparse_shape import SparseShape
from pm_evidence.core.triangular import Pattern
from pm_evidence.references.mixture import Component
from pm_evidence.references.surfaces import Surface

__all__ = ["NestedNormal", "functions_of"]

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

# Largest number of elements of the matrices that are computed at once: it bounds the memory.
_MOST_ELEMENTS = 4_000_000


@dataclass(frozen=True, slots=True)
class NestedNormal:
    """The density of hyperparameters, and of other variables whose mean and covariance they set.

    Parameters
    ----------
    given, rest : ndarray of int64, shapes (k,) and (r,)
        Positions of the hyperparameters and of the other variables.
    hyper : Component
        Density of the hyperparameters.
    surface : Surface
        Means of the other variables as functions of the hyperparameters; logs of the diagonals of
        the lower Cholesky factors of their inverse covariances; and the elements of these factors
        below the diagonal, divided by the diagonal element of their column.
    pattern : Pattern
        Where these elements are.
    """

    given: Positions
    rest: Positions
    hyper: Component
    surface: Surface
    pattern: Pattern

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Return ``n`` independent draws, shape ``(n, k + r)``."""
        x = np.empty((n, self.given.size + self.rest.size))
        x[:, self.given] = self.hyper.draw(n, rng)
        noise = rng.standard_normal((n, self.rest.size))
        for rows in self._chunks(n):
            mean, log_diagonal, elements = self._moments(x[rows, self.given])
            apart = noise[rows[:, 0]] * np.exp(-log_diagonal)
            for j in reversed(range(self.rest.size)):
                mine = slice(self.pattern.start[j], self.pattern.start[j + 1])
                below = apart[:, self.pattern.row[mine]]
                apart[:, j] -= (elements[:, mine] * below).sum(axis=1)
            x[rows, self.rest] = mean + apart
        return x

    def log_density(self, x: Floats) -> Floats:
        """Return the normalised log density of every row of ``x`` in nats."""
        found: Floats = self.hyper.log_density(x[:, self.given])
        found = found - 0.5 * self.rest.size * np.log(2.0 * np.pi)
        start = self.pattern.start
        used = np.flatnonzero(np.diff(start))
        for rows in self._chunks(len(x)):
            mean, log_diagonal, elements = self._moments(x[rows, self.given])
            apart = x[rows, self.rest] - mean
            elements *= apart[:, self.pattern.row]
            if used.size:
                apart[:, used] += np.add.reduceat(elements, start[used], axis=1)
            noise = apart * np.exp(log_diagonal)
            found[rows[:, 0]] += log_diagonal.sum(axis=1) - 0.5 * (noise * noise).sum(axis=1)
        return found

    def shape_at(self, values: Floats) -> SparseShape:
        """Return location and scale of the other variables, given hyperparameters, shape (k,)."""
        (mean,), (log_diagonal,), (elements,) = self._moments(values[None])
        diagonal = np.exp(log_diagonal)
        below = elements * diagonal[self.pattern.column]
        return SparseShape(mean, np.arange(mean.size), self.pattern, diagonal, below)

    def _moments(self, values: Floats) -> tuple[Floats, Floats, Floats]:
        """Return means, logs of the diagonals, and elements below, in one row for each value."""
        r = self.rest.size
        mean, log_diagonal, elements = np.split(self.surface(values), [r, 2 * r], axis=1)
        return mean, log_diagonal, elements

    def _chunks(self, n: int) -> list[NDArray[np.int64]]:
        """Return row indices of parts, each of shape ``(n_part, 1)``."""
        n_functions = 2 * self.rest.size + self.pattern.row.size
        n_parts = -(-n * max(n_functions, self.surface.n_weights) // _MOST_ELEMENTS)
        return [part[:, None] for part in np.array_split(np.arange(n), max(n_parts, 1))]


def functions_of(shapes: Sequence[Shape | SparseShape]) -> tuple[Floats, Pattern]:
    """Return what a ``NestedNormal`` needs to know of normal densities at some points.

    Parameters
    ----------
    shapes : sequence of Shape or SparseShape, length m
        Location and scale of ``r`` variables at each point, with the same pattern.

    Returns
    -------
    functions : ndarray, shape (m, 2 * r + n)
        The values of its functions.
    pattern : Pattern
        Where the ``n`` elements of the factor below the diagonal are.
    """
    known = [SparseShape.of(each) if isinstance(each, Shape) else each for each in shapes]
    pattern = known[0].pattern
    column = pattern.column
    rows = [
        np.concatenate([each.mean, np.log(each.diagonal), each.below / each.diagonal[column]])
        for each in known
    ]
    return np.array(rows), pattern
