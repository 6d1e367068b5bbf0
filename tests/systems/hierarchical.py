"""Hierarchical models: the group effects integrate out, the scale is left to quadrature."""

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pm_evidence.testing.closed_forms import LOG_2PI, log_normal, log_normal_group
from pm_evidence.testing.quadrature import log_integral
from pm_evidence.testing.systems import SCHOOLS_MU_SD, SCHOOLS_SD, SCHOOLS_Y, ExactSystem

Floats = NDArray[np.float64]

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
    """Return the hierarchical systems."""
    pooled = float(log_normal_group(SCHOOLS_Y, SCHOOLS_SD**2, SCHOOLS_MU_SD))
    return (
        ExactSystem("eight_schools_pooled", build_eight_schools_pooled, pooled),
        ExactSystem("funnel", build_funnel, _log_funnel()),
    )
