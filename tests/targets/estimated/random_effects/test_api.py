"""The user's call: one variable of the model, its data, and mistakes that are told."""

import copy
import logging

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import BlockModelAccessError
from pymc.model_graph import ModelGraph
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from scipy import stats

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.estimated.random_effects.api import RandomEffects
from pm_evidence.targets.estimated.variable import estimated_variables, estimators_of
from tests.targets.estimated.random_effects.models import (
    BINARY,
    COUNTS,
    GROUPS,
    N_OBS,
    POINT,
    X,
    estimator,
    poisson,
    seeds_of,
)

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


def test_the_variable_prints_and_is_drawn_as_any_other():
    model = poisson()
    assert model["counts"] in model.observed_RVs
    assert estimated_variables(model) == [model["counts"]]
    assert "counts ~ RandomEffects(b, s)" in model.str_repr()
    assert ModelGraph(model).make_compute_graph()["counts"] == {"b", "s"}
    prior = pm.sample_prior_predictive(50, model=model, random_seed=1)
    drawn = prior.prior_predictive["counts"].values
    assert drawn.shape == (1, 50, N_OBS)
    assert np.all(drawn >= 0)
    assert np.isnan(prior.observed_data["counts"].values).sum() == 3


def test_dimensions_and_deterministics_are_kept():
    with pm.Model(coords={"plot": np.arange(4)}) as model:
        s = pm.HalfNormal("s")
        twice = pm.Deterministic("twice", 2 * s)
        RandomEffects(
            "y",
            effects=lambda: pm.Normal.dist(0, twice),
            emission=lambda u, i: pm.Normal.dist(u, 1),
            groups=np.array([7, 7, 9, 9]),
            observed=np.arange(4),
            dims="plot",
        )
    assert model.named_vars_to_dims["y"] == ("plot",)
    assert ModelGraph(model).make_compute_graph()["y"] == {"twice"}
    (chosen,) = estimators_of(model)
    np.testing.assert_array_equal(chosen.labels, [7, 9])
    cov = 4 * np.exp(-0.6) + np.eye(2)
    exact = sum(stats.multivariate_normal.logpdf(y, np.zeros(2), cov) for y in ([0, 1], [2, 3]))
    estimate = chosen.with_particles(512).estimate(np.array([[-0.3]]), seeds_of(1))
    assert estimate[0] == pytest.approx(exact, abs=1e-3)


def test_effects_are_shared_within_a_group():
    with pm.Model():
        y = RandomEffects(
            "y",
            effects=lambda: pm.Normal.dist(0, 1),
            emission=lambda u, i: pm.Normal.dist(u, 0.1),
            groups=[0, 1, 0, 1],
            observed=np.zeros(4),
        )
    drawn = pm.draw(y, 4000, random_seed=1)
    correlation = np.corrcoef(drawn.T)
    assert correlation[0, 2] > 0.97
    assert abs(correlation[0, 1]) < 0.06


@pytest.mark.parametrize("ask", ["compile_logp", "sample"])
def test_asking_for_its_density_names_the_way_out(ask):
    model = poisson()
    with pytest.raises(ModelError, match=r"counts.*pe\.sample_evidence\(model\)"):
        model.compile_logp() if ask == "compile_logp" else pm.sample(model=model, progressbar=False)


def test_a_model_survives_copies():
    point = {"b": POINT[:2], "s_log__": POINT[2:]}
    for same in (cloudpickle.loads(cloudpickle.dumps(poisson())), copy.copy(poisson())):
        (chosen,) = estimators_of(same)
        x = np.concatenate([point[v.name] for v in same.value_vars])  # copies sort them anew
        np.testing.assert_array_equal(
            chosen.estimate(x[None], seeds_of(1)),
            estimator("poisson").estimate(POINT[None], seeds_of(1)),
        )


def test_new_values_of_pm_data_are_taken():
    with pm.Model() as model:
        b = pm.Normal("b")
        x = pm.Data("x", X)
        y = pm.Data("y", BINARY.astype(float))
        RandomEffects(
            "hit",
            effects=lambda: pm.Normal.dist(0, 1),
            emission=lambda u, i: pm.Poisson.dist(pt.exp(b * x[i] + u)),
            groups=GROUPS,
            observed=y,
        )
    assert ModelGraph(model).make_compute_graph()["hit"] == {"b", "x"}
    before = estimators_of(model)[0].estimate(np.zeros((1, 1)), seeds_of(1))
    pm.set_data({"y": COUNTS_WITHOUT_GAPS}, model=model)
    after = estimators_of(model)[0].estimate(np.zeros((1, 1)), seeds_of(1))
    assert after != before
    pm.set_data({"y": COUNTS}, model=model)
    with pytest.raises(ModelError, match="build the model again"):
        estimators_of(model)


COUNTS_WITHOUT_GAPS = np.nan_to_num(COUNTS, nan=1.0)


# mistakes -------------------------------------------------------------------------------------


def call(**changes):
    arguments = {
        "effects": lambda: pm.Normal.dist(0, 1),
        "emission": lambda u, i: pm.Normal.dist(u, 1),
        "groups": [0, 0, 1],
        "observed": [0.1, 0.2, 0.3],
        **changes,
    }
    with pm.Model() as model:
        RandomEffects("y", **arguments)
    return model


MISTAKES = [
    ({"effects": lambda: pt.zeros(2)}, TypeError, "effects must return a distribution"),
    ({"effects": 3}, TypeError, "effects must be a function"),
    ({"emission": lambda u, i: u}, TypeError, "emission must return a distribution"),
    ({"emission": lambda u, i: pm.Normal("a", u, 1)}, BlockModelAccessError, "without a name"),
    ({"emission": lambda u, i: pm.Normal.dist(X[i], 1)}, ModelError, "must depend on the effects"),
    ({"emission": lambda u, i: pm.Normal.dist(u + X, 1)}, ValueError, "shape|broadcast"),
    ({"emission": lambda u, i: pm.Normal.dist(u[0], 1)}, ValueError, "distribution of the obs"),
    (
        {"emission": lambda u, i: pm.Normal.dist(u + pm.Normal.dist(0, 1), 1)},
        ModelError,
        "no name in the model",
    ),
    ({"effects": lambda: pm.Poisson.dist(1)}, ModelError, "must be continuous"),
    ({"groups": [0, 1]}, ValueError, "3 observations"),
    ({"groups": [0, 0.5, 1]}, ValueError, "whole numbers or labels"),
    ({"groups": ["a", None, "b"]}, ValueError, "needs a group"),
    ({"observed": [1.0, 2.0, np.inf]}, ValueError, "must be finite"),
    ({"observed": [1.0, 2.0, np.nan]}, ValueError, "1 of 2 have none, the first 1"),
    ({"observed": ["a", "b", "c"]}, TypeError, "must be numbers"),
    ({"observed": [[1.0, np.nan], [1, 1], [1, 1]]}, ValueError, "missing as a whole"),
    ({"n_particles": 1}, ValueError, "at least 2"),
    ({"n_particles": 5, "draws": "antithetic"}, ValueError, "n_particles=6"),
    ({"draws": "sobol"}, ValueError, "draws must be one of"),
]


@pytest.mark.parametrize(("changes", "kind", "message"), MISTAKES)
def test_a_mistake_is_told(changes, kind, message):
    with pytest.raises(kind, match=message):
        call(**changes)


def test_an_effect_of_another_group_is_refused():
    model = call(emission=lambda u, i: pm.Normal.dist(u - u.mean(), 1))
    with pytest.raises(ModelError, match="effect of its own group only"):
        estimators_of(model)


class Doubled(Op):
    """An operation that numba does not know and that has no gradient."""

    __props__ = ()

    def make_node(self, x):
        x = pt.as_tensor(x)
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(2.0 * inputs[0])


def test_slow_operations_are_named(caplog):
    with pm.Model() as model:
        b = pm.Normal("b")
        RandomEffects(
            "y",
            effects=lambda: pm.Normal.dist(0, 1),
            emission=lambda u, i: pm.Normal.dist(Doubled()(b) + u, 1),
            groups=[0, 0, 1],
            observed=[0.1, 0.2, 0.3],
        )
    with caplog.at_level(logging.WARNING, logger="pymc.pm_evidence"):
        (chosen,) = estimators_of(model)
    assert "Doubled" in caplog.text and "slow" in caplog.text
    mean, cov = np.full(2, 0.8), np.eye(2) + 1
    exact = stats.multivariate_normal.logpdf([0.1, 0.2], mean, cov)
    exact += stats.norm.logpdf(0.3, 0.8, np.sqrt(2))
    estimate = chosen.with_particles(512).estimate(np.array([[0.4]]), seeds_of(1))
    assert estimate[0] == pytest.approx(exact, abs=1e-3)


def test_a_density_without_derivatives_is_refused():
    model = call(emission=lambda u, i: pm.Normal.dist(Doubled()(u), 1))
    with pytest.raises(ModelError, match=r"second derivatives.*pe\.StateSpace"):
        estimators_of(model)


def test_seeds_must_fit():
    with pytest.raises(ValueError, match="one for every row"):
        estimator("poisson").estimate(POINT[None], seeds_of(1, 2))


# the fixture, and long runs -------------------------------------------------------------------
