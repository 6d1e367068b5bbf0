"""The geometric path: prior at 0, prior times likelihood at 1, and nothing else in between."""

import numpy as np

from pm_evidence.paths.geometric import GeometricPath
from pm_evidence.targets.layout import Particles


class Target:
    """A stand-in whose draws tell which seed they came from."""

    def draw(self, n, seed):
        rng = np.random.default_rng(seed)
        return Particles(rng.normal(size=(n, 2)), rng.normal(size=(n, 2)))


PATH = GeometricPath(Target())
STATE = Particles(np.zeros((3, 1)), np.array([[-1.0, 2.0], [-3.0, -np.inf], [0.5, 0.0]]))


def test_log_ratio():
    """The weights of every estimate are made of it; the prior must drop out."""
    np.testing.assert_allclose(PATH.log_ratio(STATE, 0.25, 0.75), [1.0, -np.inf, 0.0])
    np.testing.assert_array_equal(PATH.log_ratio(STATE, 0.0, 1.0), STATE.log_density[:, 1])
    # cutting a stage in two must not change the total
    parts = PATH.log_ratio(STATE, 0.1, 0.3) + PATH.log_ratio(STATE, 0.3, 0.9)
    np.testing.assert_allclose(parts, PATH.log_ratio(STATE, 0.1, 0.9))


def test_energy_is_minus_the_derivative_of_the_log_density():
    """Thermodynamic integration and the choice of schedules rest on it."""
    alive, step = STATE.take(np.array([0, 2])), 1e-6
    slope = PATH.log_ratio(alive, 0.5 - step, 0.5 + step) / (2 * step)
    np.testing.assert_allclose(PATH.energy(alive, 0.5), -slope, rtol=1e-9)
    assert PATH.energy(STATE, 0.5)[1] == np.inf


def test_draws_are_the_targets():
    """The reference is the prior, drawn with the seed that was handed down."""
    one, two, other = (PATH.draw(4, np.random.SeedSequence(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.x, two.x)
    assert len(one) == 4 and not np.array_equal(one.x, other.x)
