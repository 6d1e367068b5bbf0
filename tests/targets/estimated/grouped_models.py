"""Models with effects of groups, and their likelihoods by quadrature or in closed form."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import stats
from scipy.special import expit, gammaln, logsumexp

from pm_evidence.targets.compile.calls import GENERATOR_SLOTS
from pm_evidence.targets.estimated.random_effects import RandomEffects
from pm_evidence.targets.estimated.variable import estimators_of
from tests.targets.compile.frames import call

KINDS = ("random", "quasi")
RNG = np.random.default_rng(20250711)
N_OBS = 40
GROUPS = np.r_[np.arange(8), RNG.integers(0, 8, N_OBS - 8)]
X = RNG.normal(size=N_OBS)
COUNTS = RNG.poisson(np.exp(0.4 + 0.3 * X + 0.8 * RNG.normal(size=8)[GROUPS])).astype(float)
COUNTS[[3, 17, 30]] = np.nan
COUNTS[3 + 8] = 2.0
GROUPS[11] = 3  # so that no group is left without observations
BINARY = RNG.integers(0, 2, N_OBS)
REAL = RNG.normal(size=N_OBS) + RNG.normal(size=8)[GROUPS]
SHAPE = np.array([[1.0, 0.4], [0.4, 0.7]])
POINT = np.array([0.3, -0.2, -0.3])  # b, log s


@cache
def poisson():
    """Counts with some missing, labels in the place of numbers."""
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=2)
        s = pm.HalfNormal("s", 1)
        RandomEffects(
            "counts",
            effects=lambda: pm.Normal.dist(0, s),
            emission=lambda u, i: pm.Poisson.dist(pt.exp(b[0] + b[1] * X[i] + u)),
            groups=[f"g{k}" for k in GROUPS],
            observed=COUNTS,
        )
    return model


@cache
def bernoulli():
    """Correlated intercepts and slopes."""
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=2)
        s = pm.HalfNormal("s", 1)
        RandomEffects(
            "hit",
            effects=lambda: pm.MvNormal.dist(np.zeros(2), s**2 * SHAPE),
            emission=lambda u, i: pm.Bernoulli.dist(
                logit_p=b[0] + b[1] * X[i] + u[:, 0] + u[:, 1] * X[i]
            ),
            groups=GROUPS,
            observed=BINARY,
        )
    return model


@cache
def gaussian():
    """Two independent effects, normal data: a closed form. Names are of all kinds."""
    with pm.Model(coords={"plant": np.arange(N_OBS)}) as model:
        b = pm.Normal("b", 0, 2, shape=2)
        s = pm.HalfNormal("s", 1)
        half = pm.Deterministic("half", s / 2)
        RandomEffects(
            "height",
            effects=lambda: pm.Normal.dist(b[1], 2 * half, shape=2),
            emission=lambda u, i: pm.Normal.dist(b[0] + u[:, 0] + u[:, 1] * X[i], 0.8),
            groups=GROUPS + 7,
            observed=REAL,
            dims="plant",
        )
    return model


@cache
def small():
    """Two groups of counts whose rate may be negative, and data that can be replaced."""
    with pm.Model() as model:
        b = pm.Normal("b", 3, 1)
        x = pm.Data("x", np.ones(4))
        RandomEffects(
            "y",
            effects=lambda: pm.Normal.dist(0, 1),
            emission=lambda u, i: pm.Poisson.dist(b * x[i] + u),
            groups=[0, 0, 1, 1],
            observed=pm.Data("counts", [0, 1, 4, 6]),
        )
    return model


def exact_small(b, x, counts):
    u = np.linspace(-b * x + 1e-9, 12, 200_001)
    each = stats.poisson.logpmf(np.reshape(counts, (2, 2, 1)), b * x + u).sum(1)
    return logsumexp(each + stats.norm.logpdf(u), axis=1) + np.log(u[1] - u[0])


def exact_poisson(x):
    z = np.linspace(-12, 12, 6001)
    rate = x[0] + x[1] * X[:, None] + np.exp(x[2]) * z
    each = COUNTS[:, None] * rate - np.exp(rate) - gammaln(COUNTS + 1)[:, None]
    return integrate(np.nan_to_num(each), stats.norm.logpdf(z) + np.log(z[1] - z[0]))


def exact_bernoulli(x):
    z = np.linspace(-10, 10, 301)
    grid = np.stack(np.meshgrid(z, z, indexing="ij"), -1).reshape(-1, 2)
    u = grid @ np.linalg.cholesky(np.exp(2 * x[2]) * SHAPE).T
    p = expit(x[0] + x[1] * X[:, None] + u[:, 0] + u[:, 1] * X[:, None])
    log_weight = stats.norm.logpdf(grid).sum(axis=1) + 2 * np.log(z[1] - z[0])
    return integrate(stats.bernoulli.logpmf(BINARY[:, None], p), log_weight)


def exact_gaussian(x):
    total = []
    for g in range(8):
        rows = g == GROUPS
        design = np.c_[np.ones(rows.sum()), X[rows]]
        mean = x[0] + design @ [x[1], x[1]]
        cov = np.exp(2 * x[2]) * design @ design.T + 0.64 * np.eye(rows.sum())
        total.append(stats.multivariate_normal.logpdf(REAL[rows], mean, cov))
    return np.array(total)


def integrate(each, log_weight):
    return np.array([logsumexp(each[g == GROUPS].sum(0) + log_weight) for g in range(8)])


MODELS = {
    "poisson": (poisson, exact_poisson),
    "bernoulli": (bernoulli, exact_bernoulli),
    "gaussian": (gaussian, exact_gaussian),
}


@cache
def estimator(name):
    (result,) = estimators_of(MODELS[name][0]())
    return result


def seeds_of(n, n_seeds=1, seed=1):
    return np.random.default_rng(seed).integers(2**63, size=(n, n_seeds)).astype(np.uint64)


def at_point(n, point=POINT):
    return np.repeat(point[None], n, axis=0)


def derivatives(density, point, at):
    """Start of Newton's method at a point; values, gradients and Hessians of all groups there."""
    n_groups, n_dim = at.shape
    parameters, start = np.empty(density.sizes[0]), np.empty((n_groups, n_dim))
    value, gradient = np.empty(n_groups), np.empty((n_groups, n_dim))
    hessian = np.empty((n_dim, n_groups, n_dim))
    for number, arrays in enumerate(
        [(point, parameters, start), (at, parameters, value, gradient, hessian)]
    ):
        function = density.calls[number]
        frame = function.frame()
        slots = slice(GENERATOR_SLOTS, GENERATOR_SLOTS + len(arrays))
        frame[slots] = [a.ctypes.data for a in arrays]
        assert call(function.address, frame) == 0
    return start, value, gradient, hessian.transpose(1, 0, 2)
