"""A PyMC model whose data are added point by point."""

import pickle

import numpy as np
import pymc as pm
import pytest

import pm_evidence.targets.model.cache  # noqa: F401  # says how targets are pickled
from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.model.data_points import data_points_target, terms_of
from pm_evidence.targets.model.target import PyMCTarget

X = np.random.default_rng(0).normal(size=(10, 2))
Y = X @ [0.5, -1.0] + 0.3


@pytest.fixture(scope="module")
def model():
    """Two observed variables and two potentials: 14 data points."""
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2)
        pm.Normal("y", X @ b, 1.0, observed=Y)
        pm.Bernoulli("c", logit_p=b[0], observed=[0, 1, 1])
        pm.Potential("first", -(b[0] ** 2))
        pm.Potential("second", -0.1 * b[1] ** 2)
    return model


@pytest.fixture(scope="module")
def target(model):
    return PyMCTarget(model)


def pointwise(model, x):
    """Log likelihoods of all data points, potentials first, shape (n, 14)."""
    graphs = [model.potentiallogp, *model.logp(vars=model.observed_RVs, sum=False)]
    function = model.compile_fn(graphs, inputs=model.value_vars)
    rows = [[np.atleast_1d(part) for part in function({"b": b})] for b in x]
    return np.array([np.concatenate(row) for row in rows])


@pytest.mark.parametrize("seed", [0, 1])
def test_parts_of_the_data(model, target, seed):
    """A data point would be weighted with the weight of another, or not at all."""
    order = np.random.default_rng(seed).permutation(14)
    points = data_points_target(target, order)
    x = np.random.default_rng(2).normal(size=(4, 2))
    each = pointwise(model, x)[:, order]
    place = np.arange(14)
    for first, last in ((0, 0), (0, 14), (0, 3.25), (5.5, 9), (6.2, 6.9), (13, 14)):
        weight = np.clip(last - place, 0.0, 1.0) - np.clip(first - place, 0.0, 1.0)
        part = points.having(first, last)
        assert np.allclose(part.evaluate(x).log_density[:, 1], each @ weight, rtol=1e-12)
        log_density, gradient = part.differentiable.evaluate(x)
        assert np.allclose(log_density[:, 1], each @ weight, rtol=1e-12)
        step = 1e-6 * np.eye(2)[0]
        slope = (part.evaluate(x + step).log_density - part.evaluate(x - step).log_density) / 2e-6
        assert np.allclose(gradient[:, :, 0], slope, atol=1e-6)
    assert np.allclose(points.evaluate(x).log_density, target.evaluate(x).log_density)


def test_it_is_compiled_once(target):
    """Every part of the data, and every worker, would compile the model again."""
    order = np.arange(14)
    points = data_points_target(target, order)
    assert data_points_target(target, order) is points
    assert points.having(0, 3).differentiable.address == points.differentiable.address
    again = pickle.loads(pickle.dumps(points))
    x = np.ones((2, 2))
    part = again.having(1.0, 4.5)
    assert np.array_equal(
        part.evaluate(x).log_density, points.having(1.0, 4.5).evaluate(x).log_density
    )


def test_joint_distributions_are_refused():
    """One draw of a vector would be taken apart as if its entries were independent."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.MvNormal("series", mu=np.full(3, 1.0) * mu, cov=np.eye(3), observed=np.zeros(3))
    with pytest.raises(ModelError, match=r"but series is one draw of shape \(3,\) from a joint"):
        terms_of(model)


def test_a_model_needs_data():
    """There would be no data point to add."""
    with pm.Model() as model:
        pm.Normal("mu", 0, 1)
    with pytest.raises(ModelError, match="path='data_points' needs an observed variable"):
        terms_of(model)
