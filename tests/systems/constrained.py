"""Free variables on intervals, half lines, circles and the plane where a sum is zero."""

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from scipy.special import ive, ndtr

from pm_evidence.testing.closed_forms import (
    LOG_2PI,
    log_mvnormal,
    log_normal,
    log_normal_group,
)
from pm_evidence.testing.quadrature import log_integral
from pm_evidence.testing.systems import ExactSystem
from tests.systems.closed_forms import normal_posterior

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


def systems() -> tuple[ExactSystem, ...]:
    """Return the systems with transformed variables."""
    return (
        ExactSystem("uniform_interval", build_uniform_interval, _log_uniform_interval()),
        ExactSystem("uniform_width", build_uniform_width, _log_uniform_width(), smooth=False),
        ExactSystem("half_cauchy_scale", build_half_cauchy_scale, _log_half_cauchy_scale()),
        ExactSystem("von_mises", build_von_mises, _log_von_mises()),
        ExactSystem(
            "interval_cut_normal",
            build_interval_cut_normal,
            _log_cut_normal(_CUT_Y, 0.0, 1.0),
            log_prior_mass=float(np.log(ndtr(1.0) - ndtr(0.0))),
        ),
        ExactSystem(
            "truncated_normal", build_truncated_normal, _log_cut_normal(_TRUNCATED_Y, 0.0, np.inf)
        ),
        ExactSystem("zero_sum", build_zero_sum, _log_zero_sum()),
    )
