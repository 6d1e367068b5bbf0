"""The base of targets that anneal a PyMC model on a path of the user's."""

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.core.contracts import AnnealingSetup
from pm_evidence.families.model import ModelTarget
from pm_evidence.paths.geometric import GeometricPath

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


class Plain(ModelTarget):
    """On the geometric path, by HMC: what sample_evidence does with the model itself."""

    def annealing_setup(self, kernel):
        return AnnealingSetup(GeometricPath(self.compiled), pe.HMC(exploring=True), n_pilot=10)


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.Deterministic("twice", 2 * mu)
        pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    return model


def test_the_same_path_gives_the_same_numbers(model):
    options = {"draws": 320, "target_mcse": None, "random_seed": 1, "progressbar": False}
    own, usual = (pe.sample_evidence(t, **options) for t in (Plain(model), model))
    assert pe.log_evidence(own) == pe.log_evidence(usual)
    np.testing.assert_array_equal(own["posterior"]["twice"], usual["posterior"]["twice"])
    np.testing.assert_array_equal(own["observed_data"]["y"], [0.5, 1.5])


def test_the_model_says_what_the_variables_are(model):
    target = Plain(model)
    assert target.n_dim == 1 and target.log_prior_mass == 0.0
    found = target.posterior(np.array([[0.25]]))
    assert found["mu"].tolist() == [0.25] and found["twice"].tolist() == [0.5]
