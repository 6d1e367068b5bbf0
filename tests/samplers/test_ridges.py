"""Where ridges lead, from ascents that did not end and from peaks without draws."""

import numpy as np
import pytest

from pm_evidence.core.shape import Shape
from pm_evidence.kernels.ascent import Climbs
from pm_evidence.references.mixture import StudentFit
from pm_evidence.samplers.peaks import Local
from pm_evidence.samplers.survey import directions, grows, towards


def unit(d):
    """Return the shape of a standard normal population."""
    return Shape(np.zeros(d), np.ones((d, 1)))


def peak(mean, log_mass=0.0):
    return Local(StudentFit(Shape(mean, np.ones((mean.size, 1))), 10), 0.0, log_mass)


def test_endless_ascents_along_one_ridge_count_once():
    x = np.array([[10.0, 0.0], [20.0, 1.0], [0.0, -5.0], [3.0, 3.0]])
    followed = Climbs(x, np.zeros(4), np.array([False, False, False, True]), 0)
    (first, reach), (second, _) = directions(followed, unit(2))
    assert reach == pytest.approx(10.0)
    np.testing.assert_allclose([first, second], [[1.0, 0.0], [0.0, -1.0]])


@pytest.mark.parametrize(("distance", "d", "n"), [(6.0, 80, 1), (1.0, 80, 0), (6.0, 20, 0)])
def test_a_peak_that_no_draw_is_near(distance, d, n):
    """In few dimensions a mixture is fitted to the draws, so that no ridge is needed."""
    draws = np.random.default_rng(1).normal(size=(500, d))
    found = towards([peak(distance * np.eye(d)[0])], draws, unit(d))
    assert len(found) == n
    for direction, reach in found:
        np.testing.assert_allclose(direction, np.eye(d)[0])
        assert reach == pytest.approx(distance)
    # draws near one of several peaks
    assert towards([peak(distance * np.eye(d)[0]), peak(np.zeros(d))], draws, unit(d)) == []


@pytest.mark.parametrize(("scale", "n"), [(1.05, 0), (1.2, 1)])
def test_draws_that_are_slightly_too_wide(scale, n):
    """In a thousand dimensions few chains differ from the posterior by several per cent."""
    d = 1000
    draws = scale * np.random.default_rng(3).normal(size=(100, d))
    assert len(towards([peak(np.ones(d) / d)], draws, unit(d))) == n


def test_growing_mass():
    ridge = [peak(np.zeros(2), log_mass) for log_mass in (0.0, 2.0, 5.0)]
    assert grows(ridge, 1.0) and not grows(ridge, 3.0)
    assert not grows(ridge[2:], 0.0)
    # a peak far from the draws is no growing mass, however low the evidence of a coarse run is
    ridge = [peak(np.zeros(2), log_mass) for log_mass in (0.0, 8.0, 5.0)]
    assert not grows(ridge, -20.0)
