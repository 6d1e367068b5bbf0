"""Climbs to the peaks of a posterior, also to peaks that are known."""

import numpy as np
import pymc as pm
import pytest

from pm_evidence.core.shape import Shape, learn_shape
from pm_evidence.kernels.ascent import KnownPeaks, climb, reached
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


# --- known peaks ---


D, SD, APART = 3, 0.5, 4.0
UNIT = Shape(np.zeros(D), np.ones((D, 1)))


@pytest.fixture(scope="module")
def two_modes():
    """Normal modes of equal width at zero and at ``APART`` in the first coordinate."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1e3, shape=D)
        first = pm.logp(pm.Normal.dist(0, SD), x).sum()
        second = pm.logp(pm.Normal.dist(np.array([APART, 0, 0]), SD), x).sum()
        pm.Potential("modes", pm.math.logaddexp(first, second))
    return PyMCTarget(model)


def known(target, *centres, sd=SD, raised=0.0):
    mean = np.array(centres, dtype=float)
    height = target.evaluate(mean).log_density.sum(axis=1)
    return KnownPeaks(mean, np.array([sd * np.eye(D)] * len(mean)), height + raised)


ZERO, OTHER = (0.0, 0.0, 0.0), (APART, 0.0, 0.0)


def test_ascents_end_early_at_known_peaks(two_modes):
    """At the same peaks as without this knowledge, for less than half the cost."""
    start = np.random.default_rng(1).normal(scale=3.0, size=(60, D))
    usual = climb(two_modes, start, UNIT, 500)
    found = climb(two_modes, start, UNIT, 500, known=known(two_modes, ZERO, OTHER))
    assert found.settled.all()
    np.testing.assert_allclose(found.x, usual.x, atol=0.05)
    np.testing.assert_allclose(found.log_density, usual.log_density, atol=1e-3)
    assert found.n_evaluations < 0.5 * usual.n_evaluations


def test_other_peaks_are_climbed_to(two_modes):
    """An unknown mode is not taken for the known one."""
    start = np.random.default_rng(2).normal(scale=3.0, size=(60, D))
    usual = climb(two_modes, start, UNIT, 500)
    found = climb(two_modes, start, UNIT, 500, known=known(two_modes, ZERO))
    np.testing.assert_allclose(found.x, usual.x, atol=0.05)
    assert (found.x[:, 0] > 3.0).sum() > 10


@pytest.mark.parametrize("wrong", [{"sd": 0.5 * SD}, {"sd": 2.0 * SD}, {"raised": 0.5}])
def test_a_wrong_curvature_or_height_ends_no_ascent(two_modes, wrong):
    """At two standard deviations from the peak; the right ones end it there."""
    x = np.array([2.0 * SD, 0.0, 0.0])
    height = two_modes.evaluate(x[None]).log_density.sum()
    gradient = -x / SD**2
    for peaks, expected in (
        (known(two_modes, ZERO), 0),
        (known(two_modes, OTHER, ZERO), 1),
        (known(two_modes, ZERO, **wrong), -1),
    ):
        found = reached(x[None], np.array([height]), gradient[None], peaks)
        assert found.tolist() == [expected]
