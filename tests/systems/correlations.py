"""Correlation and covariance matrices under an LKJ prior, by quadrature."""

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from scipy.special import betaln

from pm_evidence.testing.closed_forms import LOG_2PI, log_normal
from pm_evidence.testing.quadrature import log_integral
from pm_evidence.testing.systems import ExactSystem

Floats = NDArray[np.float64]

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


def systems() -> tuple[ExactSystem, ...]:
    """Return the systems with LKJ priors."""
    return (
        ExactSystem("lkj_correlation", build_lkj_correlation, _log_lkj_correlation()),
        ExactSystem("lkj_covariance", build_lkj_covariance, _log_lkj_covariance()),
    )
