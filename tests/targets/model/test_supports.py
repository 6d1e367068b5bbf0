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
    "categorical": (lambda: pm.Categorical("k", p=[0.2, 0.3, 0.5]), [0], [2]),
    "categorical_random_p": (
        lambda: pm.Categorical("k", p=pm.Dirichlet("p", np.ones(4))),
        [0],
        [3],
    ),
    "ordered_logistic": (
        lambda: pm.OrderedLogistic("k", eta=0.3, cutpoints=[-1.0, 1.0], compute_p=False),
        [0],
        [2],
    ),
    "binomial": (lambda: pm.Binomial("k", n=5, p=0.3), [0], [5]),
    "binomial_vector": (lambda: pm.Binomial("k", n=[1, 5, 7], p=0.3), [0] * 3, [1, 5, 7]),
    "binomial_broadcast": (
        lambda: pm.Binomial("k", n=np.array([[1], [5]]), p=np.full((2, 2), 0.3)),
        [0] * 4,
        [1, 1, 5, 5],
    ),
    "beta_binomial": (lambda: pm.BetaBinomial("k", alpha=2.0, beta=1.0, n=4), [0], [4]),
    "discrete_uniform": (lambda: pm.DiscreteUniform("k", -2, 3), [-2], [3]),
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
    "binomial_random_n": lambda: pm.Binomial("k", n=pm.Poisson("n", 3.0), p=0.5),
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
