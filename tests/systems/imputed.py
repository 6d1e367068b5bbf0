"""Masked observations, which PyMC turns into free variables.

The evidence is that of the part that was observed: what is imputed integrates,
or sums, to one.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pymc as pm

from pm_evidence.testing.closed_forms import (
    log_normal_group,
    log_poisson_gamma,
)
from pm_evidence.testing.systems import ExactSystem

_NORMAL_Y = np.ma.masked_array(
    [1.3, 0.2, 0.0, 2.4, 0.0], mask=np.array([0, 0, 1, 0, 1], dtype=bool)
)
_NORMAL_PRIOR_SD = np.float64(2.0)

_COUNTS = np.ma.masked_array([4, 0, 2, 5, 0], mask=np.array([0, 1, 0, 0, 1], dtype=bool))
_COUNTS_SHAPE, _COUNTS_RATE = 2.0, np.float64(0.5)


@contextmanager
def _imputation_expected() -> Iterator[None]:
    """Silence PyMC's warning that it imputes: here that is the point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pm.exceptions.ImputationWarning)
        yield


def build_missing_normal() -> pm.Model:
    """Two normal observations of five are missing: two more continuous free variables."""
    with _imputation_expected(), pm.Model() as model:
        mu = pm.Normal("mu", 0, _NORMAL_PRIOR_SD)
        pm.Normal("y", mu, 1, observed=_NORMAL_Y)
    return model


def build_missing_poisson() -> pm.Model:
    """Two counts of five are missing: discrete free variables without upper end."""
    with _imputation_expected(), pm.Model() as model:
        rate = pm.Gamma("rate", alpha=_COUNTS_SHAPE, beta=_COUNTS_RATE)
        pm.Poisson("y", rate, observed=_COUNTS)
    return model


def systems() -> tuple[ExactSystem, ...]:
    """Return the systems with missing observations."""
    normal = float(log_normal_group(_NORMAL_Y.compressed(), 1.0, _NORMAL_PRIOR_SD))
    counts = log_poisson_gamma(_COUNTS.compressed(), _COUNTS_SHAPE, float(_COUNTS_RATE))
    return (
        ExactSystem("missing_normal", build_missing_normal, normal),
        ExactSystem("missing_poisson", build_missing_poisson, counts, smooth=False),
    )
