"""Every distribution of PyMC, with one parameter, and what is expected of it in a model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import stats

CHAIN = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
POINTS = np.linspace(-4.0, 4.0, 60)

ATOM = "must have a density, got x .*explicit Bernoulli indicator"
IMPROPER = "proper prior, got x ~ pm"
IMPROPER_DATA = "proper likelihood, got y ~ pm"
NO_DRAWS = "must be drawable from its prior, but drawing x failed"
NO_DENSITY = "must have a log density that PyMC knows, but that of {} failed"


@dataclass(frozen=True)
class Case:
    """A distribution as a function of one number ``t``.

    Parameters
    ----------
    make : callable
        Arguments of the distribution, given ``t``.
    prior, likelihood : str or None
        What a refusal says where it is a free variable ``x``, or observed as ``y``; None where
        the evidence is right.
    exact_draws : callable, optional
        ``(n, t)`` to draws, where those of PyMC are wrong.
    data : array, optional
        What is observed, where it cannot be drawn.
    gradient : bool
        Whether PyMC's density has one.
    """

    make: Callable[[Any], dict[str, Any]]
    prior: str | None = None
    likelihood: str | None = None
    exact_draws: Callable[[int, float], Any] | None = None
    data: Any = None


def car_precision(t):
    return np.exp(t) * (np.diag(CHAIN.sum(axis=0)) - 0.5 * CHAIN)


def draw_car(n, t):
    covariance = np.linalg.inv(car_precision(t))
    return np.random.default_rng(1).multivariate_normal(np.zeros(3), covariance, size=n)


def _random(t, rng=None, size=None):
    return rng.normal(t, 1, size=size)


def _logp(value, t):
    return -0.5 * (value - t) ** 2 - 0.5 * np.log(2 * np.pi)


def _simulate(rng, t, size):
    return rng.normal(t, 1, size=size)


ABSTRACT = {  # classes that distributions are made from
    "Continuous",
    "Discrete",
    "Distribution",
    "SymbolicRandomVariable",
}

ALIASES = {"Lognormal": "LogNormal", "DensityDist": "CustomDist"}

DISTRIBUTIONS = {
    "AR": Case(
        lambda t: {
            "rho": [0.3, 0.2],
            "sigma": pt.exp(t),
            "init_dist": pm.Normal.dist(0, 1, shape=2),
            "steps": 2,
        }
    ),
    "AsymmetricLaplace": Case(lambda t: {"kappa": pt.exp(t), "mu": 0.5, "b": 1.5}),
    "Bernoulli": Case(lambda t: {"p": pt.sigmoid(t)}),
    "Beta": Case(lambda t: {"alpha": 2 * pt.exp(t), "beta": 1.5}),
    "BetaBinomial": Case(lambda t: {"alpha": pt.exp(t), "beta": 1.5, "n": 4}),
    "Binomial": Case(lambda t: {"n": 4, "p": pt.sigmoid(t)}),
    "CAR": Case(
        lambda t: {"mu": np.zeros(3), "W": CHAIN, "alpha": 0.5, "tau": pt.exp(t)},
        exact_draws=draw_car,
    ),
    "Categorical": Case(lambda t: {"logit_p": pt.stack([0.0, t, 0.5])}),
    "Cauchy": Case(lambda t: {"alpha": t, "beta": 1.0}),
    "Censored": Case(
        lambda t: {"dist": pm.Normal.dist(t, 1), "lower": -0.5, "upper": 1.5}, prior=ATOM
    ),
    "ChiSquared": Case(lambda t: {"nu": 3 * pt.exp(t)}),
    "CustomDist": Case(lambda t: {"_": (t,), "logp": _logp, "random": _random}),
    "DiracDelta": Case(lambda t: {"c": 2}, data=np.array([2, 2])),
    "Dirichlet": Case(lambda t: {"a": pt.stack([1.0, pt.exp(t), 2.0])}),
    "DirichletMultinomial": Case(lambda t: {"n": 4, "a": pt.stack([1.0, pt.exp(t), 2.0])}),
    "DiscreteUniform": Case(lambda t: {"lower": 0, "upper": 3}),
    "DiscreteWeibull": Case(lambda t: {"q": pt.sigmoid(t), "beta": 1.2}),
    "EulerMaruyama": Case(
        lambda t: {
            "dt": 0.3,
            "sde_fn": lambda x, a: (-a * x, 0.7),
            "sde_pars": (pt.exp(t),),
            "init_dist": pm.Normal.dist(0, 1),
            "steps": 2,
        }
    ),
    "ExGaussian": Case(lambda t: {"mu": t, "sigma": 0.8, "nu": 1.5}),
    "Exponential": Case(lambda t: {"lam": pt.exp(t)}),
    "Flat": Case(lambda t: {}, IMPROPER, IMPROPER_DATA, data=np.ones(3)),
    "GARCH11": Case(
        lambda t: {
            "omega": 0.4,
            "alpha_1": 0.3,
            "beta_1": 0.2,
            "initial_vol": pt.exp(t),
            "shape": 3,
        }
    ),
    "Gamma": Case(lambda t: {"alpha": 2 * pt.exp(t), "beta": 1.5}),
    "GaussianRandomWalk": Case(
        lambda t: {"mu": t, "sigma": 0.8, "init_dist": pm.Normal.dist(0, 1), "steps": 2}
    ),
    "Geometric": Case(lambda t: {"p": pt.sigmoid(t)}),
    "Gumbel": Case(lambda t: {"mu": t, "beta": 0.8}),
    "HalfCauchy": Case(lambda t: {"beta": pt.exp(t)}),
    "HalfFlat": Case(lambda t: {}, IMPROPER, IMPROPER_DATA, data=np.ones(3)),
    "HalfNormal": Case(lambda t: {"sigma": pt.exp(t)}),
    "HalfStudentT": Case(lambda t: {"nu": 4, "sigma": pt.exp(t)}),
    "HurdleGamma": Case(lambda t: {"psi": pt.sigmoid(t), "alpha": 2.0, "beta": 1.5}, prior=ATOM),
    "HurdleLogNormal": Case(lambda t: {"psi": pt.sigmoid(t), "mu": 0.2, "sigma": 0.8}, prior=ATOM),
    "HurdleNegativeBinomial": Case(lambda t: {"psi": pt.sigmoid(t), "mu": 2.0, "alpha": 1.5}),
    "HurdlePoisson": Case(lambda t: {"psi": pt.sigmoid(t), "mu": 2.0}),
    "HyperGeometric": Case(lambda t: {"N": 10, "k": 4, "n": 5}),
    "ICAR": Case(lambda t: {"W": CHAIN.astype(int)}, IMPROPER, IMPROPER_DATA, data=np.zeros(3)),
    "Interpolated": Case(lambda t: {"x_points": POINTS, "pdf_points": np.exp(-0.5 * POINTS**2)}),
    "InverseGamma": Case(lambda t: {"alpha": 3 * pt.exp(t), "beta": 2.0}),
    "KroneckerNormal": Case(
        lambda t: {
            "mu": pt.zeros(4) + t,
            "covs": [np.array([[1.0, 0.5], [0.5, 1.0]]), np.diag([1.0, 0.5])],
        }
    ),
    "Kumaraswamy": Case(lambda t: {"a": 2 * pt.exp(t), "b": 1.5}),
    "LKJCholeskyCov": Case(
        lambda t: {"n": 2, "eta": 2.0, "sd_dist": pm.HalfNormal.dist(1.0), "compute_corr": False}
    ),
    "LKJCorr": Case(lambda t: {"n": 3, "eta": 2.0}),
    "Laplace": Case(lambda t: {"mu": t, "b": 0.8}),
    "LogNormal": Case(lambda t: {"mu": t, "sigma": 0.8}),
    "Logistic": Case(lambda t: {"mu": t, "s": 0.8}),
    "LogitNormal": Case(lambda t: {"mu": t, "sigma": 0.8}),
    "MatrixNormal": Case(
        lambda t: {"mu": pt.zeros((2, 2)) + t, "rowcov": np.eye(2), "colcov": np.diag([1.0, 0.5])}
    ),
    "Mixture": Case(
        lambda t: {
            "w": [0.4, 0.6],
            "comp_dists": [pm.Normal.dist(t, 0.5), pm.StudentT.dist(nu=5, mu=1.0, sigma=1.0)],
        }
    ),
    "Moyal": Case(lambda t: {"mu": t, "sigma": 0.8}),
    "Multinomial": Case(lambda t: {"n": 4, "p": pt.special.softmax(pt.stack([0.0, t, 0.5]))}),
    "MvGaussianRandomWalk": Case(
        lambda t: {
            "mu": pt.zeros(2) + t,
            "cov": np.eye(2),
            "init_dist": pm.MvNormal.dist(np.zeros(2), np.eye(2)),
            "steps": 1,
        }
    ),
    "MvNormal": Case(lambda t: {"mu": pt.zeros(2) + t, "cov": np.array([[1.0, 0.5], [0.5, 1.0]])}),
    "MvStudentT": Case(
        lambda t: {"nu": 5, "mu": pt.zeros(2) + t, "scale": np.array([[1.0, 0.5], [0.5, 1.0]])}
    ),
    "MvStudentTRandomWalk": Case(
        lambda t: {
            "nu": 5,
            "mu": pt.zeros(2) + t,
            "scale": np.eye(2),
            "init_dist": pm.MvNormal.dist(np.zeros(2), np.eye(2)),
            "steps": 1,
        }
    ),
    "NegativeBinomial": Case(lambda t: {"mu": 2 * pt.exp(t), "alpha": 1.5}),
    "Normal": Case(lambda t: {"mu": t, "sigma": 0.8}),
    "NormalMixture": Case(lambda t: {"w": [0.4, 0.6], "mu": pt.stack([t, 1.5]), "sigma": 0.7}),
    "OrderedLogistic": Case(lambda t: {"eta": t, "cutpoints": [-0.5, 0.8], "compute_p": False}),
    "OrderedMultinomial": Case(
        lambda t: {"eta": t, "cutpoints": [-0.5, 0.8], "n": 4, "compute_p": False}
    ),
    "OrderedProbit": Case(lambda t: {"eta": t, "cutpoints": [-0.5, 0.8], "compute_p": False}),
    "Pareto": Case(lambda t: {"alpha": 3 * pt.exp(t), "m": 1.0}),
    "Poisson": Case(lambda t: {"mu": 2 * pt.exp(t)}),
    # drawn by a package of its own, polyagamma, which is no dependency
    "PolyaGamma": Case(lambda t: {"h": 1.0, "z": t}, prior=NO_DRAWS, data=np.array([0.2, 0.3])),
    "RandomWalk": Case(
        lambda t: {
            "innovation_dist": pm.StudentT.dist(nu=5, mu=t, sigma=0.8),
            "init_dist": pm.Normal.dist(0, 1),
            "steps": 2,
        }
    ),
    "Rice": Case(lambda t: {"nu": pt.exp(t), "sigma": 0.8}),
    "Simulator": Case(
        lambda t: {"fn": _simulate, "_": (t,)},
        prior="must have a density, got x ~ pm.Simulator",
        likelihood="must have a density, got y ~ pm.Simulator",
        data=np.ones(3),
    ),
    "SkewNormal": Case(lambda t: {"mu": t, "sigma": 0.8, "alpha": 2.0}),
    "SkewStudentT": Case(lambda t: {"a": 3.0, "b": 2.5, "mu": t, "sigma": 0.8}),
    "StickBreakingWeights": Case(lambda t: {"alpha": pt.exp(t), "K": 2}),
    "StudentT": Case(lambda t: {"nu": 5, "mu": t, "sigma": 0.8}),
    "Triangular": Case(lambda t: {"lower": -1.0, "c": 0.3, "upper": 2.0}),
    "Truncated": Case(
        lambda t: {"dist": pm.Gamma.dist(2 * pt.exp(t), 1.0), "lower": 0.5, "upper": 4.0}
    ),
    "TruncatedNormal": Case(lambda t: {"mu": t, "sigma": 1.0, "lower": -0.5, "upper": 2.0}),
    "Uniform": Case(lambda t: {"lower": -1.0, "upper": 2.0}),
    "VonMises": Case(lambda t: {"mu": t, "kappa": 1.5}),
    "Wald": Case(lambda t: {"mu": pt.exp(t), "lam": 2.0}),
    "Weibull": Case(lambda t: {"alpha": 1.5, "beta": pt.exp(t)}),
    "Wishart": Case(lambda t: {"nu": 4, "V": np.eye(2)}),
    "WishartBartlett": Case(
        lambda t: {"S": np.eye(2), "nu": 4},
        exact_draws=lambda n, t: stats.wishart(4, np.eye(2)).rvs(n, random_state=4),
    ),
    "ZeroInflatedBinomial": Case(lambda t: {"psi": pt.sigmoid(t), "n": 4, "p": 0.4}),
    "ZeroInflatedNegativeBinomial": Case(lambda t: {"psi": pt.sigmoid(t), "mu": 2.0, "alpha": 1.5}),
    "ZeroInflatedPoisson": Case(lambda t: {"psi": pt.sigmoid(t), "mu": 2.0}),
    "ZeroSumNormal": Case(lambda t: {"sigma": pt.exp(t), "shape": 3}),
}

# What is drawn one by one instead of together: draws of loops, or by a user's function.
ONE_BY_ONE = {
    "AR", "CustomDist", "EulerMaruyama", "GARCH11", "HurdleNegativeBinomial", "HurdlePoisson",
    "LKJCorr", "Truncated",
}  # fmt: skip


def build(name, variable, t, **kwargs):
    """Return a variable of a distribution, inside of a model."""
    arguments = DISTRIBUTIONS[name].make(t)
    positional = arguments.pop("_", ())
    function = [arguments.pop("fn")] if "fn" in arguments else []
    return getattr(pm, name)(variable, *function, *positional, **arguments, **kwargs)


def prior_model(name, t=0.3):
    """Return a model with a free variable ``x``."""
    with pm.Model() as model:
        build(name, "x", t)
    return model


def unnamed(name, t):
    """Return a draw of a distribution."""
    arguments = DISTRIBUTIONS[name].make(t)
    return getattr(pm, name).dist(*arguments.pop("_", ()), **arguments)


def data_of(name):
    """Return three observations of a scalar, or one of a vector, made with ``t = 0.3``."""
    case = DISTRIBUTIONS[name]
    if case.data is not None:
        return case.data
    with pm.Model() as model:
        x = build(name, "x", 0.3)
    x = model.free_RVs[-1] if not model.free_RVs[-1].name.startswith("x_") else x
    n = 3 if x.type.ndim == 0 else None
    if case.exact_draws is not None:
        return case.exact_draws(1, 0.3)[0]
    return pm.draw(x, draws=n or 1, random_seed=5, mode="FAST_COMPILE")


def likelihood_model(name, data):
    """Return a model of a standard normal ``t``, and data."""
    with pm.Model() as model:
        t = pm.Normal("t", 0, 0.5)
        build(name, "y", t, observed=data)
    return model
