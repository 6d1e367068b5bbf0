"""Bounds on data that are simulated from the model."""

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.api.certify import simulate_and_certify

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


def test_bounds_enclose_the_exact_value():
    """On the simulated data, which the result holds. Seed 3; the model is conjugate."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        pm.Normal("y", mu, 1, observed=np.zeros(3))
    dt = simulate_and_certify(model, draws=300, random_seed=3, progressbar=False)
    y = dt["observed_data"]["y"].values
    assert not np.allclose(y, 0.0)
    cov = np.eye(3) + 4.0
    exact = -0.5 * (y @ np.linalg.solve(cov, y) + np.linalg.slogdet(2 * np.pi * cov)[1])
    lower, upper, both = (
        pe.log_evidence(dt, estimator=name) for name in ("lower_bound", "upper_bound", "bar")
    )
    assert lower.value - 3 * lower.mcse < exact < upper.value + 3 * upper.mcse
    assert abs(both.value - exact) < 4 * both.mcse


def test_estimated_likelihoods_are_refused():
    with pm.Model() as model:
        sd = pm.HalfNormal("sd", 1)
        pe.RandomEffects(
            "y",
            effects=lambda: pm.Normal.dist(0, sd),
            emission=lambda u, i: pm.Normal.dist(u, 1),
            groups=[0, 0, 1],
            observed=np.array([0.1, 0.2, 0.3]),
        )
    with pytest.raises(pe.ModelError, match="needs a likelihood that can be evaluated"):
        simulate_and_certify(model, progressbar=False)
