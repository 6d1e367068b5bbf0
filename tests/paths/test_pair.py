"""The path between two posteriors begins with posterior draws; and its blocks."""

from types import SimpleNamespace

import numpy as np

from pm_evidence.core.contracts import Plan
from pm_evidence.core.records import Role, RunRecord
from pm_evidence.paths.geometric import PairPath
from pm_evidence.runs.pair import Half, PairBlock, blocks_of, crossed_at_once
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


def test_every_path_of_a_round_has_a_block():
    """In both directions, numbered after those before, with draws of all groups."""
    x = np.random.default_rng(1).normal(size=(300, 2))
    half = Half(path(x), (x, 2.0 * x), (np.arange(300) % 8,) * 2)
    before = RunRecord("pair", NO_PLAN.beta, {Role.FORWARD: [None] * 5})
    rng = np.random.default_rng(1)
    found = blocks_of([half, half], before, NO_PLAN, 1, rng, n=600)
    for role, first, scale in ((Role.FORWARD, 5, 1.0), (Role.REVERSE, 0, 2.0)):
        mine = [block for block in found if block.role == role]
        assert [block.block for block in mine] == list(range(first, first + 6))
        for blocks in (mine[:3], mine[3:]):
            np.testing.assert_array_equal(np.concatenate([b.starts for b in blocks]), scale * x)
            np.testing.assert_array_equal(np.concatenate([b.origin for b in blocks]), half.group[0])
    whole = blocks_of([half], before, NO_PLAN, 1, rng)
    assert [(b.role, b.block, len(b.starts)) for b in whole] == [
        (Role.FORWARD, 5, 300),
        (Role.REVERSE, 0, 300),
    ]
