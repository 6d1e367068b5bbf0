"""Populations of points: members keep what belongs to them."""

import numpy as np
import pytest

from pm_evidence.targets.layout import Particles


def population(n=4, gradient=True):
    x = np.arange(2.0 * n).reshape(n, 2)
    return Particles(x, -x, np.stack([x, -x], axis=1) if gradient else None)


def test_take():
    """Resampling that separated a point from its density would weigh the wrong states."""
    chosen = population().take(np.array([3, 0, 0]))
    assert len(chosen) == 3
    np.testing.assert_array_equal(chosen.x, [[6, 7], [0, 1], [0, 1]])
    np.testing.assert_array_equal(chosen.log_density, -chosen.x)
    np.testing.assert_array_equal(chosen.gradient[:, 0], chosen.x)
    assert population(gradient=False).take(np.array([1])).gradient is None
    assert len(population().take(np.array([], dtype=int))) == 0


def test_taking_copies():
    """Moves in place on one population must not move another."""
    original = population()
    original.take(np.arange(4)).x[:] = 99.0
    np.testing.assert_array_equal(original.x, population().x)


def test_join():
    """All states of all chains, in order."""
    joined = population(1).join([population(2), population(1)])
    assert len(joined) == 4
    np.testing.assert_array_equal(joined.x[:, 0], [0, 0, 2, 0])
    np.testing.assert_array_equal(joined.gradient[:, 1], -joined.x)
    np.testing.assert_array_equal(population(2).join([]).x, population(2).x)


@pytest.mark.parametrize("first", [True, False])
def test_join_forgets_gradients_that_not_all_have(first):
    """A gradient of the wrong length would be read beyond its end."""
    joined = population(2, gradient=first).join([population(2, gradient=not first)])
    assert joined.gradient is None and len(joined.log_density) == 4


def test_to_draws():
    """The record holds points in the target's own coordinates."""
    np.testing.assert_array_equal(population().to_draws(), population().x)
