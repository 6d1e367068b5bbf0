"""An affine map that aligns the posterior of one model with that of another."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import learn_shape

__all__ = ["ALIGNMENTS", "Alignment"]

Floats = NDArray[np.float64]

# What the map makes equal: nothing, location and scale of every coordinate, or all covariances.
ALIGNMENTS = ("none", "scales", "covariances")


@dataclass(frozen=True, eq=False)
class Alignment:
    """The map ``T(z) = location + matrix (z - origin)``, and its inverse.

    Parameters
    ----------
    origin, location : ndarray, shape (d,)
        A point, and where it is mapped to.
    matrix : ndarray, shape (d, d) or (d, 1)
        A lower triangular matrix, or the diagonal of a diagonal one.
    """

    origin: Floats
    location: Floats
    matrix: Floats

    @classmethod
    def of(cls, kind: str, reference: Floats, target: Floats) -> Self:
        """Return the map that gives draws the moments of others.

        Parameters
        ----------
        kind : str
            One of ``ALIGNMENTS``.
        reference, target : ndarray, shape (n, d)
            The draws that are mapped, and those whose moments they then have.
        """
        d = reference.shape[1]
        if kind == "none" or d == 0:
            return cls(np.zeros(d), np.zeros(d), np.ones((d, 1)))
        dense = None if kind == "covariances" else False
        one, other = (learn_shape(x, dense) for x in (reference, target))
        if one.is_dense and other.is_dense:
            matrix = np.linalg.solve(one.factor.T, other.factor.T).T
        else:
            one, other = (learn_shape(x, dense=False) for x in (reference, target))
            matrix = other.factor / one.factor
        return cls(one.mean, other.mean, matrix)

    @property
    def is_dense(self) -> bool:
        """Whether the matrix has entries beside the diagonal."""
        return self.matrix.shape[1] == self.matrix.shape[0] > 1

    @property
    def log_volume(self) -> float:
        """Log of the determinant of the matrix."""
        scales = np.diag(self.matrix) if self.is_dense else self.matrix[:, 0]
        return float(np.log(scales).sum())

    def back(self, y: Floats) -> Floats:
        """Return the points that are mapped to the rows of ``y``, shape ``(n, d)``."""
        apart = y - self.location
        if self.is_dense:
            return self.origin + np.linalg.solve(self.matrix, apart.T).T
        return self.origin + apart / self.matrix[:, 0]
