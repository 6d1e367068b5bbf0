"""Location and scale of a population, estimated robustly, by dense or by sparse matrices."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core import numerics
from pm_evidence.core.numerics import Pattern, solved

Floats = NDArray[np.float64]


_MEMBERS_FOR_QUARTILES = 500
# A full covariance is estimated from at least this many members per dimension.
_MEMBERS_PER_DIMENSION = 5
# If the shrinkage weight exceeds this, most of the estimated correlations are noise, and
# correlations are not worth their cost of d**2 operations per step.
_MOSTLY_NOISE = 0.2


@dataclass(frozen=True, slots=True)
class Shape:
    """Location and scale of a population."""

    mean: Floats  # shape (d,): mean
    # shape (d, d) or (d, 1): lower Cholesky factor of the covariance, or its standard deviations as
    # a column
    factor: Floats

    @property
    def is_dense(self) -> bool:
        """Whether correlations are part of the shape."""
        return bool(self.factor.shape[1] == self.factor.shape[0])

    @property
    def log_volume(self) -> float:
        """Log determinant of the factor: the sum of the logs of the scales."""
        scales = np.diag(self.factor) if self.is_dense else self.factor[:, 0]
        return float(np.log(np.abs(scales)).sum())

    def whitened(self, x: Floats) -> Floats:
        """Return every row of ``x``, shape ``(n, d)``, in coordinates of mean 0 and scale 1."""
        if not self.is_dense:
            apart: Floats = (x - self.mean) / self.factor[:, 0]
            return apart
        return solved(self.factor, x - self.mean)

    def squared_distances(self, x: Floats) -> Floats:
        """Return the squared Mahalanobis distance of every row of ``x`` from the mean."""
        return squares(self.whitened(x))

    def scaled(self, noise: Floats) -> Floats:
        """Return every row of ``noise``, shape ``(n, d)``, multiplied by the factor."""
        scaled: Floats = noise @ self.factor.T if self.is_dense else noise * self.factor[:, 0]
        return scaled

    def times(self, factor: float) -> "Shape":
        """Return the shape with scales that are multiplied by a number."""
        return replace(self, factor=factor * self.factor)

    @property
    def lengths(self) -> Floats:
        """Standard deviation of each coordinate given the others, shape ``(d,)``."""
        if not self.is_dense:
            return np.abs(self.factor[:, 0])
        inverse = solved(self.factor, np.eye(self.mean.size))
        return np.asarray(1.0 / np.sqrt((inverse * inverse).sum(axis=1)))

    def covariance_times(self, rows: Floats) -> Floats:
        """Return the covariance times every row, shape ``(n, d)``."""
        half = rows @ self.factor if self.is_dense else rows * self.factor[:, 0]
        return self.scaled(half)


def learn_shape(x: Floats, dense: bool | None = None) -> Shape:
    """Estimate mean and covariance of a population, robustly for the use in proposals.

    Values are clipped at eight interquartile ranges from the median. Without this, a heavy tail
    such as that of a HalfCauchy prior would give a scale that is much too large for most members.
    The correlation matrix is shrunk towards the identity with the weight of Chen, Wiesel, Eldar and
    Hero (2010), Eq. 23.
    """
    n, d = x.shape
    some = np.ascontiguousarray(x[:: max(n // _MEMBERS_FOR_QUARTILES, 1)].T)
    low, middle, high = np.quantile(some, (0.25, 0.5, 0.75), axis=1)
    # if most members are copies of one state, the quartiles coincide and do not measure the scale
    reach = 8.0 * np.where(high > low, high - low, np.ptp(x, axis=0))
    clipped = np.clip(x, middle - reach, middle + reach)
    mean = clipped.mean(axis=0)
    deviation = clipped.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    diagonal = Shape(mean, deviation[:, None])
    if dense is False or (dense is None and n < _MEMBERS_PER_DIMENSION * d):
        return diagonal
    scaled = (clipped - mean) / deviation
    correlation = scaled.T @ scaled / n
    # copies from resampling are not independent: only distinct members are counted
    weight = _shrinkage(correlation, len(np.unique(x[:, 0])))
    if dense is None and weight > _MOSTLY_NOISE and d > 1:
        return diagonal
    correlation = (1.0 - weight) * correlation
    correlation[np.diag_indices(d)] = 1.0
    return Shape(mean, deviation[:, None] * np.linalg.cholesky(correlation))


def _shrinkage(correlation: Floats, n: int) -> float:
    """Return the oracle-approximating weight of the identity (OAS)."""
    d = len(correlation)
    if d == 1:
        return 0.0
    trace_sq = float(np.sum(correlation * correlation))
    numerator = (1.0 - 2.0 / d) * trace_sq + d * d
    denominator = (n + 1.0 - 2.0 / d) * (trace_sq - d)
    return float(min(1.0, numerator / denominator)) if denominator > 0 else 1.0


def squares(rows: Floats) -> Floats:
    """Return the sum of the squares of every row."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows), float)


@dataclass(frozen=True, slots=True)
class SparseShape:
    """Location, and the inverse of a covariance by its lower Cholesky factor.

    In models with many parameters, most of these are independent given the others, so that few
    elements of the factor are not zero. It is used as a ``Shape`` is.
    """

    mean: Floats  # shape (d,): mean
    order: NDArray[np.int64]  # shape (d,): the coordinates in the order of the rows of the factor
    pattern: Pattern  # elements of the factor below the diagonal
    diagonal: Floats  # shape (d,): diagonal of the factor
    below: Floats  # shape (n,): the elements below the diagonal

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
        return self._with_rows(numerics.multiply_rows_by_transposed, (x - self.mean)[:, self.order])

    def squared_distances(self, x: Floats) -> Floats:
        """Return the squared Mahalanobis distance of every row of ``x`` from the mean."""
        return squares(self.whitened(x))

    def scaled(self, noise: Floats) -> Floats:
        """Return rows of unit normal variables as deviations from the mean, shape ``(n, d)``."""
        scaled = np.empty(noise.shape)
        scaled[:, self.order] = self._with_rows(numerics.solve_rows_transposed, noise)
        return scaled

    def whitened_slopes(self, gradients: Floats) -> Floats:
        """Return rows of derivatives with respect to the coordinates of scale 1, shape (n, d)."""
        return self._with_rows(numerics.solve_rows, gradients[:, self.order])

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
    """Return the joint shape of some variables, and of others that they depend on."""
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
