"""Location and scale of a population, estimated robustly for proposals and fitted densities."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.triangular import solved

__all__ = ["Shape", "learn_shape", "squares"]

Floats = NDArray[np.float64]

_MEMBERS_FOR_QUARTILES = 500
# A full covariance is estimated from at least this many members per dimension.
_MEMBERS_PER_DIMENSION = 5
# If the shrinkage weight exceeds this, most of the estimated correlations are noise, and
# correlations are not worth their cost of d**2 operations per step.
_MOSTLY_NOISE = 0.2


@dataclass(frozen=True, slots=True)
class Shape:
    """Location and scale of a population.

    Parameters
    ----------
    mean : ndarray, shape (d,)
        Mean.
    factor : ndarray, shape (d, d) or (d, 1)
        Lower Cholesky factor of the covariance, or its standard deviations as a column.
    """

    mean: Floats
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

    def covariance_times(self, rows: Floats) -> Floats:
        """Return the covariance times every row, shape ``(n, d)``."""
        half = rows @ self.factor if self.is_dense else rows * self.factor[:, 0]
        return self.scaled(half)


def learn_shape(x: Floats, dense: bool | None = None) -> Shape:
    """Estimate mean and covariance of a population, robustly for the use in proposals.

    Parameters
    ----------
    x : ndarray, shape (n, d)
        Population.
    dense : bool, optional
        Whether to estimate correlations; by default if there are some, and enough members to
        distinguish them from noise.

    Notes
    -----
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
