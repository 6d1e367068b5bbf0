"""The path between two posteriors begins with posterior draws."""

from types import SimpleNamespace

import numpy as np

from pm_evidence.paths.pair import PairPath
from pm_evidence.targets.points import Particles


def path(starts):
    """A path between two normal densities; the log ratio of the two is the sum of a point."""

    def evaluate(x):
        return Particles(x, np.stack([-0.5 * (x**2).sum(axis=1), x.sum(axis=1)], axis=1))

    return PairPath(SimpleNamespace(evaluate=evaluate), starts)


def test_all_starts_in_their_order():
    starts = np.arange(8.0).reshape(4, 2)
    np.testing.assert_array_equal(path(starts).draw(4, np.random.SeedSequence(1)).x, starts)


def test_any_other_number_of_starts_is_drawn_at_random():
    starts = np.arange(8.0).reshape(4, 2)
    drawn = path(starts).draw(100, np.random.SeedSequence(1)).x
    assert drawn.shape == (100, 2)
    np.testing.assert_array_equal(np.unique(drawn, axis=0), starts)


def test_the_ratio_of_the_densities_is_that_along_the_path():
    made = path(np.ones((3, 2)))
    state = made.at(np.ones((3, 2)))
    np.testing.assert_array_equal(made.log_ratio(state, 0.25, 0.75), np.ones(3))
    np.testing.assert_array_equal(made.energy(state, 0.5), np.full(3, -2.0))
