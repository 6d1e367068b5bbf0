"""Hierarchical models: the group effects integrate out, the scale is left to quadrature."""

from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from pm_evidence.testing.closed_forms import LOG_2PI, log_normal, log_normal_group
from pm_evidence.testing.quadrature import log_integral
from pm_evidence.testing.system import ExactSystem, tagged

if TYPE_CHECKING:
    import pymc as pm


Floats = NDArray[np.float64]
ScalePrior = Literal["half_cauchy", "half_normal"]

# Rubin (1981): effects of coaching in eight schools and their standard errors, in SAT points.
_SCHOOLS_Y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
_SCHOOLS_SD = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
_MU_SD = np.float64(5.0)
_TAU_SCALE = np.float64(5.0)

_FUNNEL_Y = np.array([0.3, -1.1, 2.4, 0.6, -0.2, 1.3, -2.8, 0.1, 0.9])
_FUNNEL_SD = np.float64(3.0)


def build_eight_schools(scale_prior: ScalePrior, centred: bool) -> "pm.Model":
    """Partial pooling of the eight schools, in either parametrisation."""
    import pymc as pm

    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        mu = pm.Normal("mu", 0, _MU_SD)
        if scale_prior == "half_cauchy":
            tau = pm.HalfCauchy("tau", beta=_TAU_SCALE)
        else:
            tau = pm.HalfNormal("tau", sigma=_TAU_SCALE)
        if centred:
            theta = pm.Normal("theta", mu, tau, dims="school")
        else:
            z = pm.Normal("z", 0, 1, dims="school")
            theta = pm.Deterministic("theta", mu + tau * z, dims="school")
        pm.Normal("y", theta, _SCHOOLS_SD, observed=_SCHOOLS_Y, dims="school")
    return model


def build_eight_schools_pooled() -> "pm.Model":
    """Complete pooling of the eight schools: no scatter between them."""
    import pymc as pm

    with pm.Model() as model:
        mu = pm.Normal("mu", 0, _MU_SD)
        pm.Normal("y", mu, _SCHOOLS_SD, observed=_SCHOOLS_Y)
    return model


def build_funnel() -> "pm.Model":
    """Neal's funnel: nine coordinates whose log variance is the tenth."""
    import pymc as pm

    with pm.Model() as model:
        log_variance = pm.Normal("log_variance", 0, _FUNNEL_SD)
        x = pm.Normal("x", 0, pm.math.exp(log_variance / 2), shape=_FUNNEL_Y.size)
        pm.Normal("y", x, 1, observed=_FUNNEL_Y)
    return model


def _log_scale_prior(tau: Floats, scale_prior: ScalePrior) -> Floats:
    if scale_prior == "half_cauchy":
        return np.log(2 / (np.pi * _TAU_SCALE)) - np.log1p((tau / _TAU_SCALE) ** 2)
    return np.log(2) + log_normal(tau, 0.0, _TAU_SCALE)


def _log_eight_schools(scale_prior: ScalePrior) -> float:
    def log_density(log_tau: Floats) -> Floats:
        tau = np.exp(log_tau)
        variance = _SCHOOLS_SD**2 + tau[..., None] ** 2
        log_likelihood = log_normal_group(_SCHOOLS_Y, variance, _MU_SD)
        return log_likelihood + _log_scale_prior(tau, scale_prior) + log_tau

    return log_integral(log_density, (-36.0, 12.0))


def _log_funnel() -> float:
    def log_density(log_variance: Floats) -> Floats:
        total = 1 + np.exp(log_variance)
        log_likelihood = -0.5 * _FUNNEL_Y.size * (LOG_2PI + np.log(total))
        log_likelihood = log_likelihood - 0.5 * (_FUNNEL_Y**2).sum() / total
        return log_likelihood + log_normal(log_variance, 0.0, _FUNNEL_SD)

    return log_integral(log_density, (-30.0, 30.0))


def _eight_schools(scale_prior: ScalePrior) -> tuple[ExactSystem, ExactSystem]:
    tags = tagged("continuous", "hierarchical", "constrained", "high-dimensional")
    if scale_prior == "half_cauchy":
        tags |= tagged("heavy-tailed")
    value = _log_eight_schools(scale_prior)
    name = f"eight_schools_{scale_prior}"
    note = "normal marginal of the data given tau, then quadrature over log tau"
    return (
        ExactSystem(
            f"{name}_centred", partial(build_eight_schools, scale_prior, True), value, tags, note
        ),
        ExactSystem(
            f"{name}_noncentred",
            partial(build_eight_schools, scale_prior, False),
            value,
            tags,
            note,
        ),
    )


def systems() -> tuple[ExactSystem, ...]:
    """Return the hierarchical systems."""
    pooled = float(log_normal_group(_SCHOOLS_Y, _SCHOOLS_SD**2, _MU_SD))
    return (
        *_eight_schools("half_cauchy"),
        *_eight_schools("half_normal"),
        ExactSystem(
            "eight_schools_pooled",
            build_eight_schools_pooled,
            pooled,
            tagged("continuous", "conjugate"),
            "normal marginal of the data",
        ),
        ExactSystem(
            "funnel",
            build_funnel,
            _log_funnel(),
            tagged("continuous", "hierarchical", "high-dimensional"),
            "normal marginal of the data given the log variance, then quadrature over it",
        ),
    )
