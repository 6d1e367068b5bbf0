"""Supports of discrete variables: Gibbs moves sum over them, so they must be complete."""

import numpy as np
import pymc as pm
import pytest

from pm_evidence.targets.model.checks import discrete_support

INF = np.inf


def support_of(build, name="k"):
    with pm.Model() as model:
        build()
    rv = model[name]
    return [bounds.tolist() for bounds in discrete_support(rv, tuple(rv.shape.eval()))]


def observed_trials():
    n = pm.Poisson("n", 3.0, observed=4)
    pm.Binomial("k", n=n, p=0.5)


def imputed(distribution, name, *args, **kwargs):
    seen = np.ma.masked_array([1, 0, 1], mask=[False, True, True])
    with pytest.warns(pm.exceptions.ImputationWarning):
        distribution(name, *args, **kwargs, observed=seen)


KNOWN = {
    "bernoulli": (lambda: pm.Bernoulli("k", 0.3), [0], [1]),
    "bernoulli_vector": (lambda: pm.Bernoulli("k", pm.Beta("p", 1, 1), shape=3), [0] * 3, [1] * 3),
    "bernoulli_logit": (lambda: pm.Bernoulli("k", logit_p=pm.Normal("a")), [0], [1]),
    "categorical": (lambda: pm.Categorical("k", p=[0.2, 0.3, 0.5]), [0], [2]),
    "categorical_logit": (
        lambda: pm.Categorical("k", logit_p=np.zeros(4), shape=2),
        [0, 0],
        [3, 3],
    ),
    "categorical_random_p": (
        lambda: pm.Categorical("k", p=pm.Dirichlet("p", np.ones(4))),
        [0],
        [3],
    ),
    "categorical_rows": (lambda: pm.Categorical("k", p=np.full((2, 3), 1 / 3)), [0, 0], [2, 2]),
    "ordered_logistic": (
        lambda: pm.OrderedLogistic("k", eta=0.3, cutpoints=[-1.0, 1.0], compute_p=False),
        [0],
        [2],
    ),
    "binomial": (lambda: pm.Binomial("k", n=5, p=0.3), [0], [5]),
    "binomial_float_n": (lambda: pm.Binomial("k", n=5.0, p=0.3), [0], [5]),
    "binomial_vector": (lambda: pm.Binomial("k", n=[1, 5, 7], p=0.3), [0] * 3, [1, 5, 7]),
    "binomial_broadcast": (
        lambda: pm.Binomial("k", n=np.array([[1], [5]]), p=np.full((2, 2), 0.3)),
        [0] * 4,
        [1, 1, 5, 5],
    ),
    "binomial_data": (lambda: pm.Binomial("k", n=pm.Data("n", [2, 9]), p=0.3), [0, 0], [2, 9]),
    "beta_binomial": (lambda: pm.BetaBinomial("k", alpha=2.0, beta=1.0, n=4), [0], [4]),
    "discrete_uniform": (lambda: pm.DiscreteUniform("k", -2, 3), [-2], [3]),
    "discrete_uniform_vector": (lambda: pm.DiscreteUniform("k", [0, -3], 5), [0, -3], [5, 5]),
    "imputed_bernoulli": (lambda: imputed(pm.Bernoulli, "y", 0.3), [0, 0], [1, 1]),
    "imputed_binomial": (lambda: imputed(pm.Binomial, "y", [3, 4, 5], 0.3), [0, 0], [4, 5]),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_supports(name):
    """A value that is left out has no weight in the sum: the evidence would be too small."""
    build, lower, upper = KNOWN[name]
    variable = "y_unobserved" if name.startswith("imputed") else "k"
    assert support_of(build, variable) == [lower, upper]


UNKNOWN = {
    "poisson": lambda: pm.Poisson("k", 3.0),
    "geometric": lambda: pm.Geometric("k", 0.3),
    "binomial_random_n": lambda: pm.Binomial("k", n=pm.Poisson("n", 3.0), p=0.5),
    "binomial_deterministic_n": lambda: pm.Binomial(
        "k", n=pm.Deterministic("d", pm.Poisson("n", 3.0) + 1), p=0.5
    ),
    "binomial_truncated_n": lambda: pm.Binomial(
        "k", n=pm.Truncated("n", pm.Poisson.dist(3.0), lower=1), p=0.5
    ),
    "binomial_zero_inflated_n": lambda: pm.Binomial(
        "k", n=pm.ZeroInflatedPoisson("n", 0.5, 3.0), p=0.5
    ),
    "binomial_rounded_n": lambda: pm.Binomial(
        "k", n=5 + pm.math.floor(pm.Exponential("e", 1.0)).astype(int), p=0.5
    ),
    "uniform_random_end": lambda: pm.DiscreteUniform("k", 0, pm.Poisson("n", 3.0)),
    "mixture": lambda: pm.ZeroInflatedBinomial("k", 0.5, 4, 0.5),
    "observed_n": observed_trials,
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_supports_that_depend_on_other_variables(name):
    """Bounds taken from one random draw of the parent would cut the support, differently each time.

    An observed parent counts as random here, which costs time and no correctness.
    """
    assert support_of(UNKNOWN[name]) == [[-INF], [INF]]
