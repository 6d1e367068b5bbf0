"""Location and scale of a population, robustly enough to move or to draw by."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Shape", "learn_shape"]

Floats = NDArray[np.float64]

_MEMBERS_FOR_QUARTILES = 500
# With more members than this many times the dimension a full covariance is worth its noise.
_MEMBERS_PER_DIMENSION = 5
# Where so much of the estimated correlations is noise, they cost more than they help: every step
# takes d**2 operations.
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


def learn_shape(x: Floats, dense: bool | None = None) -> Shape:
    """Estimate mean and covariance of a population, robustly enough to move by.

    Parameters
    ----------
    x : ndarray, shape (n, d)
        Population.
    dense : bool, optional
        Whether to learn correlations; by default where there are some, and members enough to
        tell them from noise.

    Notes
    -----
    Tails are clipped at eight times the interquartile range from the median: a HalfCauchy prior
    would otherwise set a scale at which nothing else moves. The correlation matrix is shrunk
    towards the identity with the weight of Chen, Wiesel, Eldar and Hero (2010), Eq. 23.
    """
    n, d = x.shape
    some = np.ascontiguousarray(x[:: max(n // _MEMBERS_FOR_QUARTILES, 1)].T)
    low, middle, high = np.quantile(some, (0.25, 0.5, 0.75), axis=1)
    # where most members are copies of one, the quartiles coincide and say nothing of the scale
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
    # resampling leaves copies, which say nothing new
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
