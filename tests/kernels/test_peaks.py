"""Ascents that end at known peaks."""

import numpy as np
import pymc as pm
import pytest

from pm_evidence.core.shape import Shape
from pm_evidence.kernels.ascent import climb
from pm_evidence.kernels.peaks import KnownPeaks, reached
from pm_evidence.targets.model.target import PyMCTarget

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
    gradient = np.array([np.zeros(D), -x / SD**2])
    for peaks, expected in (
        (known(two_modes, ZERO), 0),
        (known(two_modes, OTHER, ZERO), 1),
        (known(two_modes, ZERO, **wrong), -1),
    ):
        assert reached(x, height, gradient, peaks.mean, peaks.factor, peaks.height) == expected


def test_compiled_equals_python(two_modes):
    rng = np.random.default_rng(4)
    factor = np.tril(rng.normal(size=(2, D, D))) + 2 * np.eye(D)
    mean, height = rng.normal(size=(2, D)), np.array([-1.0, -1.2])
    answers = set()
    for _ in range(200):
        k = rng.integers(2)
        z = rng.normal(size=D)
        x = mean[k] + factor[k] @ z
        gradient = np.array([-np.linalg.solve(factor[k].T, z), 0.1 * rng.normal(size=D)])
        arguments = x, height[k] - 0.5 * z @ z + 0.1 * rng.normal(), gradient, mean, factor, height
        assert reached(*arguments) == reached.py_func(*arguments)
        answers.add(reached(*arguments))
    assert answers == {-1, 0, 1}
