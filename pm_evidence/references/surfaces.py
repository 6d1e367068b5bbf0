"""Functions of a few variables that are known at some points."""

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape

__all__ = ["MovingLeastSquares", "QuadraticSurface", "Surface", "n_coefficients"]

Floats = NDArray[np.float64]

# Scale of the kernel of the interpolation, in units of the spacing, and what is added to the
# variance of the points that it covers, which bounds the extrapolation.
_KERNEL, _RIDGE = 0.5, 0.01
# Coordinates are bounded by this number of standard deviations in quadratic terms, because a
# quadratic function that is fitted to points about the origin is wrong far from them.
_FAR = 2.5


class Surface(Protocol):
    """Several functions of a few variables."""

    @property
    def n_weights(self) -> int:
        """Number of values that are computed for every row."""
        ...

    def __call__(self, values: Floats) -> Floats:
        """Return the functions at every row of ``values``, shape ``(n, q)``."""
        ...


def n_coefficients(n_variables: int) -> int:
    """Return the number of coefficients of a quadratic function."""
    return (n_variables + 1) * (n_variables + 2) // 2


def _quadratic_terms(u: Floats) -> Floats:
    """Return the terms of quadratic functions, shape ``(n, n_coefficients(k))``."""
    near = np.clip(u, -_FAR, _FAR)
    first, second = np.triu_indices(u.shape[1])
    return np.column_stack([np.ones(len(u)), near, near[:, first] * near[:, second]])


@dataclass(frozen=True, slots=True)
class QuadraticSurface:
    """Functions that are fitted by least squares to their values at some points.

    Parameters
    ----------
    shape : Shape
        Location and scale of the variables, in whose coordinates the functions are quadratic.
    coefficient : ndarray, shape (c, q)
        Coefficients of all ``q`` functions.
    """

    shape: Shape
    coefficient: Floats

    @classmethod
    def through(cls, shape: Shape, at: Floats, values: Floats) -> Self:
        """Return the functions fitted to ``values``, shape (m, q), at points, shape (m, k)."""
        terms = _quadratic_terms(shape.whitened(at))
        return cls(shape, np.linalg.lstsq(terms, values)[0])

    @property
    def n_weights(self) -> int:
        """Number of values that are computed for every row."""
        return len(self.coefficient)

    def __call__(self, values: Floats) -> Floats:
        """Return the functions at every row of ``values``, shape ``(n, q)``."""
        return _quadratic_terms(self.shape.whitened(values)) @ self.coefficient


@dataclass(frozen=True, slots=True)
class MovingLeastSquares:
    """Functions that are interpolated between the points of a lattice.

    Parameters
    ----------
    at : ndarray, shape (m, k)
        Points of the lattice.
    spacing : ndarray, shape (k,)
        Distances of neighbours.
    known : ndarray, shape (m, q)
        The functions at the points.
    slope : ndarray, shape (m, k, r)
        Derivatives of the first ``r`` functions.

    Notes
    -----
    Weighted means are taken, whose weights are those of a normal kernel times a linear function
    such that linear functions are reproduced (Lancaster and Salkauskas 1981). Where slopes are
    known, half of what they predict is added, by which quadratic functions are reproduced as well;
    outside of the lattice, where distances do not average to zero, the other half of the average
    distance is.
    """

    at: Floats
    spacing: Floats
    known: Floats
    slope: Floats

    @property
    def n_weights(self) -> int:
        """Number of values that are computed for every row."""
        return self.at.size

    def __call__(self, values: Floats) -> Floats:
        """Return the functions at every row of ``values``, shape ``(n, q)``."""
        weight, apart = self._weights(values)
        found = weight @ self.known
        with_slope = found[:, : self.slope.shape[2]]
        for j in range(self.spacing.size):
            weighted = weight * apart[:, :, j]
            left_over = weighted.sum(axis=1, keepdims=True)
            with_slope += 0.5 * (weighted + left_over * weight) @ self.slope[:, j]
        return found

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
        spread += _RIDGE * np.eye(self.spacing.size)
        tilt = np.linalg.solve(spread, mean[:, :, None])[:, :, 0]
        weight *= 1.0 - np.einsum("nmk,nk->nm", centred, tilt)
        return weight, apart
