"""Climbs to the peaks of a posterior, also to peaks that are known."""

import numpy as np
import pymc as pm
import pytest

from pm_evidence.core.shape import Shape, learn_shape
from pm_evidence.kernels.ascent import climb
from pm_evidence.targets.model.target import PyMCTarget
from tests.systems.exact import deceptive_systems, exact_systems


@pytest.fixture(scope="module")
def correlated():
    """A Gaussian with standard deviations from 0.1 to 10 and its peak at (1, ..., 4)."""
    factor = np.array([[10.0, 0, 0, 0], [3, 1, 0, 0], [0, 0.5, 0.1, 0], [0.1, 0, 0, 0.1]])
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1e6, shape=4)
        pm.Potential("l", pm.logp(pm.MvNormal.dist(np.arange(1.0, 5.0), chol=factor), x))
    return PyMCTarget(model)


def test_the_peak_of_a_gaussian(correlated):
    """From far away, in coordinates that know nothing of its shape."""
    start = np.random.default_rng(1).normal(size=(20, 4), scale=30.0)
    found = climb(correlated, start, Shape(np.zeros(4), np.ones((4, 1))), 2000)
    assert found.settled.all()
    np.testing.assert_allclose(found.x[:, 3], 4.0, atol=0.1)
    peak = correlated.evaluate(np.arange(1.0, 5.0)[None]).log_density.sum()
    np.testing.assert_allclose(found.log_density, peak, atol=1e-3)


def test_a_fitting_shape_needs_few_evaluations(correlated):
    """In the population's own coordinates a Gaussian is round."""
    factor = np.array([[10.0, 0, 0, 0], [3, 1, 0, 0], [0, 0.5, 0.1, 0], [0.1, 0, 0, 0.1]])
    shape = Shape(np.arange(1.0, 5.0), factor)
    start = shape.mean + np.random.default_rng(2).normal(size=(50, 4)) @ factor.T
    found = climb(correlated, start, shape, 100)
    assert found.settled.all() and found.n_evaluations / 50 < 12


def test_evaluations_are_counted_and_limited(correlated):
    start = np.random.default_rng(3).normal(size=(10, 4), scale=30.0)
    found = climb(correlated, start, Shape(np.zeros(4), np.ones((4, 1))), 5)
    assert not found.settled.any() and found.n_evaluations <= 50
    above = correlated.evaluate(start).log_density.sum(axis=1)
    assert (found.log_density >= above).all()


def test_a_level_is_kept(correlated):
    """Ascents along a ridge do not move in its direction."""
    shape = Shape(np.zeros(4), np.ones((4, 1)))
    level = np.array([0.6, 0.8, 0.0, 0.0])
    start = np.random.default_rng(4).normal(size=(5, 4))
    found = climb(correlated, start, shape, 2000, level)
    np.testing.assert_allclose(found.x @ level, start @ level, atol=1e-9)
    assert (found.log_density > correlated.evaluate(start).log_density.sum(axis=1)).all()


@pytest.mark.parametrize("backend", ["numba", "jax"])
@pytest.mark.parametrize("weight", [1.0, 0.01])
def test_the_power_of_the_prior(weight, backend):
    if backend == "jax":
        pytest.importorskip("jax")
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=3)
        pm.Normal("y", x, 2.0, observed=[-4.0, 3.0, 8.0])
    target = PyMCTarget(model, backend=backend)
    start = np.random.default_rng(1).normal(size=(4, 3))
    shape = Shape(np.zeros(3), np.ones((3, 1)))
    found = climb(target, start, shape, 200, power=(weight, 1.0))
    peak = np.array([-4.0, 3.0, 8.0]) / (1.0 + 4.0 * weight)
    np.testing.assert_allclose(found.x, np.tile(peak, (4, 1)), atol=1e-2)
    height = target.evaluate(peak[None]).log_density @ [weight, 1.0]
    np.testing.assert_allclose(found.log_density, np.repeat(height, 4), atol=1e-4)


def test_starts_without_density_are_left():
    target = PyMCTarget(deceptive_systems()["two_widths_4"].build())
    start = np.full((2, 4), np.nan)
    start[1] = 2.5
    found = climb(target, start, learn_shape(np.random.default_rng(5).normal(size=(50, 4))), 100)
    assert found.log_density[0] == -np.inf and not found.settled[0]
    assert found.settled[1]
    np.testing.assert_allclose(found.x[1], 3.0, atol=0.1)


@pytest.mark.parametrize("most", [pytest.param(5, marks=pytest.mark.slow), 600])
def test_jax_climbs_all_at_once_to_the_same_points(most):
    """Each ascent asks for its own evaluations: what the others do must not matter."""
    system = exact_systems()["eight_schools_half_normal_noncentred"]
    target, by_jax = (PyMCTarget(system.build(), backend=name) for name in ("numba", "jax"))
    start = target.draw(30, np.random.SeedSequence(6)).x
    start[3] = np.nan
    shape = learn_shape(start[4:])
    found, other = (climb(each, start, shape, most) for each in (target, by_jax))
    np.testing.assert_allclose(other.x, found.x, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(other.log_density, found.log_density, rtol=1e-9)
    assert np.array_equal(other.settled, found.settled)
    assert other.n_evaluations == found.n_evaluations
    alone = climb(by_jax, start[7:8], shape, most)
    np.testing.assert_allclose(alone.x[0], other.x[7], rtol=1e-9, atol=1e-9)
