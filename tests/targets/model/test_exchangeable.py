"""Components that can be relabelled are found from the densities of a model."""

import numpy as np
import pymc as pm
import pytest

from pm_evidence.targets.model.exchangeable import find_relabelling
from tests.targets.values import in_python

RNG = np.random.default_rng(80)
DATA = RNG.normal([[-2.0], [0.0], [3.0]], 0.6, size=(3, 8)).ravel()


def mixture(concentration, *, rates=False):
    """A mixture of normals with weights, means and variances of their own."""
    n_components = len(concentration)
    with pm.Model() as model:
        weight = pm.Dirichlet("weight", np.array(concentration))
        mean = pm.Normal("mean", 0.0, 3.0, shape=n_components)
        variance = pm.InverseGamma("variance", 3.0, 1.0, shape=n_components)
        if rates:
            pm.Exponential("rate", [1.0, 2.0, 3.0])
        pm.NormalMixture("y", weight, mean, pm.math.sqrt(variance), observed=DATA)
    return model


@pytest.fixture(scope="module")
def three():
    """Three components, beside three rates that have different priors."""
    return in_python(mixture([1.0, 1.0, 1.0], rates=True))


def test_components_of_a_mixture(three):
    found, spent = find_relabelling(three)
    assert found.names == ("weight", "mean", "variance")
    assert len(found.maps) == 6 and 0 < spent < 100
    # beside the points at which it was found, and far from the prior
    points = 2.0 * np.random.default_rng(7).normal(size=(20, three.n_dim))
    for image in found.images(points):
        before, after = three.evaluate(points).log_density, three.evaluate(image).log_density
        np.testing.assert_allclose(after, before, rtol=1e-9)
    np.testing.assert_allclose(np.abs(np.linalg.det(found.maps)), 1.0)


def test_components_in_the_plane_and_transitions():
    with pm.Model() as model:
        mean = pm.Normal("mean", 0.0, 3.0, shape=(2, 2))
        moved = pm.Dirichlet("moved", np.ones((2, 2)))
        density = pm.math.exp(-((mean - np.array([1.0, -1.0])) ** 2).sum(axis=1))
        first = moved[0, 0] * density[0] + moved[0, 1]
        second = moved[1, 1] * density[1] + moved[1, 0]
        pm.Potential("loss", pm.math.log(first) + pm.math.log(second))
    found, _ = find_relabelling(in_python(model))
    assert found.names == ("mean", "moved")
    # rows of the means, and rows and columns of the transitions: a transition to the other state
    # stays one
    swap = found.maps[1]
    mean = np.array([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(swap @ [*mean, 0.3, 0.7], [3.0, 4.0, 1.0, 2.0, -0.7, -0.3])


def test_regression_coefficients_are_not_components():
    x = RNG.normal(size=(20, 3))
    with pm.Model() as model:
        slope = pm.Normal("slope", 0.0, 1.0, shape=3)
        pm.Normal("y", x @ slope, 1.0, observed=x[:, 0])
    assert find_relabelling(in_python(model))[0] is None
