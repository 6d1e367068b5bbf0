"""Marginal likelihoods in closed form that several systems share.

Everything is float64 and in nats.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, gammaln

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


def normal_posterior(
    y: ArrayLike, variance: float, prior_sd: float, included: ArrayLike = 1.0
) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of ``mu`` in the setting of :func:`log_normal_group`."""
    data = np.asarray(y, dtype=np.float64)
    counted = np.asarray(included, dtype=np.float64) + 0 * data
    precision = counted.sum(axis=-1) / variance + prior_sd**-2
    mean = (counted * data).sum(axis=-1) / variance / precision
    return mean, precision**-0.5


def log_normal_inverse_gamma(
    y: Floats, design: Floats, mean: Floats, precision: Floats, shape: float, rate: float
) -> float:
    """Return the evidence of linear regression under the conjugate prior.

    O'Hagan and Forster (2004), *Bayesian Inference*, chapter 11; the residual sum of squares
    is taken about the posterior mean, which avoids the cancellation in ``y'y - m'Vm``.
    """
    posterior_precision = precision + design.T @ design
    posterior_mean = np.linalg.solve(posterior_precision, precision @ mean + design.T @ y)
    residual = y - design @ posterior_mean
    shift = posterior_mean - mean
    new_shape = shape + y.size / 2
    new_rate = rate + 0.5 * (residual @ residual + shift @ precision @ shift)
    log_det_ratio = np.linalg.slogdet(precision)[1] - np.linalg.slogdet(posterior_precision)[1]
    return float(
        0.5 * (log_det_ratio - y.size * LOG_2PI)
        + shape * np.log(rate)
        - new_shape * np.log(new_rate)
        + gammaln(new_shape)
        - gammaln(shape)
    )


def log_poisson_gamma(counts: ArrayLike, shape: float, rate: float) -> float:
    """Return the evidence of Poisson counts whose common mean is ``Gamma(shape, rate)``."""
    k = np.asarray(counts)
    new_shape, new_rate = shape + k.sum(), rate + k.size
    log_ratio = shape * np.log(rate) - new_shape * np.log(new_rate)
    return float(log_ratio + gammaln(new_shape) - gammaln(shape) - gammaln(k + 1).sum())


def log_bernoulli_beta(successes: ArrayLike, failures: ArrayLike, a: float, b: float) -> Floats:
    """Return the evidence of one sequence of Bernoulli trials under ``p ~ Beta(a, b)``."""
    return np.asarray(betaln(a + np.asarray(successes), b + np.asarray(failures)) - betaln(a, b))
