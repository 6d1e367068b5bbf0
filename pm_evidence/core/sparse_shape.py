"""Location and scale of a normal density, by a precision matrix most of whose elements are zero."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core import triangular
from pm_evidence.core.shape import Shape, squares
from pm_evidence.core.triangular import Pattern

__all__ = ["SparseShape", "conditioned"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SparseShape:
    """Location, and the inverse of a covariance by its lower Cholesky factor.

    In models with many parameters, most of these are independent given the others, so that few
    elements of the factor are not zero. It is used as a ``Shape`` is.

    Parameters
    ----------
    mean : ndarray, shape (d,)
        Mean.
    order : ndarray of int64, shape (d,)
        The coordinates in the order of the rows of the factor.
    pattern : Pattern
        Elements of the factor below the diagonal.
    diagonal : ndarray, shape (d,)
        Diagonal of the factor.
    below : ndarray, shape (n,)
        The elements below the diagonal.
    """

    mean: Floats
    order: NDArray[np.int64]
    pattern: Pattern
    diagonal: Floats
    below: Floats

    @classmethod
    def of(cls, shape: Shape) -> Self:
        """Return the form of a dense shape, in which no element is known to be zero."""
        d = shape.mean.size
        upper = np.linalg.qr(shape.whitened(shape.mean + np.eye(d)).T, mode="r")
        factor = upper.T * np.sign(np.diag(upper))
        pattern = Pattern.full(d)
        below = factor[pattern.row, pattern.column]
        return cls(shape.mean, np.arange(d), pattern, np.diag(factor).copy(), below)

    @property
    def log_volume(self) -> float:
        """Half of the log determinant of the covariance."""
        return -float(np.log(self.diagonal).sum())

    def whitened(self, x: Floats) -> Floats:
        """Return every row of ``x``, shape ``(n, d)``, in coordinates of mean 0 and scale 1."""
        return self._with_rows(
            triangular.multiply_rows_by_transposed, (x - self.mean)[:, self.order]
        )

    def squared_distances(self, x: Floats) -> Floats:
        """Return the squared Mahalanobis distance of every row of ``x`` from the mean."""
        return squares(self.whitened(x))

    def scaled(self, noise: Floats) -> Floats:
        """Return rows of unit normal variables as deviations from the mean, shape ``(n, d)``."""
        scaled = np.empty(noise.shape)
        scaled[:, self.order] = self._with_rows(triangular.solve_rows_transposed, noise)
        return scaled

    def whitened_slopes(self, gradients: Floats) -> Floats:
        """Return rows of derivatives with respect to the coordinates of scale 1, shape (n, d)."""
        return self._with_rows(triangular.solve_rows, gradients[:, self.order])

    def times(self, factor: float) -> "SparseShape":
        """Return the shape with scales that are multiplied by a number."""
        return replace(self, diagonal=self.diagonal / factor, below=self.below / factor)

    def each_times(self, factors: Floats) -> "SparseShape":
        """Return the shape in which each coordinate of scale 1 is multiplied by a number."""
        below = self.below / factors[self.pattern.column]
        return replace(self, diagonal=self.diagonal / factors, below=below)

    def covariance_times(self, rows: Floats) -> Floats:
        """Return the covariance times every row, shape ``(n, d)``."""
        return self.scaled(self.whitened_slopes(rows))

    @property
    def lengths(self) -> Floats:
        """Standard deviation of each coordinate given the others, shape ``(d,)``."""
        d = self.diagonal.size
        squares = self.diagonal**2 + np.bincount(self.pattern.row, self.below**2, minlength=d)
        lengths = np.empty(d)
        lengths[self.order] = 1.0 / np.sqrt(squares)
        return lengths

    def _with_rows(self, kernel: Callable[..., None], rows: Floats) -> Floats:
        """Return what a kernel makes of every row."""
        found = np.array(rows, order="C")
        kernel(self.pattern, self.diagonal, self.below, found)
        return found


def conditioned(
    shape: SparseShape, mean: Floats, order: NDArray[np.int64], slope: Floats, factor: Floats
) -> SparseShape:
    """Return the joint shape of some variables, and of others that they depend on.

    Parameters
    ----------
    shape : SparseShape
        Of ``m`` variables given ``k`` others.
    mean : ndarray, shape (m + k,)
        Mean of all.
    order : ndarray of int64, shape (m + k,)
        Positions of the variables, and then of the others, in ``mean``.
    slope : ndarray, shape (m, k)
        Change of the mean of the variables with each of the others.
    factor : ndarray, shape (k, k)
        Lower Cholesky factor of the covariance of the others.
    """
    m, k = slope.shape
    pattern = shape.pattern
    whitened = shape.whitened(shape.mean + slope.T)
    own = np.linalg.cholesky(np.linalg.inv(factor @ factor.T)) if k else np.empty((0, 0))
    column = np.concatenate(
        [pattern.column, np.repeat(np.arange(m), k), m + np.tril_indices(k, -1)[1]]
    )
    row = np.concatenate([pattern.row, np.tile(m + np.arange(k), m), m + np.tril_indices(k, -1)[0]])
    below = np.concatenate([shape.below, -whitened.T.ravel(), own[np.tril_indices(k, -1)]])
    by_column = np.lexsort((row, column))
    start = np.searchsorted(column[by_column], np.arange(m + k + 1))
    joint = Pattern(start, row[by_column])
    places = np.append(order[:m][shape.order], order[m:])
    diagonal = np.append(shape.diagonal, np.diag(own))
    return SparseShape(mean, places, joint, diagonal, below[by_column])
