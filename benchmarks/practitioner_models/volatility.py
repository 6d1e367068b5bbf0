"""Stochastic volatility with an autoregressive log variance for each day."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit, logsumexp

from pm_evidence.testing.systems import LOG_2PI, log_normal

from . import data
from .case import Case, Nuts, Reference
from .processes import log_half_normal

__all__ = ["CASES"]

Floats = NDArray[np.float64]

# Priors of the mean log variance, of its persistence, and of its daily shocks.
_MEAN_SD, _PERSISTENCE, _SHOCK = 2.0, (20.0, 1.5), 0.3
# The grid of a log variance: standard deviations to either side of its mean, and the spacing in
# units of the daily shock, with which the trapezoidal rule has an error of 1e-11 in each step.
_REACH, _SPACING = 7.0, 0.8
# Where the posterior of the parameters lies: mean, log odds of the persistence, slope of the log
# shock against these, and the widest standard deviation of the mean that matters.
_MEAN, _LOG_ODDS, _SLOPE, _WIDEST = -0.88, 3.7, 0.25, 0.6
# Variance of the log of a squared normal variable.
_NOISE = 0.5 * np.pi**2


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


def log_volatility(n: int = 14) -> Reference:
    """Sums over a grid of log variances, then over a grid of the three parameters.

    The places of the mean are in units of its standard deviation given the other two parameters.
    These are correlated, so that those of the log shock move with the log odds of the persistence.
    With 18 places of these two the value is lower by 0.001 nats, which stands for the error.
    """
    returns = data.pound_dollar()
    log_odds, sheared = np.linspace(0.8, 9.0, n), np.linspace(-2.9, -0.6, n)
    places = np.linspace(-7.0, 7.0, 15)
    values = np.zeros((n, n, places.size))
    for j, persistence in enumerate(expit(log_odds)):
        prior = stats.beta.logpdf(persistence, *_PERSISTENCE)
        prior += np.log(persistence * (1 - persistence))
        for k, log_shock in enumerate(sheared - _SLOPE * (log_odds[j] - _LOG_ODDS)):
            long_run = np.exp(2 * log_shock) / (1 - persistence) ** 2
            spread = min(np.sqrt((long_run + _NOISE) / returns.size), _WIDEST)
            mean = _MEAN + spread * places
            values[j, k] = prior + log_half_normal(log_shock, _SHOCK) + np.log(spread)
            values[j, k] += log_normal(mean, 0.0, _MEAN_SD)
            values[j, k] += log_forward(returns, mean, persistence, np.exp(log_shock))
    steps = [axis[1] - axis[0] for axis in (log_odds, sheared, places)]
    return Reference(float(logsumexp(values) + np.log(steps).sum()), 1e-3)


CASES = (
    Case(
        "volatility",
        build_volatility,
        log_volatility,
        "daily returns of the pound in dollars, 945 days",
        "sums over grids of the log variance and of the three parameters",
        nuts=Nuts(chains=1, tune=500, draws=500),
    ),
)
