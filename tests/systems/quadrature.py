"""Models whose evidence is a quadrature: transformed variables, heavy tails, scales of groups."""

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from scipy.special import betaln, gammaln, ive, logsumexp, ndtr

from pm_evidence.testing.systems import (
    LOG_2PI,
    SCHOOLS_MU_SD,
    SCHOOLS_SD,
    SCHOOLS_Y,
    ExactSystem,
    gauss_legendre,
    log_integral,
    log_mvnormal,
    log_normal,
    log_normal_group,
)
from tests.systems.closed_forms import exact, normal_posterior

Floats = NDArray[np.float64]

_INTERVAL_Y, _INTERVAL_SD = np.array([0.62, 0.81, 0.95]), np.float64(0.2)

_WIDTH_Y, _WIDTH_LIMIT = np.array([0.4, 3.1, 1.7, 2.2, 3.6]), np.float64(10.0)

_SCALE_Y = np.array([-3.1, 0.4, 7.2, -1.5, 2.6, 0.1])

_CIRCLE_Y = np.array([2.9, -2.7, 2.4, -3.0])
_CIRCLE_PRIOR = (np.float64(1.0), np.float64(0.5))
_CIRCLE_KAPPA = np.float64(2.0)

_CUT_Y, _CUT_SD = np.array([0.9, 1.4, 0.7]), np.float64(0.5)
_TRUNCATED_Y = np.array([-0.3, 0.2])

_ZERO_SUM_Y = np.array([1.4, -0.3, -0.6, 0.2])
_ZERO_SUM_SD, _ZERO_SUM_NOISE = np.float64(1.5), np.float64(0.5)


def build_uniform_interval() -> pm.Model:
    """A uniform mean close to the end of its interval."""
    with pm.Model() as model:
        theta = pm.Uniform("theta", 0, 1)
        pm.Normal("y", theta, _INTERVAL_SD, observed=_INTERVAL_Y)
    return model


def build_uniform_width() -> pm.Model:
    """Unknown end of a uniform: the likelihood is zero on part of the prior."""
    with pm.Model() as model:
        theta = pm.Uniform("theta", 0, _WIDTH_LIMIT)
        pm.Uniform("y", 0, theta, observed=_WIDTH_Y)
    return model


def build_half_cauchy_scale() -> pm.Model:
    """Unknown scale with a half-Cauchy prior."""
    with pm.Model() as model:
        scale = pm.HalfCauchy("scale", beta=1.0)
        pm.Normal("y", 0, scale, observed=_SCALE_Y)
    return model


def build_von_mises() -> pm.Model:
    """Mean direction on the circle, with data on both sides of the cut at pi."""
    with pm.Model() as model:
        direction = pm.VonMises("direction", *_CIRCLE_PRIOR)
        pm.VonMises("y", direction, _CIRCLE_KAPPA, observed=_CIRCLE_Y)
    return model


def build_interval_cut_normal() -> pm.Model:
    """A normal prior that an interval transform cuts without renormalising it."""
    with pm.Model() as model:
        # initval: PyMC would start at the prior mean, which is the edge of the interval.
        interval = pm.distributions.transforms.Interval(0, 1)
        x = pm.Normal("x", 0, 1, transform=interval, initval=0.5)
        pm.Normal("y", x, _CUT_SD, observed=_CUT_Y)
    return model


def build_truncated_normal() -> pm.Model:
    """A normal prior truncated to the positive half line, which PyMC does renormalise."""
    with pm.Model() as model:
        x = pm.TruncatedNormal("x", 0, 1, lower=0)
        pm.Normal("y", x, _CUT_SD, observed=_TRUNCATED_Y)
    return model


def build_zero_sum() -> pm.Model:
    """Effects that sum to zero: one dimension fewer than entries."""
    with pm.Model() as model:
        effect = pm.ZeroSumNormal("effect", sigma=_ZERO_SUM_SD, shape=_ZERO_SUM_Y.size)
        pm.Normal("y", effect, _ZERO_SUM_NOISE, observed=_ZERO_SUM_Y)
    return model


def _log_uniform_interval() -> float:
    sd_mean = _INTERVAL_SD / np.sqrt(_INTERVAL_Y.size)
    mean = _INTERVAL_Y.mean()
    inside = ndtr((1 - mean) / sd_mean) - ndtr((0 - mean) / sd_mean)
    log_peak = log_normal(_INTERVAL_Y, mean, _INTERVAL_SD).sum()
    return float(log_peak + 0.5 * LOG_2PI + np.log(sd_mean) + np.log(inside))


def _log_uniform_width() -> float:
    power = _WIDTH_Y.size - 1
    tail = _WIDTH_Y.max() ** -power - _WIDTH_LIMIT**-power
    return float(np.log(tail / (power * _WIDTH_LIMIT)))


def _log_half_cauchy_scale() -> float:
    def log_density(log_scale: Floats) -> Floats:
        log_prior = np.log(2 / np.pi) - np.logaddexp(0, 2 * log_scale)
        n, square = _SCALE_Y.size, (_SCALE_Y**2).sum()
        log_likelihood = -n * (0.5 * LOG_2PI + log_scale) - 0.5 * square * np.exp(-2 * log_scale)
        return log_prior + log_likelihood + log_scale

    return log_integral(log_density, (-5.0, 12.0))


def _log_von_mises() -> float:
    location, kappa = _CIRCLE_PRIOR
    resultant = abs(kappa * np.exp(1j * location) + _CIRCLE_KAPPA * np.exp(1j * _CIRCLE_Y).sum())
    log_bessel = [float(np.log(ive(0, k)) + k) for k in (resultant, kappa, _CIRCLE_KAPPA)]
    return log_bessel[0] - log_bessel[1] - _CIRCLE_Y.size * (LOG_2PI + log_bessel[2])


def _log_cut_normal(y: Floats, lower: float, upper: float) -> float:
    mean, sd = normal_posterior(y, float(_CUT_SD**2), 1.0)
    kept = ndtr((upper - mean) / sd) - ndtr((lower - mean) / sd)
    prior_mass = ndtr(upper) - ndtr(lower)
    return float(log_normal_group(y, _CUT_SD**2, 1.0) + np.log(kept) - np.log(prior_mass))


def _log_zero_sum() -> float:
    n = _ZERO_SUM_Y.size
    cov = _ZERO_SUM_SD**2 * (np.eye(n) - 1 / n) + _ZERO_SUM_NOISE**2 * np.eye(n)
    return log_mvnormal(_ZERO_SUM_Y, 0.0, cov)


_PAIRS = np.array([[1.2, 0.7], [-0.4, -0.9], [0.8, 1.5], [-1.6, -0.6], [0.3, -0.5], [-0.7, -1.1]])
_LKJ_ETA = np.float64(2.0)


def build_lkj_correlation() -> pm.Model:
    """Correlation of a standardised pair under an LKJ prior."""
    with pm.Model() as model:
        # PyMC 6 returns the Cholesky factor of the correlation matrix, not the matrix.
        factor = pm.LKJCorr("factor", n=2, eta=_LKJ_ETA)
        pm.MvNormal("y", np.zeros(2), chol=factor, observed=_PAIRS)
    return model


def build_lkj_covariance() -> pm.Model:
    """Covariance of a pair through the packed Cholesky factor of the LKJ prior."""
    with pm.Model() as model:
        scales = pm.HalfNormal.dist(1, shape=2)
        factor, _, _ = pm.LKJCholeskyCov("factor", n=2, eta=_LKJ_ETA, sd_dist=scales)
        pm.MvNormal("y", np.zeros(2), chol=factor, observed=_PAIRS)
    return model


def _log_pairs(sd_1: Floats, sd_2: Floats, fisher_z: Floats) -> Floats:
    """Log density of the pairs and of ``rho = tanh(fisher_z)``, with its Jacobian."""
    rho = np.tanh(fisher_z)
    # 1 - tanh^2 = 1 / cosh^2, without the cancellation
    log_one_less = 2 * np.log(2) - 2 * np.logaddexp(fisher_z, -fisher_z)
    (s11, s12), (_, s22) = _PAIRS.T @ _PAIRS
    quadratic = s11 / sd_1**2 - 2 * rho * s12 / (sd_1 * sd_2) + s22 / sd_2**2
    log_det = 2 * np.log(sd_1) + 2 * np.log(sd_2) + log_one_less
    log_likelihood = -len(_PAIRS) * (LOG_2PI + 0.5 * log_det)
    log_likelihood = log_likelihood - 0.5 * quadratic * np.exp(-log_one_less)
    log_norm = betaln(_LKJ_ETA, _LKJ_ETA) + (2 * _LKJ_ETA - 1) * np.log(2)
    return log_likelihood + (_LKJ_ETA - 1) * log_one_less - log_norm + log_one_less


def _log_lkj_correlation() -> float:
    one = np.ones(1)
    return log_integral(lambda fisher_z: _log_pairs(one, one, fisher_z), (-12.0, 12.0))


def _log_lkj_covariance() -> float:
    def log_density(log_sd_1: Floats, log_sd_2: Floats, fisher_z: Floats) -> Floats:
        sd_1, sd_2 = np.exp(log_sd_1), np.exp(log_sd_2)
        log_prior = 2 * np.log(2) + log_normal(sd_1, 0, 1) + log_normal(sd_2, 0, 1)
        return _log_pairs(sd_1, sd_2, fisher_z) + log_prior + log_sd_1 + log_sd_2

    return log_integral(log_density, (-4.0, 2.5), (-4.0, 2.5), (-6.0, 9.0))


# A prior at zero that the data contradict: with normal tails the posterior would sit between.
_PRIOR_NU, _PRIOR_Y, _PRIOR_NOISE = np.float64(2.0), np.array([8.1, 8.9]), np.float64(0.5)

# Two groups of data that a normal likelihood would average: here each has a mode of its own.
_LIKELIHOOD_NU, _LIKELIHOOD_SD = np.float64(3.0), np.float64(0.5)
_LIKELIHOOD_Y = np.array([-2.3, -2.0, -1.8, 3.9, 4.1, 4.4])
_MEAN_SD = np.float64(5.0)

# Five groups of which the last is an outlier.
_GROUP_NU, _GROUP_SPREAD = np.float64(4.0), np.float64(1.5)
_GROUP_Y = np.array([0.3, -0.8, 1.1, 0.4, 14.0])
_GROUP_SD = np.array([0.5, 0.8, 0.6, 1.2, 1.0])


def _log_student_t(x: Floats, nu: float, scale: float) -> Floats:
    log_norm = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(np.pi * nu) - np.log(scale)
    return log_norm - (nu + 1) / 2 * np.log1p((x / scale) ** 2 / nu)


def build_student_t_prior() -> pm.Model:
    """A heavy-tailed prior far from the data."""
    with pm.Model() as model:
        mu = pm.StudentT("mu", nu=_PRIOR_NU, mu=0, sigma=1)
        pm.Normal("y", mu, _PRIOR_NOISE, observed=_PRIOR_Y)
    return model


def build_student_t_likelihood() -> pm.Model:
    """Heavy-tailed noise and two groups of data: two modes."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, _MEAN_SD)
        pm.StudentT("y", nu=_LIKELIHOOD_NU, mu=mu, sigma=_LIKELIHOOD_SD, observed=_LIKELIHOOD_Y)
    return model


def build_student_t_groups() -> pm.Model:
    """Heavy-tailed group effects about a common mean, one of them an outlier."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, _MEAN_SD)
        effect = pm.StudentT(
            "effect", nu=_GROUP_NU, mu=mu, sigma=_GROUP_SPREAD, shape=_GROUP_Y.size
        )
        pm.Normal("y", effect, _GROUP_SD, observed=_GROUP_Y)
    return model


def _log_prior_case() -> float:
    def log_density(mu: Floats) -> Floats:
        log_likelihood = log_normal(_PRIOR_Y, mu[..., None], _PRIOR_NOISE).sum(axis=-1)
        return log_likelihood + _log_student_t(mu, _PRIOR_NU, 1.0)

    # 10 standard errors about the data: the likelihood cuts both tails.
    return log_integral(log_density, (4.0, 13.0))


def _log_likelihood_case() -> float:
    def log_density(mu: Floats) -> Floats:
        deviation = _LIKELIHOOD_Y - mu[..., None]
        log_likelihood = _log_student_t(deviation, _LIKELIHOOD_NU, _LIKELIHOOD_SD).sum(axis=-1)
        return log_likelihood + log_normal(mu, 0.0, _MEAN_SD)

    return log_integral(log_density, (-60.0, 60.0))


def _log_groups() -> float:
    def log_density(mu: Floats) -> Floats:
        total = log_normal(mu, 0.0, _MEAN_SD)
        for y, sd in zip(_GROUP_Y, _GROUP_SD, strict=True):
            # 11 standard errors of the group hold all but 1e-27 of its likelihood; 24 panels
            # of 16 nodes resolve the prior, whose nearest pole is 3 units off the real line.
            effect, log_weight = gauss_legendre(y - 11 * sd, y + 11 * sd, 24)
            log_prior = _log_student_t(effect - mu[..., None], _GROUP_NU, _GROUP_SPREAD)
            total = total + logsumexp(log_prior + log_normal(y, effect, sd) + log_weight, axis=-1)
        return total

    return log_integral(log_density, (-50.0, 50.0))


_FUNNEL_Y = np.array([0.3, -1.1, 2.4, 0.6, -0.2, 1.3, -2.8, 0.1, 0.9])
_FUNNEL_SD = np.float64(3.0)


def build_eight_schools_pooled() -> pm.Model:
    """Complete pooling of the eight schools: no scatter between them."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, SCHOOLS_MU_SD)
        pm.Normal("y", mu, SCHOOLS_SD, observed=SCHOOLS_Y)
    return model


def build_funnel() -> pm.Model:
    """Neal's funnel: nine coordinates whose log variance is the tenth."""
    with pm.Model() as model:
        log_variance = pm.Normal("log_variance", 0, _FUNNEL_SD)
        x = pm.Normal("x", 0, pm.math.exp(log_variance / 2), shape=_FUNNEL_Y.size)
        pm.Normal("y", x, 1, observed=_FUNNEL_Y)
    return model


def _log_funnel() -> float:
    def log_density(log_variance: Floats) -> Floats:
        total = 1 + np.exp(log_variance)
        log_likelihood = -0.5 * _FUNNEL_Y.size * (LOG_2PI + np.log(total))
        log_likelihood = log_likelihood - 0.5 * (_FUNNEL_Y**2).sum() / total
        return log_likelihood + log_normal(log_variance, 0.0, _FUNNEL_SD)

    return log_integral(log_density, (-30.0, 30.0))


def systems() -> tuple[ExactSystem, ...]:
    """Return the systems with quadratures."""
    pooled = float(log_normal_group(SCHOOLS_Y, SCHOOLS_SD**2, SCHOOLS_MU_SD))
    cut, inside = _log_cut_normal(_CUT_Y, 0.0, 1.0), float(np.log(ndtr(1.0) - ndtr(0.0)))
    return (
        exact(build_uniform_interval, _log_uniform_interval()),
        exact(build_uniform_width, _log_uniform_width(), smooth=False),
        exact(build_half_cauchy_scale, _log_half_cauchy_scale()),
        exact(build_von_mises, _log_von_mises()),
        exact(build_interval_cut_normal, cut, log_prior_mass=inside),
        exact(build_truncated_normal, _log_cut_normal(_TRUNCATED_Y, 0.0, np.inf)),
        exact(build_zero_sum, _log_zero_sum()),
        exact(build_lkj_correlation, _log_lkj_correlation()),
        exact(build_lkj_covariance, _log_lkj_covariance()),
        exact(build_student_t_prior, _log_prior_case()),
        exact(build_student_t_likelihood, _log_likelihood_case()),
        exact(build_student_t_groups, _log_groups()),
        exact(build_eight_schools_pooled, pooled),
        exact(build_funnel, _log_funnel()),
    )
