"""Stochastic volatility with an autoregressive log variance for each day."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit, logsumexp

from pm_evidence.testing.closed_forms import LOG_2PI, log_normal

from . import data
from .case import Case, Reference
from .processes import log_half_normal

__all__ = ["CASES"]

Floats = NDArray[np.float64]

# Priors of the mean log variance, of its persistence, and of its daily shocks.
_MEAN_SD, _PERSISTENCE, _SHOCK = 2.0, (20.0, 1.5), 0.3
# The grid of a log variance: standard deviations to either side of its mean, and the spacing in
# units of the daily shock, with which the trapezoidal rule has an error of 1e-11 in each step.
_REACH, _SPACING = 7.0, 0.8


def build_volatility() -> pm.Model:
    """Returns whose log variance is autoregressive, around a mean and from its stationary law."""
    returns = data.pound_dollar()
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, _MEAN_SD)
        persistence = pm.Beta("persistence", *_PERSISTENCE)
        shock = pm.HalfNormal("shock", _SHOCK)
        first = pm.Normal.dist(0, shock / pt.sqrt(1 - persistence**2))
        deviation = pm.AR(
            "deviation", rho=persistence, sigma=shock, init_dist=first, steps=returns.size - 1
        )
        pm.Normal("returns", 0, pt.exp((mean + deviation) / 2), observed=returns)
    return model


def log_forward(returns: Floats, mean: Floats, persistence: float, shock: float) -> Floats:
    """Return the log likelihood of each mean, shape ``(n,)``, by sums over log variances."""
    spread = shock / np.sqrt(1 - persistence**2)
    n_places = int(2 * _REACH * spread / (_SPACING * shock)) + 1
    deviation, width = np.linspace(-_REACH * spread, _REACH * spread, n_places, retstep=True)
    step = np.exp(log_normal(deviation, persistence * deviation[:, None], shock)) * width
    mass = np.tile(np.exp(log_normal(deviation, 0.0, spread)) * width, (mean.size, 1))
    log_variance = mean[:, None] + deviation
    precision, total = np.exp(-log_variance), np.zeros(mean.size)
    for t, value in enumerate(returns):
        if t:
            mass = mass @ step
        mass = mass * np.exp(-0.5 * (value**2 * precision + log_variance + LOG_2PI))
        sums = mass.sum(axis=1)
        total += np.log(sums)
        mass /= sums[:, None]
    return total


def log_volatility() -> Reference:
    """Sums over a grid of log variances, then over a grid of the three parameters.

    With 17 places in each direction instead of 12 the sum changes by less than 1e-4.
    """
    returns = data.pound_dollar()
    mean = np.linspace(-3.0, 1.6, 14)
    log_odds, log_shock = np.linspace(0.8, 8.2, 12), np.linspace(-3.6, -0.3, 12)
    values = np.zeros((mean.size, log_odds.size, log_shock.size))
    for j, persistence in enumerate(expit(log_odds)):
        prior = stats.beta.logpdf(persistence, *_PERSISTENCE)
        prior = prior + np.log(persistence * (1 - persistence)) + log_normal(mean, 0.0, _MEAN_SD)
        for k, shock in enumerate(np.exp(log_shock)):
            values[:, j, k] = prior + log_half_normal(log_shock[k], _SHOCK)
            values[:, j, k] += log_forward(returns, mean, persistence, shock)
    steps = [axis[1] - axis[0] for axis in (mean, log_odds, log_shock)]
    return Reference(float(logsumexp(values) + np.log(steps).sum()))


CASES = (
    Case(
        "volatility",
        build_volatility,
        log_volatility,
        "daily returns of the pound in dollars, 945 days",
        "sums over grids of the log variance and of the three parameters",
    ),
)
