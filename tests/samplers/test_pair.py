"""Blocks of paths between two posteriors."""

import numpy as np

from pm_evidence.core.contracts import Plan
from pm_evidence.core.records import Role
from pm_evidence.samplers.pair import PairBlock, crossed_at_once
from tests.paths.test_pair import path

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


def test_a_density_that_is_not_defined_has_no_weight():
    starts = np.array([[0.0, 1.0], [np.nan, 1.0]])
    (made,) = crossed_at_once([block(Role.FORWARD, starts=starts)])
    np.testing.assert_array_equal(made.work, [-1.0, np.inf])


def test_parts_hold_every_path_once():
    whole = block(Role.FORWARD)
    parts = whole.parts(first=5)
    assert [part.block for part in parts] == [5, 6, 7]
    np.testing.assert_array_equal(np.concatenate([p.starts for p in parts]), whole.starts)
    np.testing.assert_array_equal(np.concatenate([p.origin for p in parts]), whole.origin)
