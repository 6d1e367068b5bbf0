"""The path between two posteriors begins with posterior draws; and its blocks."""

from types import SimpleNamespace

import numpy as np

from pm_evidence.core.contracts import Plan
from pm_evidence.core.records import Role
from pm_evidence.paths.geometric import PairPath
from pm_evidence.runs.pair import PairBlock, crossed_at_once
from pm_evidence.targets.layout import Particles


def path(starts):
    """A path between two normal densities; the log ratio of the two is the sum of a point."""

    def evaluate(x):
        return Particles(x, np.stack([-0.5 * (x**2).sum(axis=1), x.sum(axis=1)], axis=1))

    return PairPath(SimpleNamespace(evaluate=evaluate), starts)


def test_starts():
    """All in their order, and any other number of them at random."""
    starts = np.arange(8.0).reshape(4, 2)
    np.testing.assert_array_equal(path(starts).draw(4, np.random.SeedSequence(1)).x, starts)
    drawn = path(starts).draw(100, np.random.SeedSequence(1)).x
    assert drawn.shape == (100, 2)
    np.testing.assert_array_equal(np.unique(drawn, axis=0), starts)


def test_the_ratio_of_the_densities_is_that_along_the_path():
    made = path(np.ones((3, 2)))
    state = made.at(np.ones((3, 2)))
    np.testing.assert_array_equal(made.log_ratio(state, 0.25, 0.75), np.ones(3))
    np.testing.assert_array_equal(made.energy(state, 0.5), np.full(3, -2.0))


# --- blocks of paths between two posteriors ---

NO_PLAN = Plan(np.array([0.0, 1.0]), ())


def block(role, n=300, starts=None):
    x = np.random.default_rng(1).normal(size=(n, 2)) if starts is None else starts
    return PairBlock(path(x), NO_PLAN, role, 0, x, np.arange(len(x)) % 8, seed=1)


def test_work_at_once_is_that_of_the_forward_direction():
    for role in (Role.FORWARD, Role.REVERSE):
        given = block(role)
        (made,) = crossed_at_once([given])
        np.testing.assert_array_equal(made.work, -given.starts.sum(axis=1))
        np.testing.assert_array_equal(made.origin, given.origin)
        assert made.n_evaluations == 600 and made.trace.ess[0] < 1.0
    # a density that is not defined has no weight
    starts = np.array([[0.0, 1.0], [np.nan, 1.0]])
    (made,) = crossed_at_once([block(Role.FORWARD, starts=starts)])
    np.testing.assert_array_equal(made.work, [-1.0, np.inf])


def test_parts_hold_every_path_once():
    whole = block(Role.FORWARD)
    parts = whole.parts(first=5)
    assert [part.block for part in parts] == [5, 6, 7]
    np.testing.assert_array_equal(np.concatenate([p.starts for p in parts]), whole.starts)
    np.testing.assert_array_equal(np.concatenate([p.origin for p in parts]), whole.origin)
