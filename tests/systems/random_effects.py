"""A generalised linear mixed model, with its effects as variables or integrated out.

It does not belong to ``exact_systems``, because one of its forms has a likelihood that can only be
estimated.
"""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from pm_evidence.testing.systems import ExactSystem, gauss_legendre, log_integral, log_normal

Floats = NDArray[np.float64]

# Counts of events in six units over periods of different lengths.
_COUNTS = np.array([3, 1, 4, 0, 0, 1, 9, 12, 7, 2, 2, 5, 1, 0, 0, 6, 3, 8])
_EXPOSURE = np.array([1, 0.5, 1.5, 1, 0.5, 1, 2, 2, 1, 1, 0.5, 1.5, 1, 1, 0.5, 1, 0.5, 2])
_UNIT = np.repeat(np.arange(6), 3)

_B_SD = np.float64(1.5)
_S_SCALE = np.float64(1.0)


def build_poisson_glmm() -> pm.Model:
    """Poisson counts with a random intercept of every unit, which is integrated out."""
    from pm_evidence.targets.estimated.random_effects import RandomEffects

    with pm.Model() as model:
        b = pm.Normal("b", 0, _B_SD)
        s = pm.HalfNormal("s", _S_SCALE)
        RandomEffects(
            "counts",
            effects=lambda: pm.Normal.dist(0, s),
            emission=lambda u, i: pm.Poisson.dist(_EXPOSURE[i] * pt.exp(b + u)),
            groups=_UNIT,
            observed=_COUNTS,
        )
    return model


def build_poisson_glmm_explicit() -> pm.Model:
    """The same model with the effects as variables."""
    with pm.Model() as model:
        b = pm.Normal("b", 0, _B_SD)
        s = pm.HalfNormal("s", _S_SCALE)
        u = pm.Normal("u", 0, s, shape=6)
        pm.Poisson("counts", _EXPOSURE * pm.math.exp(b + u[_UNIT]), observed=_COUNTS)
    return model


def _log_density(b: Floats, log_s: Floats) -> Floats:
    """Joint log density of data and parameters, by quadrature over the effect of each unit."""
    s = np.exp(log_s)
    log_prior = log_normal(b, 0.0, _B_SD) + np.log(2) + log_normal(s, 0.0, _S_SCALE) + log_s
    # the effect is s * z; with 12 panels in the place of 16 the evidence changes by 2e-6 nats
    z, log_weight = gauss_legendre(-12.0, 12.0, 16)
    log_weight = log_weight + log_normal(z, 0.0, 1.0)
    total = np.bincount(_UNIT, _COUNTS)
    exposure = np.bincount(_UNIT, _EXPOSURE)
    constant = (_COUNTS * np.log(_EXPOSURE) - gammaln(_COUNTS + 1)).sum()
    result = log_prior + constant
    for k in range(b.shape[0]):  # one at a time, for memory
        rate = b[k] + s[..., None] * z
        exp_rate = np.exp(rate)
        for y, e in zip(total, exposure, strict=True):
            result[k] += logsumexp(y * rate - e * exp_rate + log_weight, axis=-1)[0]
    return result


@cache
def poisson_glmm() -> ExactSystem:
    """Poisson counts with a random intercept of every unit."""
    return ExactSystem(
        "poisson_glmm",
        build_poisson_glmm,
        log_integral(_log_density, (-9.0, 7.0), (-20.0, 1.9), tolerance=1e-6),
    )
