"""Parameters and data are drawn together, and the data take the place of the model's own."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.model.derived import DataSets, simulate
from pm_evidence.targets.model.target import PyMCTarget

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


def scaled():
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 3)
        pm.Normal("y", 0, scale, observed=np.zeros(200), shape=200)
    return model


def test_data_belong_to_the_parameters():
    """Data of other parameters would make the upper bound wrong. False-alarm rate 1e-4 each."""
    model = scaled()
    for number in range(4):
        other, x = simulate(model, number)
        data = other.rvs_to_values[other["y"]].data
        assert stats.kstest(data, stats.norm(0, np.exp(x[0, 0])).cdf).pvalue > 1e-4
        again, _ = simulate(model, number)
        np.testing.assert_array_equal(again.rvs_to_values[again["y"]].data, data)
    assert not np.any(model.rvs_to_values[model["y"]].data)


def test_what_cannot_be_simulated_is_refused():
    with pm.Model() as model:
        pm.Potential("p", -(pm.Normal("x") ** 2))
    with pytest.raises(ModelError, match="got a potential"):
        simulate(model, 1)


def test_a_model_is_compiled_once_for_many_data_sets():
    """Data that stayed those of the first set would make all calibrations wrong."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        pm.Poisson("k", pm.math.exp(mu), observed=3)
        pm.Normal("y", mu, 1.0, observed=np.zeros(2))
    sets = DataSets(model)
    assert sets.kinds == {"k": ((), "whole"), "y": ((2,), "real")}
    drawn = sets.draw(3, np.random.default_rng(1))
    assert [set(each) for each in drawn] == [{"k", "y"}] * 3
    target = PyMCTarget(sets.observed)
    x = np.array([[0.3]])
    compiled = target.differentiable
    for data in drawn:
        sets.set(data)
        expected = stats.poisson.logpmf(data["k"], np.exp(0.3))
        expected += stats.norm.logpdf(data["y"], 0.3).sum()
        assert target.evaluate(x).log_density[0, 1] == pytest.approx(expected)
    assert target.differentiable is compiled
    assert model["k"] in model.observed_RVs
    assert model.rvs_to_values[model["k"]].data == 3


def test_data_sets_need_data_and_no_potential():
    with pm.Model() as model:
        pm.Normal("x")
    with pytest.raises(ModelError, match="no observed variable"):
        DataSets(model)
