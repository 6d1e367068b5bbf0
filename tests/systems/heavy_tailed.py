"""Student-t priors and likelihoods, by quadrature."""

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from pm_evidence.testing.closed_forms import log_normal
from pm_evidence.testing.quadrature import gauss_legendre, log_integral
from pm_evidence.testing.systems import ExactSystem

Floats = NDArray[np.float64]

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


def systems() -> tuple[ExactSystem, ...]:
    """Return the heavy-tailed systems."""
    return (
        ExactSystem("student_t_prior", build_student_t_prior, _log_prior_case()),
        ExactSystem("student_t_likelihood", build_student_t_likelihood, _log_likelihood_case()),
        ExactSystem("student_t_groups", build_student_t_groups, _log_groups()),
    )
