"""Features of PyMC that evidence code is known to get wrong, on otherwise easy models."""

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pm_evidence.testing.closed_forms import log_mvnormal, log_normal, log_normal_group
from pm_evidence.testing.systems import ExactSystem

Floats = NDArray[np.float64]

_FIXED_Y = np.array([0.4, -1.2, 0.7])

_PARENT, _PARENT_SD = np.float64(2.5), np.float64(1.2)
_CHILD_SD, _CHILD_NOISE = np.float64(0.6), np.float64(0.5)
_CHILD_Y = np.array([1.6, 1.9])

_INITVAL = 30.0
_INITVAL_Y = np.array([0.3, -0.4, 0.8, 0.1])


_LINE_X = np.array([-1.5, -0.7, 0.0, 0.4, 1.1, 1.9])
_LINE_Y = np.array([-1.9, -1.1, 0.4, 0.3, 1.8, 2.2])
_LINE_PRIOR_SD, _LINE_NOISE = np.array([2.0, 3.0]), np.float64(0.5)


def build_no_free_variable() -> pm.Model:
    """Nothing to infer: the evidence is the likelihood."""
    with pm.Model() as model:
        pm.Normal("y", 0, 1, observed=_FIXED_Y)
    return model


def build_observed_parent() -> pm.Model:
    """A free variable whose parent is observed: prior draws must not redraw the parent."""
    with pm.Model() as model:
        parent = pm.Normal("parent", 0, _PARENT_SD, observed=_PARENT)
        child = pm.Normal("child", parent, _CHILD_SD)
        pm.Normal("y", child, _CHILD_NOISE, observed=_CHILD_Y)
    return model


def build_initval() -> pm.Model:
    """An initial value far from prior and posterior: prior draws must not start there."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, initval=_INITVAL)
        pm.Normal("y", mu, 1, observed=_INITVAL_Y)
    return model


def build_data_container() -> pm.Model:
    """A straight line whose predictor and response are pm.Data."""
    with pm.Model(coords={"row": np.arange(_LINE_X.size)}) as model:
        x = pm.Data("x", _LINE_X, dims="row")
        response = pm.Data("response", _LINE_Y, dims="row")
        coefficient = pm.Normal("coefficient", 0, _LINE_PRIOR_SD)
        line = coefficient[0] + coefficient[1] * x
        pm.Normal("y", line, _LINE_NOISE, observed=response, dims="row")
    return model


def _log_observed_parent() -> float:
    n = _CHILD_Y.size
    cov = _CHILD_SD**2 * np.ones((n, n)) + _CHILD_NOISE**2 * np.eye(n)
    return float(log_normal(_PARENT, 0.0, _PARENT_SD)) + log_mvnormal(_CHILD_Y, _PARENT, cov)


def _log_data_container() -> float:
    design = np.column_stack([np.ones_like(_LINE_X), _LINE_X]) * _LINE_PRIOR_SD
    return log_mvnormal(_LINE_Y, 0.0, design @ design.T + _LINE_NOISE**2 * np.eye(_LINE_Y.size))


def systems() -> tuple[ExactSystem, ...]:
    """Return the systems about features of PyMC."""
    fixed = float(log_normal(_FIXED_Y, 0.0, 1.0).sum())
    initval = float(log_normal_group(_INITVAL_Y, 1.0, 1.0))
    return (
        ExactSystem("no_free_variable", build_no_free_variable, fixed),
        ExactSystem("observed_parent", build_observed_parent, _log_observed_parent()),
        ExactSystem("initval", build_initval, initval),
        ExactSystem("data_container", build_data_container, _log_data_container()),
    )
