"""State-space models as users write them: one variable of the model, and clear errors."""

import logging

import cloudpickle
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.estimated.state_space.api import StateSpace
from pm_evidence.targets.estimated.variable import estimators_of

# PyTensor compiles pieces in C even in FAST_COMPILE, and installed by pip it finds no BLAS to link.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

Y = np.array([0.3, -1.2, 0.8, 0.1])


def volatility(observed=Y, **options):
    with pm.Model(coords={"day": range(len(observed))}) as model:
        mu = pm.Normal("mu", 0, 0.5)
        phi = pm.Uniform("phi", 0, 1)
        sigma = pm.HalfNormal("sigma", 1)
        StateSpace(
            "returns",
            init=lambda: pm.Normal.dist(mu, sigma / pt.sqrt(1 - phi**2)),
            transition=lambda h, t: pm.Normal.dist(mu + phi * (h - mu), sigma),
            emission=lambda h, t: pm.Normal.dist(0, pt.exp(h / 2)),
            observed=observed,
            **options,
        )
    return model


# --- one variable of the model ---


def test_it_is_one_observed_variable():
    """Whatever lists a model's variables shows it once, with its parents."""
    model = volatility(dims="day")
    assert [rv.name for rv in model.observed_RVs] == ["returns"]
    assert model.named_vars_to_dims["returns"] == ("day",)
    assert "returns ~ StateSpace(mu, phi, sigma)" in model.str_repr()
    edges = pm.model_graph.ModelGraph(model).edges()
    assert {parent for child, parent in edges if child == "returns"} == {"mu", "phi", "sigma"}


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


@pytest.mark.parametrize("missing", [False, True])
def test_data_are_kept_as_they_are(missing):
    """Missing values are not imputed: they would become free variables."""
    y = Y.copy()
    y[1] = np.nan if missing else y[1]
    model = volatility(y)
    assert len(model.free_RVs) == 3
    value = model.rvs_to_values[model.observed_RVs[0]]
    np.testing.assert_array_equal(value.data, y)
    (one,) = estimators_of(model)
    np.testing.assert_array_equal(one.observed, y)


@pytest.mark.parametrize(
    "observed",
    [list(Y), pd.Series(Y), np.ma.masked_array(Y, [False] * 4)],
    ids=["list", "series", "masked"],
)
def test_kinds_of_data(observed):
    """What PyMC takes as data is taken."""
    (one,) = estimators_of(volatility(observed))
    np.testing.assert_array_equal(one.observed, Y)


def test_masked_entries_are_missing():
    """A mask marks what NaN marks."""
    (one,) = estimators_of(volatility(np.ma.masked_array(Y, [0, 1, 0, 0])))
    assert np.isnan(one.observed[1]) and one.observed[2] == Y[2]


def test_data_can_be_replaced():
    """pm.Data as observations: other values, and another length."""
    with pm.Model() as model:
        y = pm.Data("y_data", Y)
        m = pm.Normal("m")
        StateSpace(
            "y",
            init=lambda: pm.Normal.dist(m, 1),
            transition=lambda h, t: pm.Normal.dist(h, 1),
            emission=lambda h, t: pm.Normal.dist(h, 1),
            observed=y,
            n_particles=50,
        )
        (one,) = estimators_of(model)
        pm.set_data({"y_data": np.zeros(6)})
        (other,) = estimators_of(model)
        drawn = pm.draw(model["y"], random_seed=1)
    assert len(one.observed) == 4 and len(other.observed) == 6
    assert drawn.shape == (6,)


def test_model_survives_pickling():
    """Workers get the model as bytes."""
    model = volatility(n_particles=20)
    again = cloudpickle.loads(cloudpickle.dumps(model))
    x, seeds = np.zeros((1, 3)), np.ones((1, 1), np.uint64)
    (one,), (other,) = estimators_of(model), estimators_of(again)
    assert one.estimate(x, seeds) == other.estimate(x, seeds)


# --- draws ---


def test_prior_predictive_draws_have_the_models_moments():
    """Simulated data: variance by time, and correlation over time."""
    with pm.Model() as model:
        m = pm.Normal("m", 2.0, 0.1)
        StateSpace(
            "y",
            init=lambda: pm.Normal.dist(m, 1.0),
            transition=lambda h, t: pm.Normal.dist(m + 0.5 * (h - m) + t, 0.5),
            emission=lambda h, t: pm.Normal.dist(h, 0.3),
            observed=[0.0, 0.0, 0.0],
        )
    drawn = pm.sample_prior_predictive(3000, model=model, random_seed=1)
    y = drawn.prior_predictive["y"].values[0]
    assert y.shape == (3000, 3)
    states = np.array([[1.0, 0.5, 0.25], [0.5, 0.5, 0.25], [0.25, 0.25, 0.375]])
    covariance = states + 0.09 * np.eye(3) + 0.01
    z = (y.mean(axis=0) - [2.0, 3.0, 4.5]) / np.sqrt(np.diag(covariance) / 3000)
    assert np.abs(z).max() < 4
    np.testing.assert_allclose(np.cov(y.T), covariance, atol=0.12)
    again = pm.sample_prior_predictive(3000, model=model, random_seed=1)
    np.testing.assert_array_equal(y, again.prior_predictive["y"].values[0])


def test_draws_of_vectors_and_counts():
    """Observations of several components, and whole numbers."""
    with pm.Model() as model:
        rate = pm.HalfNormal("rate", 3)
        StateSpace(
            "y",
            init=lambda: pm.Normal.dist([0.0, 1.0], 0.1),
            transition=lambda h, t: pm.Normal.dist(h, 0.1),
            emission=lambda h, t: pm.Poisson.dist(rate * pt.exp(pt.stack([h[0], h[1], h[1]]))),
            observed=np.zeros((5, 3), int),
        )
    drawn = pm.sample_prior_predictive(20, model=model, random_seed=1)
    y = drawn.prior_predictive["y"]
    assert y.shape == (1, 20, 5, 3)
    assert y.dtype.kind == "i"
    posterior = drawn.prior
    with model:
        later = pm.sample_posterior_predictive(posterior, random_seed=1, progressbar=False)
    assert later.posterior_predictive["y"].shape == (1, 20, 5, 3)


# --- errors ---


def build(**changes):
    arguments = {
        "init": lambda: pm.Normal.dist(0, 1),
        "transition": lambda h, t: pm.Normal.dist(h, 1),
        "emission": lambda h, t: pm.Normal.dist(h, 1),
        "observed": Y,
    }
    with pm.Model() as model:
        pm.Normal("m")
        StateSpace("y", **{**arguments, **changes})
    return model


def gaussian(h, t, y):
    return pm.Normal.dist(h, 1)


REFUSED = {
    "no function": ({"init": pm.Normal.dist(0, 1)}, TypeError, "init must be a function"),
    "no distribution": (
        {"transition": lambda h, t: h + 1},
        TypeError,
        "transition must return a distribution",
    ),
    "named variable": (
        {"emission": lambda h, t: pm.Normal("z", h, 1)},
        Exception,
        "emission must return a distribution without a name",
    ),
    "matrix state": (
        {"init": lambda: pm.Normal.dist(0, 1, shape=(2, 2))},
        ModelError,
        "init must return a scalar or a vector",
    ),
    "other shape": (
        {"transition": lambda h, t: pm.Normal.dist(h, 1, shape=2)},
        ModelError,
        r"transition must return a distribution of the state, of shape \(\)",
    ),
    "shape that varies": (
        {"emission": lambda h, t: pm.Normal.dist(pt.zeros(t), 1)},
        ModelError,
        "emission must return a distribution of one shape",
    ),
    "other kind": (
        {"init": lambda: pm.Normal.dist(0, 1), "transition": lambda h, t: pm.Poisson.dist(1)},
        ModelError,
        "both be continuous or both be discrete",
    ),
    "other rows": (
        {"emission": lambda h, t: pm.Normal.dist(h, 1, shape=3)},
        ModelError,
        "emission must return the distribution of one row of observed",
    ),
    "rows for scalars": (
        {"observed": np.zeros((4, 2))},
        ModelError,
        r"of shape \(2,\), got shape \(\); pass shape=2",
    ),
    "joint and missing in part": (
        {
            "emission": lambda h, t: pm.MvNormal.dist(h * np.ones(2), np.eye(2)),
            "observed": [[0.0, np.nan], [0.0, 0.0]],
        },
        ModelError,
        "missing in part",
    ),
    "infinite": ({"observed": [0.0, np.inf]}, ValueError, "observed must be finite.*time 1"),
    "all missing": ({"observed": [np.nan]}, ValueError, "not missing, got only NaN"),
    "empty": ({"observed": []}, ValueError, "at least one entry"),
    "three dimensions": ({"observed": np.zeros((2, 2, 2))}, ValueError, "observed must have shape"),
    "words": ({"observed": ["a", "b"]}, ValueError, "observed must be numeric"),
    "few particles": ({"n_particles": 1}, ValueError, "n_particles must be .* at least 2"),
    "filter": ({"filter": "kalman"}, ValueError, "filter must be one of"),
    "resampling": ({"resampling": "none"}, ValueError, "resampling must be one of"),
    "ess": ({"ess": 2.0}, ValueError, "ess must lie between 0 and 1"),
    "guided without": ({"filter": "guided"}, ValueError, "needs a proposal"),
    "proposal without": ({"proposal": gaussian}, ValueError, 'proposal is for filter="guided"'),
    "look-ahead": (
        {"filter": "auxiliary", "look_ahead": lambda h, t, y: 1.0},
        TypeError,
        "look_ahead must return a scalar",
    ),
    "parameter that is drawn": (
        {"emission": lambda h, t: pm.Normal.dist(pm.Normal.dist(h, 1), 1)},
        ModelError,
        "emission .* is itself drawn",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    """Bad input is named, with the rule and the remedy, when the model is written."""
    changes, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        build(**changes)


def test_covariates_that_are_too_short():
    """Compiled code reads past the end without a word, so that lengths are compared before."""
    x = np.zeros(3)
    model = build(transition=lambda h, t: pm.Normal.dist(h + pt.as_tensor(x)[t], 1))
    with pytest.raises(ModelError, match=r"transition uses .*\[3\] at time 3.*length 3"):
        estimators_of(model)


def test_draws_in_python_are_told(caplog):
    """A filter that is slow for a reason names it."""
    model = build(transition=lambda h, t: pm.TruncatedNormal.dist(h, 1, lower=0))
    with caplog.at_level(logging.WARNING, logger="pymc.pm_evidence"):
        estimators_of(model)
    assert "truncated_normal" in caplog.text and "correct but slow" in caplog.text
