"""A density of a few hyperparameters, times a normal density of the other variables given them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
        the lower Cholesky factors of their covariances; and the elements of these factors below
        the diagonal, by rows, divided by the diagonal element of their column.
    """

    given: Positions
    rest: Positions
    hyper: Component
    surface: Surface

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Return ``n`` independent draws, shape ``(n, k + r)``."""
        x = np.empty((n, self.given.size + self.rest.size))
        x[:, self.given] = self.hyper.draw(n, rng)
        noise = rng.standard_normal((n, self.rest.size))
        for rows in self._chunks(n):
            mean, log_scale, factor = self.moments(x[rows, self.given])
            scaled = np.exp(log_scale) * noise[rows[:, 0]]
            x[rows, self.rest] = mean + (factor @ scaled[:, :, None])[:, :, 0]
        return x

    def log_density(self, x: Floats) -> Floats:
        """Return the normalised log density of every row of ``x`` in nats."""
        from scipy.linalg.lapack import dtrtrs  # importing SciPy takes as long as the package

        found: Floats = self.hyper.log_density(x[:, self.given])
        found = found - 0.5 * self.rest.size * np.log(2.0 * np.pi)
        for rows in self._chunks(len(x)):
            mean, log_scale, factor = self.moments(x[rows, self.given])
            apart = x[rows, self.rest] - mean
            for a, b in zip(factor, apart, strict=True):
                b[:] = dtrtrs(a, b, lower=1, unitdiag=1)[0]
            noise = apart * np.exp(-log_scale)
            found[rows[:, 0]] -= log_scale.sum(axis=1) + 0.5 * (noise * noise).sum(axis=1)
        return found

    def moments(self, values: Floats) -> tuple[Floats, Floats, Floats]:
        """Return what the normal density is at some values of the hyperparameters.

        Parameters
        ----------
        values : ndarray, shape (n, k)
            Hyperparameters.

        Returns
        -------
        mean, log_scale : ndarray, shape (n, r)
            Mean, and logs of the diagonal of the lower Cholesky factor of the covariance.
        factor : ndarray, shape (n, r, r)
            This factor with the elements of each column divided by that on the diagonal.
        """
        r = self.rest.size
        mean, log_scale, elements = np.split(self.surface(values), [r, 2 * r], axis=1)
        factor = np.zeros((len(values), r, r))
        factor[:, np.arange(r), np.arange(r)] = 1.0
        below = np.tril_indices(r, -1)
        factor[:, below[0], below[1]] = elements
        return mean, log_scale, factor

    def _chunks(self, n: int) -> list[NDArray[np.int64]]:
        """Return row indices of parts, each of shape ``(n_part, 1)``."""
        widest = max(self.rest.size**2, self.surface.n_weights)
        n_parts = -(-n * widest // _MOST_ELEMENTS)
        return [part[:, None] for part in np.array_split(np.arange(n), max(n_parts, 1))]


def functions_of(means: Floats, factors: Floats) -> Floats:
    """Return what a ``NestedNormal`` needs to know at some points.

    Parameters
    ----------
    means : ndarray, shape (m, r)
        Means of the other variables.
    factors : ndarray, shape (m, r, r)
        Lower Cholesky factors of their covariances.

    Returns
    -------
    ndarray, shape (m, r * (r + 3) / 2)
        The values of its functions.
    """
    diagonal = np.diagonal(factors, axis1=1, axis2=2)
    below = np.tril_indices(means.shape[1], -1)
    factor = (factors / diagonal[:, None, :])[:, below[0], below[1]]
    return np.concatenate([means, np.log(diagonal), factor], axis=1)
