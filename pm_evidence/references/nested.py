"""A density of a few hyperparameters, times a normal density of the other variables given them."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.references.mixture import Component

__all__ = ["NestedNormal"]

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

# Scale of the kernel of the interpolation, in units of the spacing, and what is added to the
# variance of the points that it covers, which bounds the extrapolation.
_KERNEL, _RIDGE = 0.5, 0.01
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
    at : ndarray, shape (m, k)
        Points of a lattice of hyperparameters, at which mean and covariance are known.
    spacing : ndarray, shape (k,)
        Distances of neighbours.
    mean : ndarray, shape (m, r)
        Means of the other variables.
    slope : ndarray, shape (m, k, r)
        Their derivatives by the hyperparameters.
    log_scale : ndarray, shape (m, r)
        Logs of the diagonals of the lower Cholesky factors of their covariances.
    factor : ndarray, shape (m, r * (r - 1) / 2)
        The elements of these factors below the diagonal, by rows, divided by the diagonal element
        of their column.

    Notes
    -----
    Between the points, mean and Cholesky factor are interpolated by moving least squares (Lancaster
    and Salkauskas 1981): weighted means, whose weights are those of a normal kernel times a linear
    function such that linear functions are reproduced. Half of what the slopes predict is added to
    the mean, by which quadratic functions are reproduced as well; outside of the lattice, where
    distances do not average to zero, the other half of the average distance is.
    """

    given: Positions
    rest: Positions
    hyper: Component
    at: Floats
    spacing: Floats
    mean: Floats
    slope: Floats
    log_scale: Floats
    factor: Floats

    @classmethod
    def between(
        cls,
        given: Positions,
        rest: Positions,
        hyper: Component,
        at: Floats,
        spacing: Floats,
        mean: Floats,
        slope: Floats,
        factors: Floats,
    ) -> Self:
        """Return the density from the lower Cholesky factors of covariances, ``(m, r, r)``."""
        diagonal = np.diagonal(factors, axis1=1, axis2=2)
        below = np.tril_indices(rest.size, -1)
        factor = (factors / diagonal[:, None, :])[:, below[0], below[1]]
        return cls(given, rest, hyper, at, spacing, mean, slope, np.log(diagonal), factor)

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Return ``n`` independent draws, shape ``(n, k + r)``."""
        x = np.empty((n, self.given.size + self.rest.size))
        x[:, self.given] = self.hyper.draw(n, rng)
        noise = rng.standard_normal((n, self.rest.size))
        for rows in self._chunks(n):
            mean, log_scale, factor = self._interpolated(x[rows, self.given])
            scaled = np.exp(log_scale) * noise[rows[:, 0]]
            x[rows, self.rest] = mean + (factor @ scaled[:, :, None])[:, :, 0]
        return x

    def log_density(self, x: Floats) -> Floats:
        """Return the normalised log density of every row of ``x`` in nats."""
        from scipy.linalg.lapack import dtrtrs  # importing SciPy takes as long as the package

        found: Floats = self.hyper.log_density(x[:, self.given])
        found = found - 0.5 * self.rest.size * np.log(2.0 * np.pi)
        for rows in self._chunks(len(x)):
            mean, log_scale, factor = self._interpolated(x[rows, self.given])
            apart = x[rows, self.rest] - mean
            for a, b in zip(factor, apart, strict=True):
                b[:] = dtrtrs(a, b, lower=1, unitdiag=1)[0]
            noise = apart * np.exp(-log_scale)
            found[rows[:, 0]] -= log_scale.sum(axis=1) + 0.5 * (noise * noise).sum(axis=1)
        return found

    def _chunks(self, n: int) -> list[NDArray[np.int64]]:
        """Return row indices of parts, each of shape ``(n_part, 1)``."""
        widest = max(self.rest.size**2, len(self.at) * self.given.size)
        n_parts = -(-n * widest // _MOST_ELEMENTS)
        return [part[:, None] for part in np.array_split(np.arange(n), max(n_parts, 1))]

    def _interpolated(self, values: Floats) -> tuple[Floats, Floats, Floats]:
        """Return mean, log scales and factor at hyperparameters, each with a row for each."""
        weight, apart = self._weights(values)
        mean = weight @ self.mean
        for j in range(self.given.size):
            weighted = weight * apart[:, :, j]
            left_over = weighted.sum(axis=1, keepdims=True)
            mean += 0.5 * (weighted + left_over * weight) @ self.slope[:, j]
        r = self.rest.size
        factor = np.zeros((len(values), r, r))
        factor[:, np.arange(r), np.arange(r)] = 1.0
        below = np.tril_indices(r, -1)
        factor[:, below[0], below[1]] = weight @ self.factor
        return mean, weight @ self.log_scale, factor

    def _weights(self, values: Floats) -> tuple[Floats, Floats]:
        """Return weights of the points, shape ``(n, m)``, and distances, shape ``(n, m, k)``."""
        apart = values[:, None] - self.at
        scaled = apart / self.spacing
        exponent = -0.5 * (scaled**2).sum(axis=2) / _KERNEL**2
        weight = np.exp(exponent - exponent.max(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        mean = np.einsum("nm,nmk->nk", weight, scaled)
        centred = scaled - mean[:, None]
        spread = np.einsum("nm,nmj,nmk->njk", weight, centred, centred)
        spread += _RIDGE * np.eye(self.given.size)
        tilt = np.linalg.solve(spread, mean[:, :, None])[:, :, 0]
        weight *= 1.0 - np.einsum("nmk,nk->nm", centred, tilt)
        return weight, apart
