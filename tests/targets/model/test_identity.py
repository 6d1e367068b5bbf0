"""Whether a model is the same; ``tests/runs/test_checkpoint.py`` compares two processes."""

import numpy as np
import pymc as pm
import pytest

from pm_evidence.targets.model.cache import identity_of
from tests.targets.model.described import MODELS, custom, filtered, inner, regression


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (regression, {"scale": 2.0}),
        (regression, {"name": "nu"}),
        (regression, {"transform": pm.distributions.transforms.log}),
        (custom, {"power": 3.0}),
        (custom, {"offset": 1.0}),
        (inner, {"decay": 0.8}),
        (filtered, {"error": 0.6}),
        (filtered, {"n_particles": 50}),
    ],
)
def test_another_model(make, options):
    """A prior, a name, a transform, functions of a user's own, numbers inside operations."""
    one, other = identity_of(make()), identity_of(make(**options))
    assert one["model"] != other["model"] and one["data"] == other["data"]


@pytest.mark.parametrize("options", [{"y": (1.0, 2.0, 5.0)}, {"x": (0.0, 1.0, 3.0)}])
def test_other_data(options):
    one, other = identity_of(regression()), identity_of(regression(**options))
    assert one["model"] == other["model"] and one["data"] != other["data"]


def test_data_that_are_set():
    model = regression()
    before = identity_of(model)
    with model:
        pm.set_data({"x": np.array([0.0, 1.0, 3.0])})
    assert identity_of(model) == identity_of(regression(x=(0.0, 1.0, 3.0))) != before


def test_arrays_of_a_graph_are_data():
    """Covariates that are no ``pm.Data``, and weights of a mixture."""
    one, other = identity_of(inner()), identity_of(inner(weight=0.4))
    assert one["data"] != other["data"]


@pytest.mark.parametrize("name", MODELS)
def test_sampling_leaves_a_model_as_it_is(name):
    """Compilation must not change what a model is, nor the generators that it draws from."""
    model = MODELS[name]()
    before = identity_of(model)
    pm.draw(model.free_RVs, random_seed=1)
    assert identity_of(model) == before == identity_of(MODELS[name]())
