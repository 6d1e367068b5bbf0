"""A model with variables of several kinds, and its target."""

import numpy as np
import pymc as pm
import pytest

from pm_evidence.targets.model.target import PyMCTarget


@pytest.fixture(scope="session")
def model():
    """Continuous, discrete, circular, pm.Data, coordinates and a deterministic, in few numbers."""
    coords = {"row": ["a", "b", "c"], "side": ["left", "right"]}
    with pm.Model(coords=coords) as model:
        x = pm.Data("x", np.array([-1.0, 0.0, 1.0]), dims="row")
        slope = pm.Normal("slope", 0, 1, dims="side")
        k = pm.Binomial("k", 3, 0.4)
        direction = pm.VonMises("direction", 0.0, 1.0)
        scale = pm.HalfNormal("scale", 1)
        pm.Poisson("n", 2)
        mean = pm.Deterministic("mean", slope.sum() * x + k + pm.math.cos(direction), dims="row")
        pm.Normal("y", mean, scale, observed=np.array([0.5, 1.5, 2.0]), dims="row")
    return model


@pytest.fixture(scope="session")
def target(model):
    return PyMCTarget(model)
