"""Bounds on data that are simulated from the model."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pm_evidence as pe
from pm_evidence.api.simulated import simulate_and_certify
from tests.models import shared
from tests.systems.exact import exact_systems

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


def test_simulated_bounds_hold():
    """Seeds 0 to 7: the mean gaps over data sets are on the right side of the exact value."""
    assert pe.simulate_and_certify is simulate_and_certify
    model, gaps, data = shared("normal").model, [], []
    for seed in range(8):
        dt = simulate_and_certify(model, draws=100, random_seed=seed, progressbar=False)
        data.append(dt["observed_data"]["y"].values)
        exact = stats.multivariate_normal(np.zeros(5), np.eye(5) + 4.0).logpdf(data[-1])
        gaps.append(
            [pe.log_evidence(dt, estimator=f"{s}_bound").value - exact for s in ("lower", "upper")]
        )
        evidence = pe.log_evidence(dt)
        assert evidence.estimator == "bar"
        assert abs(evidence.value - exact) < 4.5 * evidence.mcse
    lower, upper = np.mean(gaps, axis=0)
    assert lower < 0 < upper
    assert len(np.unique(data)) == 8 * 5  # no two data sets are the same
    assert "strict" in pe.log_evidence(dt, estimator="upper_bound").message
    assert dt["log_evidence"].attrs["reverse_start"] == "exact"


@pytest.mark.slow
def test_simulation_of_initial_values_and_orders():
    """PyMC's own copy of a model refuses the one, prior draws leave the other."""
    dt = simulate_and_certify(
        exact_systems()["ordered_three"].build(), draws=100, random_seed=1, progressbar=False
    )
    assert pe.log_evidence(dt).status == "ok"


def test_what_cannot_be_simulated_or_evaluated():
    with pm.Model() as potential:
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1, observed=np.zeros(3))
        pm.Potential("extra", -(mu**2))
    with pytest.raises(pe.ModelError, match="must have observed variables and no potential"):
        simulate_and_certify(potential, progressbar=False)
    with pytest.raises(pe.ModelError, match="needs a likelihood that can be evaluated"):
        simulate_and_certify(shared("groups").model, progressbar=False)
