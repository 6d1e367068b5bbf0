"""Pairs of models of the same data whose Bayes factor is known."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pm_evidence.testing.systems import LOG_2PI, log_normal, log_poisson_gamma
from tests.systems.closed_forms import log_normal_inverse_gamma

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ModelPair:
    """Two models of the same data, and their exact log Bayes factor."""

    name: str  # unique name
    # Returns two fresh models. PyMC is imported when it is called.
    build: Callable[[], tuple[pm.Model, pm.Model]]
    log_bf: float  # log Bayes factor of the first model against the second, in nats


# linear regression with a conjugate prior ----------------------------------------------------

_N = 60
_DESIGN = np.column_stack([np.ones(_N), *(np.sin(k * np.arange(_N)) for k in (1.0, 2.0, 3.3))])
_Y = _DESIGN @ [1.0, 0.8, -0.5, 0.2] + np.random.default_rng(60).standard_normal(_N)


def _regression(p: int, prior_sd: float) -> pm.Model:
    with pm.Model() as model:
        precision = pm.Gamma("precision", 3.0, 2.0)
        sd = precision**-0.5
        slope = pm.Normal("slope", 0.0, np.float64(prior_sd) * sd, shape=p)
        pm.Normal("y", _DESIGN[:, :p] @ slope, sd, observed=_Y)
    return model


def _log_regression(p: int, prior_sd: float) -> float:
    precision = np.eye(p) / prior_sd**2
    return log_normal_inverse_gamma(_Y, _DESIGN[:, :p], np.zeros(p), precision, 3.0, 2.0)


# logistic regression -------------------------------------------------------------------------

_TRIALS = np.random.default_rng(61).random(_N) < 1 / (1 + np.exp(-_DESIGN @ [0.3, 1.2, -0.6, 0.4]))
_NODES = 24  # of Gauss-Hermite quadrature in each coordinate


def _logistic_model(p: int) -> pm.Model:
    with pm.Model() as model:
        slope = pm.Normal("slope", 0.0, 1.5, shape=p)
        pm.Bernoulli("y", logit_p=_DESIGN[:, :p] @ slope, observed=_TRIALS.astype(int))
    return model


def _log_joint(x: Floats) -> Floats:
    """Return the log of prior times likelihood at every row of ``x``, shape ``(n, p)``."""
    predictor = x @ _DESIGN[:, : x.shape[1]].T
    log_likelihood = (_TRIALS * predictor - np.logaddexp(0.0, predictor)).sum(axis=1)
    return log_likelihood + log_normal(x, 0.0, 1.5).sum(axis=1)


def _log_logistic(p: int) -> float:
    """Return the evidence by quadrature about the peak, whose scales are those of curvature."""
    design, x = _DESIGN[:, :p], np.zeros(p)
    for _ in range(50):  # Newton's method
        mean = 1 / (1 + np.exp(-design @ x))
        curvature = (design.T * (mean * (1 - mean))) @ design + np.eye(p) / 1.5**2
        x = x + np.linalg.solve(curvature, design.T @ (_TRIALS - mean) - x / 1.5**2)
    scale = np.linalg.cholesky(np.linalg.inv(curvature))
    node, weight = np.polynomial.hermite_e.hermegauss(_NODES)
    grid = np.stack(np.meshgrid(*[node] * p), axis=-1).reshape(-1, p)
    log_weight = np.stack(np.meshgrid(*[np.log(weight)] * p), axis=-1).reshape(-1, p).sum(axis=1)
    log_value = _log_joint(x + grid @ scale.T) + 0.5 * (grid**2).sum(axis=1) + log_weight
    top = log_value.max()
    return float(top + np.log(np.exp(log_value - top).sum()) + np.log(np.diag(scale)).sum())


# measurements in groups ----------------------------------------------------------------------

_SIZES = 1 + np.arange(40) * 7 % 9
_GROUP = np.repeat(np.arange(40), _SIZES)
_OF_GROUP = np.sin(5.0 * np.arange(40.0))
_BASEMENT = (np.arange(_GROUP.size) * 13 % 5 < 2).astype(float)
_RADON = (
    (1.4 + 0.15 * _OF_GROUP + 0.3 * np.random.default_rng(62).standard_normal(40))[_GROUP]
    - 0.6 * _BASEMENT
    + 0.7 * np.random.default_rng(63).standard_normal(_GROUP.size)
)
_MEAN_SD, _SLOPE_SD, _COVARIATE_SD, _BETWEEN, _WITHIN = 3.0, 1.0, 0.5, 0.5, 1.0


def _grouped(covariate: bool, between: float = _BETWEEN, pooled: bool = False) -> pm.Model:
    with pm.Model() as model:
        mean = pm.Normal("mean", 0.0, _MEAN_SD)
        slope = pm.Normal("slope", 0.0, _SLOPE_SD)
        within = pm.HalfNormal("within", _WITHIN)
        centre: Any = mean
        if covariate:
            centre = mean + pm.Normal("covariate", 0.0, _COVARIATE_SD) * _OF_GROUP
        effect = centre
        if not pooled:
            sd = pm.HalfNormal("between", between)
            effect = pm.Normal("effect", centre, sd, shape=40)[_GROUP]
        pm.Normal("y", effect + slope * _BASEMENT, within, observed=_RADON)
    return model


@cache
def _log_grouped(covariate: bool, between: float = _BETWEEN, pooled: bool = False) -> float:
    """Return the evidence by quadrature over both scales, with all else integrated out."""
    columns = [np.full(_GROUP.size, _MEAN_SD), _SLOPE_SD * _BASEMENT]
    if covariate:
        columns.append(_COVARIATE_SD * _OF_GROUP[_GROUP])
    fixed, groups = np.column_stack(columns), np.eye(40)[_GROUP]
    node, weight = np.polynomial.legendre.leggauss(40)
    within, log_within = _on(node, weight, 0.4, 1.2)
    log_prior = _log_half_normal(within, _WITHIN) + log_within
    if pooled:
        return _log_sum(log_prior + [_log_marginal(fixed, w) for w in within])
    sds, log_sd = _on(node, weight, 0.0, 1.5)
    log_prior = log_prior + (_log_half_normal(sds, between) + log_sd)[:, None]
    inside = [[_log_marginal(np.hstack([fixed, sd * groups]), w) for w in within] for sd in sds]
    return _log_sum(np.ravel(log_prior + np.array(inside)))


def _on(node: Floats, weight: Floats, low: float, high: float) -> tuple[Floats, Floats]:
    """Return nodes and log weights of quadrature on an interval."""
    half = 0.5 * (high - low)
    return low + half * (node + 1.0), np.log(half * weight)


def _log_half_normal(x: Floats, sd: float) -> Floats:
    return np.log(2.0) + log_normal(x, 0.0, sd)


def _log_marginal(columns: Floats, within: float) -> float:
    """Return the log density of the data, whose effects have standard normal coefficients."""
    inner = np.eye(columns.shape[1]) + columns.T @ columns / within**2
    projected = columns.T @ _RADON / within**2
    squares = _RADON @ _RADON / within**2 - projected @ np.linalg.solve(inner, projected)
    log_det = _RADON.size * np.log(within**2) + np.linalg.slogdet(inner)[1]
    return float(-0.5 * (_RADON.size * LOG_2PI + log_det + squares))


def _log_sum(log_value: Floats) -> float:
    top = float(np.max(log_value))
    return top + float(np.log(np.exp(log_value - top).sum()))


# counts --------------------------------------------------------------------------------------

_COUNTS = np.array([3, 1, 4, 2, 6, 3, 0, 5, 2, 4])


def _count_model(exponential: bool) -> pm.Model:
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2.0, 0.5)
        if exponential:
            # counts of failures before the first success are geometric with mean ``rate``
            pm.NegativeBinomial("y", mu=rate, alpha=1.0, observed=_COUNTS)
        else:
            pm.Poisson("y", rate, observed=_COUNTS)
    return model


def _log_geometric() -> float:
    node, weight = np.polynomial.legendre.leggauss(400)
    rate, log_weight = _on(node, weight, 0.0, 60.0)
    log_prior = 2.0 * np.log(0.5) + np.log(rate) - 0.5 * rate
    n, total = _COUNTS.size, _COUNTS.sum()
    log_likelihood = total * np.log(rate) - (n + total) * np.log1p(rate)
    return _log_sum(log_prior + log_likelihood + log_weight)


@cache
def model_pairs() -> dict[str, ModelPair]:
    """Return all pairs by name."""
    pairs = [
        # linear regression with and without a covariate; normal-inverse-gamma closed form
        ModelPair(
            "regression_covariate",
            lambda: (_regression(4, 2.0), _regression(3, 2.0)),
            _log_regression(4, 2.0) - _log_regression(3, 2.0),
        ),
        # linear regression with two prior scales; normal-inverse-gamma closed form
        ModelPair(
            "regression_prior",
            lambda: (_regression(4, 1.0), _regression(4, 3.0)),
            _log_regression(4, 1.0) - _log_regression(4, 3.0),
        ),
        # logistic regression with and without a covariate; Gauss-Hermite quadrature
        ModelPair(
            "logistic_covariate",
            lambda: (_logistic_model(4), _logistic_model(3)),
            _log_logistic(4) - _log_logistic(3),
        ),
        # 40 group effects with and without a covariate of the groups; quadrature over two scales
        ModelPair(
            "groups_covariate",
            lambda: (_grouped(covariate=True), _grouped(covariate=False)),
            _log_grouped(covariate=True) - _log_grouped(covariate=False),
        ),
        # 40 group effects with two priors of their scale; quadrature over two scales
        ModelPair(
            "groups_prior",
            lambda: (_grouped(covariate=False), _grouped(covariate=False, between=2.0)),
            _log_grouped(covariate=False) - _log_grouped(covariate=False, between=2.0),
        ),
        # Poisson or geometric counts of the same rate; closed form, and quadrature of one variable
        ModelPair(
            "count_likelihood",
            lambda: (_count_model(exponential=False), _count_model(exponential=True)),
            log_poisson_gamma(_COUNTS, 2.0, 0.5) - _log_geometric(),
        ),
        # 40 group effects, or none at all: models that are not alike; quadrature over two scales
        ModelPair(
            "groups_pooled",
            lambda: (_grouped(covariate=False), _grouped(covariate=False, pooled=True)),
            _log_grouped(covariate=False) - _log_grouped(covariate=False, pooled=True),
        ),
    ]
    return {pair.name: pair for pair in pairs}
