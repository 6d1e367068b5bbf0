"""Densities that enter as pm.Potential, alone or beside observed data."""

import numpy as np
import pymc as pm

from pm_evidence.testing.closed_forms import LOG_2PI, log_normal_group
from pm_evidence.testing.systems import ExactSystem

_DATA_Y, _DATA_PRIOR_SD = np.array([1.1, 1.8, 0.6]), np.float64(1.5)
_TILT_AT, _TILT_SD = 2.0, 0.7


def build_potential_and_data() -> pm.Model:
    """An unnormalised quadratic tilt beside observed data."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, _DATA_PRIOR_SD)
        pm.Normal("y", mu, 1, observed=_DATA_Y)
        pm.Potential("tilt", -0.5 * ((mu - _TILT_AT) / _TILT_SD) ** 2)
    return model


def _log_potential_and_data() -> float:
    # The tilt is the density of one more observation, at _TILT_AT with its own variance, but for
    # the factor that normalises it.
    y, variance = np.append(_DATA_Y, _TILT_AT), np.append(np.ones(_DATA_Y.size), _TILT_SD**2)
    log_factor = 0.5 * LOG_2PI + np.log(_TILT_SD)
    return float(log_normal_group(y, variance, _DATA_PRIOR_SD) + log_factor)


def systems() -> tuple[ExactSystem, ...]:
    """Return the systems with potentials (more are among the multimodal ones)."""
    return (ExactSystem("potential_and_data", build_potential_and_data, _log_potential_and_data()),)
