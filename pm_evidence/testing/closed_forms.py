"""Marginal likelihoods in closed form that several systems share.

Everything is float64 and in nats.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

Floats = NDArray[np.float64]

LOG_2PI = np.log(2 * np.pi)


def log_normal(x: ArrayLike, mean: ArrayLike, sd: ArrayLike) -> Floats:
    """Return the normal log density, elementwise."""
    scale = np.asarray(sd, dtype=np.float64)
    deviation = (np.asarray(x, dtype=np.float64) - np.asarray(mean)) / scale
    return -0.5 * LOG_2PI - np.log(scale) - 0.5 * deviation**2


def log_mvnormal(x: Floats, mean: ArrayLike, cov: Floats) -> float:
    """Return the log density of a multivariate normal at one point ``x``, shape ``(d,)``."""
    factor = np.linalg.cholesky(cov)
    white = np.linalg.solve(factor, x - np.asarray(mean))
    return float(-0.5 * (x.size * LOG_2PI + white @ white) - np.log(np.diag(factor)).sum())


def log_normal_group(
    y: ArrayLike, variance: ArrayLike, prior_sd: float, included: ArrayLike = 1.0
) -> Floats:
    """Return the evidence of ``y_i ~ N(mu, variance_i)`` with ``mu ~ N(0, prior_sd)``.

    With ``A = sum 1/v``, ``B = sum y/v`` and ``C = sum y^2/v``, integrating ``mu``
    out leaves ``-1/2 [sum log(2 pi v) + C - B^2 / (A + 1/p^2) + log(1 + p^2 A)]``.
    """
    data = np.asarray(y, dtype=np.float64)
    spread = np.asarray(variance, dtype=np.float64)
    counted = np.asarray(included, dtype=np.float64) + 0 * data  # one entry for each datum
    precision = counted / spread
    total = precision.sum(axis=-1)
    linear = (data * precision).sum(axis=-1)
    square = (data**2 * precision).sum(axis=-1)
    log_scale = (counted * (LOG_2PI + np.log(spread))).sum(axis=-1)
    shrunk = linear**2 / (total + prior_sd**-2)
    return np.asarray(-0.5 * (log_scale + square - shrunk + np.log1p(prior_sd**2 * total)))


def log_poisson_gamma(counts: ArrayLike, shape: float, rate: float) -> float:
    """Return the evidence of Poisson counts whose common mean is ``Gamma(shape, rate)``."""
    k = np.asarray(counts)
    new_shape, new_rate = shape + k.sum(), rate + k.size
    log_ratio = shape * np.log(rate) - new_shape * np.log(new_rate)
    return float(log_ratio + gammaln(new_shape) - gammaln(shape) - gammaln(k + 1).sum())
