"""Models whose evidence is a closed form: conjugate ones, features of PyMC, masked observations.

The features are those that evidence code is known to get wrong. Masked observations become free
variables, which integrate, or sum, to one: the evidence is that of the part that was observed.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from scipy.special import gammaln

from pm_evidence.testing.systems import (
    LOG_2PI,
    ExactSystem,
    log_mvnormal,
    log_normal,
    log_normal_group,
    log_poisson_gamma,
)
from tests.systems.closed_forms import exact, log_bernoulli_beta, log_normal_inverse_gamma

Floats = NDArray[np.float64]

# Scales are np.float64, not literals: PyTensor takes the log of a literal such as 2.0 in single
# precision.

_TRIALS = np.array([10, 12, 8, 15])
_SUCCESSES = np.array([7, 5, 6, 11])

_CATEGORY_COUNTS = np.array([6, 3, 1])
_CONCENTRATION = np.array([2.0, 1.5, 1.0])

_REGRESSION_X = np.column_stack(
    [np.ones(12), np.linspace(-1, 1, 12), np.cos(np.arange(12.0)), np.sin(2 * np.arange(12.0))]
)
_REGRESSION_Y = _REGRESSION_X @ [1.0, -2.0, 0.5, 0.0] + 0.7 * np.cos(5 * np.arange(12.0) ** 2)
_REGRESSION_MEAN = np.array([0.0, -1.0, 0.0, 0.0])
_REGRESSION_SCALE = np.array(
    [[4.0, 1.0, 0, 0], [1.0, 2.0, 0, 0], [0, 0, 1.0, -0.5], [0, 0, -0.5, 1.0]]
)

# The scales and the prior of Friel and Wyse's radiata pine regression, with synthetic data: 42
# strengths (lb / sq. inch) against centred densities (lb / cubic foot).
_PINE_X = np.linspace(-9.0, 9.0, 42) + 2 * np.sin(np.arange(42.0))
_PINE_Y = 3000 + 185 * _PINE_X + 300 * np.random.default_rng(20090).standard_normal(42)
_PINE_MEAN = np.array([3000.0, 185.0])
_PINE_PRECISION = np.array([0.06, 6.0])
_PINE_SHAPE, _PINE_RATE = np.float64(3.0), np.float64(2 * 300.0**2)

_VECTOR_PRIOR_MEAN = np.array([1.0, 0.0, -1.0])
_VECTOR_PRIOR_COV = np.array([[2.0, 1.2, 0.3], [1.2, 1.5, 0.1], [0.3, 0.1, 0.8]])
_VECTOR_NOISE_COV = np.array([[0.5, -0.2, 0.0], [-0.2, 0.7, 0.1], [0.0, 0.1, 0.4]])
_VECTOR_Y = np.array([[0.3, 0.8, -1.5], [1.9, -0.4, -0.2], [1.1, 0.9, -0.9], [0.2, 0.1, -1.8]])

_WALK_LENGTH = 20
_WALK_START, _WALK_STEP, _WALK_NOISE = np.float64(2.0), np.float64(0.3), np.float64(0.7)


def build_beta_binomial() -> pm.Model:
    """Binomial successes with a beta prior of their probability."""
    with pm.Model() as model:
        p = pm.Beta("p", alpha=2.0, beta=2.0)
        pm.Binomial("y", n=_TRIALS, p=p, observed=_SUCCESSES)
    return model


def build_dirichlet_multinomial() -> pm.Model:
    """Multinomial counts with a Dirichlet prior: the simplex transform."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=_CONCENTRATION)
        pm.Multinomial("y", n=_CATEGORY_COUNTS.sum(), p=p, observed=_CATEGORY_COUNTS)
    return model


def build_normal_inverse_gamma() -> pm.Model:
    """Regression on four coefficients with unknown variance."""
    with pm.Model() as model:
        variance = pm.InverseGamma("variance", alpha=3.0, beta=np.float64(2.0))
        coefficients = pm.MvNormal(
            "coefficients", _REGRESSION_MEAN, cov=variance * _REGRESSION_SCALE
        )
        pm.Normal("y", _REGRESSION_X @ coefficients, variance**0.5, observed=_REGRESSION_Y)
    return model


def build_radiata_pine_like() -> pm.Model:
    """Regression with a gamma precision on the scales of the radiata pine data."""
    with pm.Model(coords={"coefficient": ["intercept", "slope"]}) as model:
        precision = pm.Gamma("precision", alpha=_PINE_SHAPE, beta=_PINE_RATE)
        coefficients = pm.Normal(
            "coefficients", _PINE_MEAN, tau=precision * _PINE_PRECISION, dims="coefficient"
        )
        strength = pm.Deterministic("strength", coefficients[0] + coefficients[1] * _PINE_X)
        pm.Normal("y", strength, tau=precision, observed=_PINE_Y)
    return model


def build_mvnormal_mean() -> pm.Model:
    """Mean vector of a multivariate normal sample: a multivariate free variable."""
    with pm.Model() as model:
        mu = pm.MvNormal("mu", _VECTOR_PRIOR_MEAN, cov=_VECTOR_PRIOR_COV)
        pm.MvNormal("y", mu, cov=_VECTOR_NOISE_COV, observed=_VECTOR_Y)
    return model


def _log_beta_binomial() -> float:
    log_choose = gammaln(_TRIALS + 1) - gammaln(_SUCCESSES + 1) - gammaln(_TRIALS - _SUCCESSES + 1)
    n_successes, n_trials = _SUCCESSES.sum(), _TRIALS.sum()
    return float(log_choose.sum() + log_bernoulli_beta(n_successes, n_trials - n_successes, 2, 2))


def _log_dirichlet_multinomial() -> float:
    counts, prior = _CATEGORY_COUNTS, _CONCENTRATION
    log_coefficient = gammaln(counts.sum() + 1) - gammaln(counts + 1).sum()
    log_ratio = gammaln(counts + prior).sum() - gammaln(prior).sum()
    return float(
        log_coefficient + log_ratio + gammaln(prior.sum()) - gammaln(counts.sum() + prior.sum())
    )


def _log_mvnormal_mean() -> float:
    n = len(_VECTOR_Y)
    cov = np.kron(np.ones((n, n)), _VECTOR_PRIOR_COV) + np.kron(np.eye(n), _VECTOR_NOISE_COV)
    return log_mvnormal(_VECTOR_Y.ravel(), np.tile(_VECTOR_PRIOR_MEAN, n), cov)


def _log_regression() -> float:
    precision = np.linalg.inv(_REGRESSION_SCALE)
    return log_normal_inverse_gamma(
        _REGRESSION_Y, _REGRESSION_X, _REGRESSION_MEAN, precision, shape=3.0, rate=2.0
    )


def _log_pine() -> float:
    design = np.column_stack([np.ones_like(_PINE_X), _PINE_X])
    return log_normal_inverse_gamma(
        _PINE_Y, design, _PINE_MEAN, np.diag(_PINE_PRECISION), float(_PINE_SHAPE), float(_PINE_RATE)
    )


def _walk_y() -> np.ndarray:
    steps = np.random.default_rng(_WALK_LENGTH).standard_normal((2, _WALK_LENGTH))
    return 1.0 + np.cumsum(_WALK_STEP * steps[0]) + _WALK_NOISE * steps[1]


def build_random_walk() -> pm.Model:
    """A local level: a Gaussian random walk observed with noise."""
    with pm.Model() as model:
        level = pm.GaussianRandomWalk(
            "level",
            sigma=_WALK_STEP,
            init_dist=pm.Normal.dist(0, _WALK_START),
            steps=_WALK_LENGTH - 1,
        )
        pm.Normal("y", level, _WALK_NOISE, observed=_walk_y())
    return model


def _log_random_walk() -> float:
    index = np.arange(_WALK_LENGTH)
    cov = _WALK_START**2 + _WALK_STEP**2 * np.minimum.outer(index, index)
    return log_mvnormal(_walk_y(), 0.0, cov + _WALK_NOISE**2 * np.eye(_WALK_LENGTH))


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
    """Return the systems with closed forms."""
    counts = log_poisson_gamma(_COUNTS.compressed(), _COUNTS_SHAPE, float(_COUNTS_RATE))
    missing = float(log_normal_group(_NORMAL_Y.compressed(), 1.0, _NORMAL_PRIOR_SD))
    return (
        exact(build_beta_binomial, _log_beta_binomial()),
        exact(build_dirichlet_multinomial, _log_dirichlet_multinomial()),
        exact(build_normal_inverse_gamma, _log_regression()),
        exact(build_radiata_pine_like, _log_pine()),
        exact(build_mvnormal_mean, _log_mvnormal_mean()),
        exact(build_random_walk, _log_random_walk()),
        exact(build_no_free_variable, float(log_normal(_FIXED_Y, 0.0, 1.0).sum())),
        exact(build_observed_parent, _log_observed_parent()),
        exact(build_initval, float(log_normal_group(_INITVAL_Y, 1.0, 1.0))),
        exact(build_data_container, _log_data_container()),
        exact(build_potential_and_data, _log_potential_and_data()),
        exact(build_missing_normal, missing),
        exact(build_missing_poisson, counts, smooth=False),
    )
