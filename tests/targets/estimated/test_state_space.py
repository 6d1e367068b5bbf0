"""State-space models as users write them: one variable of the model, its data, and its draws."""

import cloudpickle
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.estimated.state_space import StateSpace
from pm_evidence.targets.estimated.variable import estimators_of

# PyTensor compiles pieces in C even in FAST_COMPILE, and installed by pip it finds no BLAS to link.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

Y = np.array([0.3, -1.2, 0.8, 0.1])


def volatility():
    with pm.Model(coords={"day": range(len(Y))}) as model:
        mu = pm.Normal("mu", 0, 0.5)
        phi = pm.Uniform("phi", 0, 1)
        sigma = pm.HalfNormal("sigma", 1)
        StateSpace(
            "returns",
            init=lambda: pm.Normal.dist(mu, sigma / pt.sqrt(1 - phi**2)),
            transition=lambda h, t: pm.Normal.dist(mu + phi * (h - mu), sigma),
            emission=lambda h, t: pm.Normal.dist(0, pt.exp(h / 2)),
            observed=Y,
            dims="day",
        )
    return model


def level(observed, data=False, **changes):
    """One machine code for all data: where they are ``pm.Data``, they can be replaced."""
    with pm.Model() as model:
        m = pm.Normal("m")
        arguments = {
            "init": lambda: pm.Normal.dist(m, 1),
            "transition": lambda h, t: pm.Normal.dist(h, 1),
            "emission": lambda h, t: pm.Normal.dist(h, 1),
            "observed": pm.Data("data", observed) if data else observed,
            "n_particles": 20,
        }
        StateSpace("y", **{**arguments, **changes})
    return model


# --- one variable of the model ---


def test_parents_are_the_nearest_variables():
    """Deterministics and data are parents; expressions that have no name are looked through."""
    with pm.Model() as model:
        a = pm.Normal("a")
        b = pm.Normal("b")
        level = pm.Deterministic("level", a + b)
        scale = pt.exp(b)
        x = pm.Data("x", np.zeros(4))
        StateSpace(
            "y",
            init=lambda: pm.Normal.dist(level, scale),
            transition=lambda h, t: pm.Normal.dist(h + x[t], 1),
            emission=lambda h, t: pm.Normal.dist(h, 1),
            observed=Y,
        )
    edges = pm.model_graph.ModelGraph(model).edges()
    assert {parent for child, parent in edges if child == "y"} == {"b", "level", "x"}


def test_density_is_refused_by_name():
    """pm.sample must not take an estimate for a density."""
    model = volatility()
    with pytest.raises((NotImplementedError, ModelError), match=r"returns.*sample_evidence"):
        model.compile_logp()


def test_data_are_kept_as_they_are():
    """What PyMC takes as data is taken; missing values would be free variables if imputed."""
    for observed in (list(Y), pd.Series(Y), np.ma.masked_array(Y, [False] * 4)):
        model = level(observed)
        np.testing.assert_array_equal(model.rvs_to_values[model["y"]].data, Y)
    with_gap = np.array([0.3, np.nan, 0.8, 0.1])
    for observed in (with_gap, np.ma.masked_array(Y, [0, 1, 0, 0])):
        model = level(observed)
        assert [rv.name for rv in model.free_RVs] == ["m"]
        np.testing.assert_array_equal(model.rvs_to_values[model["y"]].data, with_gap)
    (one,) = estimators_of(model)
    np.testing.assert_array_equal(one.observed, with_gap)
    counts = level(np.ma.masked_array([1, 2, 3, 4], [0, 1, 0, 0]))
    found = counts.rvs_to_values[counts["y"]].data
    np.testing.assert_array_equal(found, [1.0, np.nan, 3.0, 4.0])


def test_data_can_be_replaced():
    """pm.Data as observations: other values, and another length."""
    model = level(Y, data=True)
    (one,) = estimators_of(model)
    with model:
        pm.set_data({"data": np.zeros(6)})
        (other,) = estimators_of(model)
    assert len(one.observed) == 4 and len(other.observed) == 6


@pytest.mark.slow
def test_model_survives_pickling():
    """Workers get the model as bytes, and the same machine code gives the same bits."""
    model = level(Y)
    again = cloudpickle.loads(cloudpickle.dumps(model))
    x, seeds = np.zeros((1, 1)), np.ones((1, 1), np.uint64)
    (one,), (other,) = estimators_of(model), estimators_of(again)
    assert one.estimate(x, seeds) == other.estimate(x, seeds)


def test_covariates_that_are_too_short():
    """Compiled code reads past the end without a word, so that lengths are compared before."""
    x = pt.constant(np.zeros(3), name="covariate")
    model = level(Y, transition=lambda h, t: pm.Normal.dist(h + x[t], 1))
    with pytest.raises(ModelError, match=r"transition must.* at time 3 .*'covariate'.* got 3 "):
        estimators_of(model)


# --- draws ---


@pytest.mark.slow
def test_predictive_draws_have_the_models_moments():
    """Simulated counts of several components: means, and covariances over components and time."""
    sd, n = np.array([10.0, 5.0]), 3000
    with pm.Model() as model:
        m = pm.Normal("m", 2.0, 1.0)
        StateSpace(
            "y",
            init=lambda: pm.Normal.dist(m, sd),
            transition=lambda h, t: pm.Normal.dist(m + 0.5 * (h - m) + t, 5.0),
            emission=lambda h, t: pm.Poisson.dist(200.0 + pt.stack([h[0], h[1], h[1]])),
            observed=pm.Data("data", np.zeros((4, 3), int)),
        )
    drawn = pm.sample_prior_predictive(n, model=model, random_seed=1)
    y = drawn.prior_predictive["y"].values[0]
    assert y.shape == (n, 4, 3) and y.dtype.kind == "i"
    means = 200.0 + np.array([2.0, 3.0, 4.5, 6.25])
    states = np.zeros((2, 4, 4))  # the covariance over time of each state given m
    states[:, 0, 0] = sd**2
    for t in range(1, 4):
        states[:, t, :t] = states[:, :t, t] = 0.5 * states[:, t - 1, :t]
        states[:, t, t] = 0.25 * states[:, t - 1, t - 1] + 25.0
    same = np.array([[[1, 0, 0], [0, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 1, 1], [0, 1, 1]]])
    covariance = np.einsum("ctu,cij->tiuj", states, same).reshape(12, 12) + 1.0
    covariance += np.diag(np.repeat(means, 3))
    y = y.reshape(n, 12)
    variances = np.diag(covariance)
    z = (y.mean(axis=0) - np.repeat(means, 3)) / np.sqrt(variances / n)
    assert np.abs(z).max() < 4.5
    error = np.sqrt((np.outer(variances, variances) + covariance**2) / n)
    assert (np.abs(np.cov(y.T) - covariance) / error).max() < 4.5
    again = pm.sample_prior_predictive(n, model=model, random_seed=1)
    np.testing.assert_array_equal(again.prior_predictive["y"].values[0].reshape(n, 12), y)
    few = drawn.prior.isel(draw=slice(20))
    later = pm.sample_posterior_predictive(few, model=model, random_seed=1, progressbar=False)
    assert later.posterior_predictive["y"].shape == (1, 20, 4, 3)
    pm.set_data({"data": np.zeros((6, 3), int)}, model=model)
    assert pm.draw(model["y"], random_seed=1).shape == (6, 3)
