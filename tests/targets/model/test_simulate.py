"""Parameters and data are drawn together, and the data take the place of the model's own."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.model.simulate import simulate

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
