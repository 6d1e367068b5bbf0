"""The prior of discrete variables alone, and prior draws as points."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pm_evidence as pe
from pm_evidence.targets.model.log_density import discrete_prior_graph
from tests.targets.values import in_python


def test_it_is_the_log_probability():
    """References keep this prior: a wrong one would bias the evidence."""
    with pm.Model() as model:
        n = pm.Poisson("n", 3.0)
        x = pm.Normal("x", n, 1.0)
        successes = pm.Binomial("successes", n, 0.3)
        pm.Normal("y", x + successes, 1.0, observed=2.0)
    target = in_python(model)
    x = target.prior_points(20, np.random.SeedSequence(1))
    found = target.discrete_prior.values(x)
    n, successes = x[:, 0], x[:, 2]
    exact = stats.poisson.logpmf(n, 3.0) + stats.binom.logpmf(successes, n, 0.3)
    np.testing.assert_allclose(found[:, 0], exact, rtol=1e-12)
    assert not found[:, 1].any()


def test_it_must_not_depend_on_continuous_variables():
    """The product with a density of these would not be normalised as it is drawn."""
    with pm.Model() as model:
        p = pm.Beta("p", 1.0, 1.0)
        z = pm.Bernoulli("z", p)
        pm.Normal("y", z, observed=1.0)
    target = in_python(model)
    with pytest.raises(pe.ModelError, match="'z' depends on 'p'"):
        discrete_prior_graph(model, target.layout)
