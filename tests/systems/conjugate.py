"""Conjugate models: the evidence is a closed form."""

import numpy as np
import pymc as pm
from scipy.special import gammaln

from pm_evidence.testing.closed_forms import log_mvnormal
from pm_evidence.testing.systems import ExactSystem
from tests.systems.closed_forms import log_bernoulli_beta, log_normal_inverse_gamma

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


def systems() -> tuple[ExactSystem, ...]:
    """Return the conjugate systems."""
    regression = _log_regression()
    return (
        ExactSystem("beta_binomial", build_beta_binomial, _log_beta_binomial()),
        ExactSystem(
            "dirichlet_multinomial", build_dirichlet_multinomial, _log_dirichlet_multinomial()
        ),
        ExactSystem("normal_inverse_gamma", build_normal_inverse_gamma, regression),
        ExactSystem("radiata_pine_like", build_radiata_pine_like, _log_pine()),
        ExactSystem("mvnormal_mean", build_mvnormal_mean, _log_mvnormal_mean()),
        ExactSystem("random_walk", build_random_walk, _log_random_walk()),
    )
