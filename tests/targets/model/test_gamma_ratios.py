"""Ratios of gamma functions in log densities."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from scipy.special import gammaln

from pm_evidence.targets.estimated.random_effects import RandomEffects
from pm_evidence.targets.estimated.state_space import StateSpace
from pm_evidence.targets.estimated.variable import estimators_of
from pm_evidence.targets.model.log_scale import (
    LogGammaRatio,
    log_gamma_ratio,
    with_gamma_ratios,
)
from tests.targets.values import in_python

COUNTS = np.array([3, 0, 20, 7])
VALUES = np.array([0.3, -1.2, 4.0])


def beta_binomial():
    k, mean = pm.HalfCauchy("k", 20.0), pm.Beta("mean", 1.0, 1.0)
    pm.BetaBinomial("y", n=20, alpha=mean * k, beta=(1 - mean) * k, observed=COUNTS)


def shares():
    k, p = pm.HalfCauchy("k", 20.0), pm.Dirichlet("p", np.ones(4))
    pm.DirichletMultinomial("y", n=30, a=k * p, observed=[COUNTS, COUNTS[::-1]])


def student():
    k, mean = pm.HalfCauchy("k", 20.0), pm.Normal("mean", 0.0, 1.0)
    pm.StudentT("y", nu=k, mu=mean, sigma=1.0, observed=VALUES)


def counts():
    k, mean = pm.HalfCauchy("k", 20.0), pm.HalfNormal("mean", 5.0)
    pm.NegativeBinomial("y", alpha=k, mu=mean, observed=COUNTS)


def effects_of_groups():
    spread, mean = pm.HalfNormal("spread", 1.0), pm.Normal("mean", 0.0, 1.0)
    RandomEffects(
        "y",
        effects=lambda: pm.Normal.dist(mean, 0.5),
        emission=lambda u, i: pm.StudentT.dist(nu=1.0 / spread, mu=u, sigma=1.0),
        groups=[0, 0, 1],
        observed=VALUES,
    )


def states():
    spread, mean = pm.HalfNormal("spread", 1.0), pm.Normal("mean", 0.0, 1.0)
    StateSpace(
        "y",
        init=lambda: pm.Normal.dist(mean, 0.5),
        transition=lambda h, t: pm.Normal.dist(h, 0.3),
        emission=lambda h, t: pm.BetaBinomial.dist(
            n=20, alpha=pt.sigmoid(h) / spread, beta=pt.sigmoid(-h) / spread
        ),
        observed=np.where(COUNTS > 0, COUNTS, np.nan),
        n_particles=10,
    )


MODELS = {"beta_binomial": (beta_binomial, 3), "shares": (shares, 2), "student": (student, 1)}
MODELS["counts"] = counts, 1


def target_of(build):
    with pm.Model() as model:
        build()
    return model, in_python(model, rewritten=True)


def ratios_in(graphs):
    found = [v for v in ancestors(graphs) if v.owner and isinstance(v.owner.op, LogGammaRatio)]
    return len(found)


def test_the_ratio_is_the_difference():
    a, k = np.meshgrid([0.3, 5.0, 9.99, 10.01, 14.0, 300.0, 1e7], [-4.5, -0.5, 0.0, 0.5, 3.0, 1e3])
    a, k = a[a + k > 0], k[a + k > 0]
    expected = gammaln(a + k) - gammaln(a)
    found = log_gamma_ratio(a, k).eval(mode="FAST_COMPILE")
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-6)
    moderate = a < 1e6
    np.testing.assert_allclose(found[moderate], expected[moderate], rtol=1e-11, atol=1e-11)


def test_large_arguments_keep_their_digits():
    a, k = np.meshgrid([1e12, 1e17, 1e40, 1e300], [-0.5, 0.5, 3.0, 20.0])
    found = log_gamma_ratio(a, k).eval(mode="FAST_COMPILE")
    np.testing.assert_allclose(found, k * np.log(a), rtol=1e-10)


def test_gradients_are_finite():
    x = pt.dvector("x")
    gradient = pytensor.function([x], pt.grad(log_gamma_ratio(x, 3.0).sum(), x))
    found = gradient(np.array([1e-200, 2.0, 1e30]))
    np.testing.assert_allclose(found, [1e200, 13 / 12, 3e-30], rtol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_likelihoods_have_ratios_and_are_the_same(name):
    build, expected = MODELS[name]
    model, target = target_of(build)
    assert ratios_in(target.graphs().log_density) == expected
    x = np.random.default_rng(1).normal(size=(10, target.n_dim))
    logp = model.compile_logp(vars=model.observed_RVs, mode="FAST_COMPILE")
    own = [
        logp({v.name: part[0] for v, part in zip(model.value_vars, parts, strict=True)})
        for parts in ([each[i : i + 1] for each in target.layout.split(x)] for i in range(10))
    ]
    np.testing.assert_allclose(target.evaluate(x).log_density[:, 1], own, rtol=1e-11)


@pytest.mark.parametrize("name", MODELS)
def test_likelihoods_have_their_limits(name):
    """A run would be drawn to a likelihood of exp(94) that is rounding alone."""
    _, target = target_of(MODELS[name][0])
    x = np.zeros((4, target.n_dim))
    x[:, 0] = [25.0, 40.0, 80.0, 200.0]  # log of k
    found = target.evaluate(x).log_density[:, 1]
    np.testing.assert_allclose(found, found[0], rtol=1e-6)


@pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")
@pytest.mark.slow
@pytest.mark.parametrize("build", [effects_of_groups, states])
def test_estimated_likelihoods_have_their_limits(build):
    """A beta-binomial emission of a state was exp(11,000) too large."""
    with pm.Model() as model:
        build()
    (estimator,) = estimators_of(model)
    x = np.array([[-np.log(nu), 0.3] for nu in (1e9, 1e15, 1e18, 1e30, 1e60)])
    found = estimator.estimate(x, np.zeros((len(x), estimator.n_seeds), np.uint64))
    np.testing.assert_allclose(found, found[0], rtol=1e-6)


@pytest.mark.parametrize(
    "graph",
    [
        lambda x: pt.gammaln(x + 1.5) - (2.0 + pt.gammaln(x)),
        lambda x: x.sum() + (pt.gammaln((x + 3.0) / 2.0) - pt.gammaln(0.5 * x)),
        lambda x: -pt.gammaln(x) + x + pt.gammaln(np.array([[1.0], [2.0]]) + x),
        lambda x: pt.gammaln(x) - pt.gammaln(x),
    ],
)
def test_differences_are_found(graph):
    x = pt.dvector("x")
    before = graph(x)
    (after,) = with_gamma_ratios([before])
    assert ratios_in([after]) == 1
    values = pytensor.function([x], [before, after])(np.array([0.4, 12.0]))
    np.testing.assert_allclose(values[0], values[1], rtol=1e-12, atol=1e-15)
