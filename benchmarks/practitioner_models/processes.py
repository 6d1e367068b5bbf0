"""Gaussian processes and a random walk."""

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import gammaln, logsumexp

from pm_evidence.testing.systems import LOG_2PI, log_integral, log_normal

from . import data
from .case import Case, Reference

__all__ = ["CASES"]

Floats = NDArray[np.float64]
Density = Callable[[Floats, Floats], Floats]

# What PyMC adds to the diagonal of a covariance.
_JITTER = 1e-6


def log_inverse_gamma(log_x: Floats, shape: float, scale: float) -> Floats:
    """Return the log density of the log of an inverse gamma variable."""
    return shape * np.log(scale) - gammaln(shape) - shape * log_x - scale * np.exp(-log_x)


def log_half_normal(log_scale: Floats, width: float) -> Floats:
    """Return the log density of the log of a half-normal variable."""
    return np.log(2) + log_normal(np.exp(log_scale), 0.0, width) + log_scale


@cache
def curve() -> tuple[Floats, Floats]:
    """Return 60 places and noisy values of a smooth function."""
    rng = np.random.default_rng(60)
    x = np.sort(rng.random(60))
    return x, np.sin(7 * x) + 0.5 * x + 0.25 * rng.standard_normal(60)


def build_gp_marginal() -> pm.Model:
    """Gaussian process whose latent values are integrated out."""
    x, y = curve()
    with pm.Model() as model:
        length = pm.InverseGamma("length", 4, 1)
        scale = pm.HalfNormal("scale", 2)
        noise = pm.HalfNormal("noise", 0.5)
        process = pm.gp.Marginal(cov_func=scale**2 * pm.gp.cov.ExpQuad(1, length))
        process.marginal_likelihood("y", X=x[:, None], y=y, sigma=noise)
    return model


def log_gp_marginal() -> Reference:
    """Eigenvalues for each length, then quadrature over the three logarithms."""
    x, y = curve()
    distance = x[:, None] - x

    def log_density(log_length: Floats, log_scale: Floats, log_noise: Floats) -> Floats:
        prior = log_inverse_gamma(log_length, 4.0, 1.0) + log_half_normal(log_scale, 2.0)
        total = prior + log_half_normal(log_noise, 0.5)
        signal, noise = np.exp(2 * log_scale), np.exp(2 * log_noise) + _JITTER
        for k, length in enumerate(np.exp(log_length).ravel()):
            eigenvalue, vectors = np.linalg.eigh(np.exp(-0.5 * (distance / length) ** 2))
            for value, along in zip(eigenvalue, vectors.T @ y, strict=True):
                spread = max(value, 0.0) * signal + noise
                total[k] -= 0.5 * (LOG_2PI + np.log(spread) + along**2 / spread)[0]
        return total

    bounds = (-3.5, 0.8), (-2.5, 2.3), (-2.3, -0.5)
    return Reference(log_integral(log_density, *bounds, tolerance=1e-6))


# Priors of the process of the coal mines: mean of the log rate, length in decades, scale.
_LEVEL_MEAN, _LEVEL_SD = 0.5, 1.0


def build_gp_latent() -> pm.Model:
    """Log rate of disasters as a Gaussian process with a latent value for each year."""
    year, count = data.coal()
    with pm.Model() as model:
        level = pm.Normal("level", _LEVEL_MEAN, _LEVEL_SD)
        length = pm.InverseGamma("length", 4, 8)
        scale = pm.HalfNormal("scale", 1)
        process = pm.gp.Latent(cov_func=scale**2 * pm.gp.cov.Matern52(1, length))
        log_rate = process.prior("f", X=(year[:, None] - year[0]) / 10)
        pm.Poisson("y", pt.exp(level + log_rate), observed=count)
    return model


def _log_counts(
    covariance: Floats, count: Floats, rng: np.random.Generator, pairs: int
) -> tuple[float, float]:
    """Return the log evidence of counts with normal log rates, and its standard error.

    Importance sampling from the normal density at the peak, by pairs that are opposite to each
    other. With ``log rate = mean + covariance @ a``, Newton's method finds ``a``.
    """
    n = count.size
    a, rate_log = np.zeros(n), np.full(n, _LEVEL_MEAN)
    for _ in range(100):
        root = np.exp(0.5 * rate_log)
        factor = cho_factor(np.eye(n) + root[:, None] * covariance * root, lower=True)
        b = root**2 * (rate_log - _LEVEL_MEAN) + count - root**2
        a = b - root * cho_solve(factor, root * (covariance @ b))
        before, rate_log = rate_log, _LEVEL_MEAN + covariance @ a
        if np.abs(rate_log - before).max() < 1e-9:
            break
    root = np.exp(0.5 * rate_log)
    lower = np.linalg.cholesky(np.eye(n) + root[:, None] * covariance * root)
    # the posterior covariance of the log rate is K - K W^1/2 B^-1 W^1/2 K
    half = np.linalg.solve(lower, root[:, None] * covariance)
    spread = np.linalg.cholesky(covariance - half.T @ half + 1e-10 * np.eye(n))
    z = rng.standard_normal((pairs, n))
    z = np.concatenate([z, -z])
    drawn = rate_log + z @ spread.T
    white = np.linalg.solve(np.linalg.cholesky(covariance), (drawn - _LEVEL_MEAN).T).T
    log_prior = -0.5 * (white**2).sum(1) - np.log(np.diag(np.linalg.cholesky(covariance))).sum()
    log_q = -0.5 * (z**2).sum(1) - np.log(np.diag(spread)).sum()
    log_likelihood = (count * drawn - np.exp(drawn) - gammaln(count + 1)).sum(1)
    weight = (log_prior + log_likelihood - log_q).reshape(2, pairs)
    of_pair = logsumexp(weight, axis=0) - np.log(2)
    value = float(logsumexp(of_pair) - np.log(pairs))
    return value, float(np.exp(of_pair - value).std(ddof=1) / pairs**0.5)


def log_gp_latent() -> Reference:
    """Quadrature over log length and log scale, importance sampling of the latent values."""
    year, count = data.coal()
    rng = np.random.default_rng(112)
    distance = np.abs(year[:, None] - year) / 10
    lengths, scales = np.linspace(-1.5, 5.0, 22), np.linspace(-4.5, 1.6, 22)
    step = (lengths[1] - lengths[0]) * (scales[1] - scales[0])
    values, errors = [], []
    for log_length in lengths:
        r = np.sqrt(5) * distance / np.exp(log_length)
        correlation = (1 + r + r**2 / 3) * np.exp(-r)
        for log_scale in scales:
            covariance = np.exp(2 * log_scale) * correlation + _JITTER * np.eye(year.size)
            value, error = _log_counts(covariance + _LEVEL_SD**2, count.astype(float), rng, 100)
            prior = log_inverse_gamma(log_length, 4.0, 8.0) + log_half_normal(log_scale, 1.0)
            values.append(value + prior + np.log(step))
            errors.append(error)
    total = logsumexp(values)
    share = np.exp(np.array(values) - total)
    return Reference(float(total), float(np.sqrt(((share * np.array(errors)) ** 2).sum())))


# Priors of the level of the Nile: first value, step from year to year, noise.
_FIRST_MEAN, _FIRST_SD, _STEP, _NOISE = 10.0, 5.0, 1.0, 2.0


def build_walk(centred: bool) -> pm.Model:
    """Level of the Nile as a random walk that is observed with noise."""
    flow = data.nile()
    with pm.Model() as model:
        step = pm.HalfNormal("step", _STEP)
        noise = pm.HalfNormal("noise", _NOISE)
        if centred:
            first = pm.Normal.dist(_FIRST_MEAN, _FIRST_SD)
            level = pm.GaussianRandomWalk("level", sigma=step, init_dist=first, steps=flow.size - 1)
        else:
            first = pm.Normal("first", _FIRST_MEAN, _FIRST_SD)
            change = step * pm.Normal("z", 0, 1, shape=flow.size - 1)
            level = pt.concatenate([first[None], first + pt.cumsum(change)])
        pm.Normal("y", level, noise, observed=flow)
    return model


def log_filtered(flow: Floats, step: Floats, noise: Floats) -> Floats:
    """Return the log likelihood of both scales by the Kalman filter."""
    total = np.zeros(np.broadcast_shapes(np.shape(step), np.shape(noise)))
    mean, variance = np.float64(_FIRST_MEAN), np.float64(_FIRST_SD**2)
    for y in flow:
        spread = variance + noise**2
        gain = variance / spread
        total = total + log_normal(y, mean, np.sqrt(spread))
        mean, variance = mean + gain * (y - mean), variance * (1 - gain) + step**2
    return total


def log_walk() -> Reference:
    """Kalman filter for each pair of scales, then quadrature over their logarithms."""
    flow = data.nile()

    def log_density(log_step: Floats, log_noise: Floats) -> Floats:
        total = log_half_normal(log_step, _STEP) + log_half_normal(log_noise, _NOISE)
        return total + log_filtered(flow, np.exp(log_step), np.exp(log_noise))

    return Reference(log_integral(log_density, (-18.0, 1.6), (-2.5, 1.5), tolerance=1e-7))


CASES = (
    Case(
        "gp_marginal",
        build_gp_marginal,
        log_gp_marginal,
        "simulated, 60 values",
        "eigenvalues of the covariance, quadrature over the three parameters",
        near_gaussian=True,
    ),
    Case(
        "gp_latent",
        build_gp_latent,
        log_gp_latent,
        "disasters in British coal mines, 112 years",
        "quadrature over length and scale, importance sampling of the latent values",
    ),
    *(
        Case(
            f"random_walk_{form}",
            partial(build_walk, form == "centred"),
            log_walk,
            "flow of the Nile, 100 years",
            "Kalman filter, quadrature over both scales",
            form_of="random_walk",
        )
        for form in ("centred", "noncentred")
    ),
)
