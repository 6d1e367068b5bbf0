"""Marginal likelihoods and posteriors in closed form that only systems of the tests need."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, gammaln

from pm_evidence.testing.systems import LOG_2PI, ExactSystem

Floats = NDArray[np.float64]


def exact(build: Callable[[], pm.Model], log_evidence: float, **facts: Any) -> ExactSystem:
    """Return a system with the name of the function that builds its model."""
    return ExactSystem(build.__name__.removeprefix("build_"), build, log_evidence, **facts)


def normal_posterior(
    y: ArrayLike, variance: float, prior_sd: float, included: ArrayLike = 1.0
) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of ``mu`` in the setting of ``log_normal_group``."""
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


def log_bernoulli_beta(successes: ArrayLike, failures: ArrayLike, a: float, b: float) -> Floats:
    """Return the evidence of one sequence of Bernoulli trials under ``p ~ Beta(a, b)``."""
    return np.asarray(betaln(a + np.asarray(successes), b + np.asarray(failures)) - betaln(a, b))
