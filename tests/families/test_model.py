"""The base of targets that anneal a PyMC model on a path of the user's."""

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.contracts import AnnealingSetup
from pm_evidence.families.native import ModelTarget
from pm_evidence.paths.geometric import GeometricPath
from tests.models import X, Y, shared

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


class Plain(ModelTarget):
    """On the geometric path, by HMC: what sample_evidence does with the model itself."""

    def annealing_setup(self, kernel):
        return AnnealingSetup(
            GeometricPath(self.compiled), pe.kernels.HMC(exploring=True), n_pilot=10
        )


def test_the_same_path_gives_the_same_numbers():
    """And the model says what the variables are, those that are derived included."""
    model = shared("line").model
    options = {"draws": 320, "target_mcse": None, "random_seed": 1, "progressbar": False}
    own = pe.sample_evidence(Plain(model), **options)
    usual = pe.sample_evidence(model, backend="numba", **options)  # what the target is compiled by
    assert pe.log_evidence(own) == pe.log_evidence(usual)
    np.testing.assert_array_equal(own["posterior"]["mean"], usual["posterior"]["mean"])
    np.testing.assert_array_equal(own["observed_data"]["y"], Y)
    target = Plain(model)
    assert target.n_dim == 2 and target.log_prior_mass == 0.0
    found = target.posterior(np.array([[0.25, 2.0]]))
    assert found["coefficient"].tolist() == [[0.25, 2.0]]
    np.testing.assert_allclose(found["mean"], [0.25 + 2.0 * X])
