"""The user's call: one variable of the model, its data, and models that cannot be estimated."""

import copy
import logging

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.model_graph import ModelGraph
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from scipy import stats

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.estimated.random_effects import RandomEffects
from pm_evidence.targets.estimated.variable import estimated_variables, estimators_of
from tests.targets.estimated.grouped_models import (
    N_OBS,
    at_point,
    exact_small,
    poisson,
    seeds_of,
    small,
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


def test_asking_for_its_density_names_the_way_out():
    model = poisson()
    for ask in (model.compile_logp, lambda: pm.sample(model=model, progressbar=False)):
        with pytest.raises(ModelError, match=r"counts.*pe\.sample_evidence\(model\)"):
            ask()


@pytest.mark.slow
def test_a_model_survives_copies():
    model, x = small(), np.ones((1, 1))
    found = estimators_of(model)[0].estimate(x, seeds_of(1))
    for same in (cloudpickle.loads(cloudpickle.dumps(model)), copy.copy(model)):
        (chosen,) = estimators_of(same)
        np.testing.assert_array_equal(chosen.estimate(x, seeds_of(1)), found)


def test_new_values_of_pm_data_are_taken():
    """And a particle out of range takes its own group only.

    PyMC's checks of parameters would make the whole density -inf. The means of 4,000 weights are
    within 4.5 standard errors: false alarms below 1e-4 in all.
    """
    model, b = small(), 1.0
    assert ModelGraph(model).make_compute_graph()["y"] == {"b", "x"}
    kept = [model["x"].get_value(), model["counts"].get_value()]
    try:
        for x, counts in ((1.0, [0, 1, 4, 6]), (1.5, [2, 0, 3, 1])):
            pm.set_data({"x": np.full(4, x), "counts": counts}, model=model)
            (chosen,) = estimators_of(model)
            groups = chosen.estimate_groups(at_point(4000, np.array([b])), seeds_of(4000))
            ratio = np.exp(groups - exact_small(b, x, counts))
            error = ratio.std(axis=0) / np.sqrt(4000)
            assert np.all(np.abs(ratio.mean(axis=0) - 1) < 4.5 * error)
            assert np.all(error < 0.02)
    finally:
        pm.set_data(dict(zip(("x", "counts"), kept, strict=True)), model=model)


# what cannot be estimated ---------------------------------------------------------------------


def call(emission):
    with pm.Model() as model:
        b = pm.Normal("b")
        RandomEffects(
            "y",
            effects=lambda: pm.Normal.dist(0, 1),
            emission=lambda u, i: pm.Normal.dist(emission(u, b), 1),
            groups=[0, 0, 1],
            observed=[0.1, 0.2, 0.3],
        )
    return model


def test_an_effect_of_another_group_is_refused():
    model = call(lambda u, b: u[::-1])
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


@pytest.mark.slow
def test_slow_operations_are_named(caplog):
    model = call(lambda u, b: Doubled()(b) + u)
    with caplog.at_level(logging.WARNING, logger="pymc.pm_evidence"):
        (chosen,) = estimators_of(model)
    assert "Doubled" in caplog.text and "slow" in caplog.text
    mean, cov = np.full(2, 0.8), np.eye(2) + 1
    exact = stats.multivariate_normal.logpdf([0.1, 0.2], mean, cov)
    exact += stats.norm.logpdf(0.3, 0.8, np.sqrt(2))
    estimate = chosen.with_particles(512).estimate(np.array([[0.4]]), seeds_of(1))
    assert estimate[0] == pytest.approx(exact, abs=1e-3)


def test_a_density_without_derivatives_is_refused():
    model = call(lambda u, b: Doubled()(u))
    with pytest.raises(ModelError, match=r"second derivatives.*pe\.StateSpace"):
        estimators_of(model)
