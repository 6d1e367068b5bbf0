"""The PyMC models that end-to-end tests share, each with its exact log evidence.

A model is built once in a process, so that it is also compiled once there. A test that is about a
model itself, or that changes its data, makes one of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from scipy import integrate, stats

import pm_evidence as pe
from tests.systems.exact import exact_systems


@dataclass(frozen=True, eq=False)
class Known:
    """A model, and what `sample_evidence` should find."""

    model: pm.Model
    log_evidence: float


# Systems of `pm_evidence.testing`, by what they are here for.
SYSTEMS = {
    "normal": "normal_mean",  # one variable, conjugate: the cheapest
    "several": "mvnormal_mean",  # several variables, conjugate
    "positive": "gamma_poisson",  # a transformed variable
    "schools": "eight_schools_half_normal_centred",  # a hierarchical model
    "modes": "bimodal",  # two modes, from a potential
    "discrete": "hidden_markov",  # discrete variables alone
    "mixed": "spike_and_slab",  # a discrete variable beside a continuous one
    "no variable": "no_free_variable",
}


# --- a straight line, with coordinates, data, and quantities derived from the variables ---

ROWS = ["a", "b", "c", "d", "e", "f"]
X = np.array([-1.5, -0.7, 0.0, 0.4, 1.1, 1.9])
Y = np.array([-1.9, -1.1, 0.4, 0.3, 1.8, 2.2])
PRIOR_SD, NOISE = np.array([2.0, 3.0]), np.float64(0.5)
DESIGN = np.column_stack([np.ones(6), X])


def line() -> Known:
    """A straight line with known noise: evidence and posterior have closed forms."""
    with pm.Model(coords={"row": ROWS, "term": ["intercept", "slope"]}) as model:
        x = pm.Data("x", X, dims="row")
        coefficient = pm.Normal("coefficient", 0, PRIOR_SD, dims="term")
        mean = pm.Deterministic("mean", coefficient[0] + coefficient[1] * x, dims="row")
        pm.Deterministic("total", mean.sum())
        pm.Normal("y", mean, NOISE, observed=Y, dims="row")
    return Known(model, exact_line())


def exact_line(y: np.ndarray = Y, x: np.ndarray = X) -> float:
    """The log evidence of a line through other points."""
    design = np.column_stack([np.ones_like(x), x])
    covariance = (design * PRIOR_SD**2) @ design.T + NOISE**2 * np.eye(len(y))
    return float(stats.multivariate_normal(np.zeros(len(y)), covariance).logpdf(y))


# --- potentials and supports ---


def potential() -> Known:
    """Two means with a potential that keeps them together, as a part of the prior."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=2)
        pm.Potential("near", -((x[0] - x[1]) ** 2))
        pm.Normal("y", x, 1, observed=[0.3, 0.8])
    precision = np.eye(2) + 2.0 * np.array([[1.0, -1.0], [-1.0, 1.0]])
    covariance = np.linalg.inv(precision) + np.eye(2)
    return Known(model, stats.multivariate_normal([0.0, 0.0], covariance).logpdf([0.3, 0.8]))


def support() -> Known:
    """A likelihood that is zero at 84 % of the prior."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Uniform("y", 0, pt.exp(x), observed=np.full(3, np.exp(1.0)))
    z, _ = integrate.quad(lambda x: stats.norm.pdf(x) * np.exp(-3.0 * x), 1.0, 12.0)
    return Known(model, float(np.log(z)))


# --- estimated likelihoods ---

LEVELS = np.array([0.4, -0.3, 0.5, 1.2, 0.9])


def states() -> Known:
    """A normal level that is observed with noise, through a particle filter."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pe.StateSpace(
            "y",
            init=lambda: pm.Normal.dist(mu, 1),
            transition=lambda h, t: pm.Normal.dist(h, 1),
            emission=lambda h, t: pm.Normal.dist(h, 1),
            observed=LEVELS,
        )
    times = np.arange(1, 1 + LEVELS.size)
    covariance = np.minimum.outer(times, times) + np.eye(LEVELS.size) + 1.0
    return Known(model, stats.multivariate_normal(np.zeros(LEVELS.size), covariance).logpdf(LEVELS))


GROUPS = np.array([0.5, -1.0, 2.0])


def groups() -> Known:
    """Normal effects of three groups, integrated out by importance sampling."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pe.RandomEffects(
            "y",
            effects=lambda: pm.Normal.dist(0, 1),
            emission=lambda u, i: pm.Normal.dist(mu + u, 1),
            groups=np.arange(3),
            observed=GROUPS,
        )
    covariance = 2.0 * np.eye(3) + 1.0
    return Known(model, stats.multivariate_normal(np.zeros(3), covariance).logpdf(GROUPS))


BUILT: dict[str, Callable[[], Known]] = {
    "line": line,
    "potential": potential,
    "support": support,
    "states": states,
    "groups": groups,
}
NAMES = (*SYSTEMS, *BUILT)


@cache
def shared(name: str) -> Known:
    """Return one of the models in ``NAMES``: the same object at every call."""
    if name in BUILT:
        return BUILT[name]()
    system = exact_systems()[SYSTEMS[name]]
    return Known(system.build(), system.log_evidence)


def loop() -> pm.Model:
    """A model with a loop, which is not evaluated for many points at once."""
    with pm.Model() as model:
        x = pm.Normal("x")
        path = pytensor.scan(
            lambda last, x: 0.5 * last + x,
            outputs_info=[pt.constant(np.float64(1.0))],
            non_sequences=[x],
            n_steps=4,
            return_updates=False,
        )
        pm.Normal("y", path[-1], 1, observed=0.5)
    return model
