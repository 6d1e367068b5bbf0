"""Whether a model is the same; ``tests/runs/test_checkpoint.py`` compares two processes."""

import pymc as pm
import pytest

from pm_evidence.targets.model.cache import identity_of
from tests.targets.model.described import custom, filtered, inner, regression


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
