"""The geometric path: prior at 0, prior times likelihood at 1, and nothing else in between."""

import numpy as np
import pytest

from pm_evidence.paths.geometric import GeometricPath
from pm_evidence.targets.points import Particles


class Target:
    """A stand-in whose draws tell which seed they came from."""

    def draw(self, n, seed):
        rng = np.random.default_rng(seed)
        return Particles(rng.normal(size=(n, 2)), rng.normal(size=(n, 2)))


@pytest.fixture
def path():
    return GeometricPath(Target())


@pytest.fixture
def state():
    log_density = np.array([[-1.0, 2.0], [-3.0, -np.inf], [0.5, 0.0]])
    return Particles(np.zeros((3, 1)), log_density)


def test_log_ratio(path, state):
    """The weights of every estimate are made of it; the prior must drop out."""
    np.testing.assert_allclose(path.log_ratio(state, 0.25, 0.75), [1.0, -np.inf, 0.0])
    np.testing.assert_array_equal(path.log_ratio(state, 0.0, 1.0), state.log_density[:, 1])


def test_log_ratios_add_up(path, state):
    """Cutting a stage in two must not change the total."""
    parts = path.log_ratio(state, 0.1, 0.3) + path.log_ratio(state, 0.3, 0.9)
    np.testing.assert_allclose(parts, path.log_ratio(state, 0.1, 0.9))


def test_energy_is_minus_the_derivative_of_the_log_density(path, state):
    """Thermodynamic integration and the choice of schedules rest on it."""
    alive = state.take(np.array([0, 2]))
    step = 1e-6
    slope = path.log_ratio(alive, 0.5 - step, 0.5 + step) / (2 * step)
    np.testing.assert_allclose(path.energy(alive, 0.5), -slope, rtol=1e-9)
    assert path.energy(state, 0.5)[1] == np.inf


def test_draws_are_the_targets(path):
    """The reference is the prior, drawn with the seed that was handed down."""
    one, two = path.draw(4, np.random.SeedSequence(1)), path.draw(4, np.random.SeedSequence(1))
    other = path.draw(4, np.random.SeedSequence(2))
    np.testing.assert_array_equal(one.x, two.x)
    assert len(one) == 4 and not np.array_equal(one.x, other.x)
