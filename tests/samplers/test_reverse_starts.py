"""Posterior draws that reverse paths start from: those of each island by its evidence."""

import numpy as np
import pytest

from pm_evidence.core.exceptions import NumericalError
from pm_evidence.core.records import BlockRecord
from pm_evidence.samplers.sampler import ReverseStarts


def island(index, log_evidence, draws):
    draws = None if draws is None else np.array(draws, dtype=float)[:, None]
    return BlockRecord(index, np.array([-log_evidence]), None, draws=draws)


def test_islands_count_by_their_evidence():
    """An island with three times the evidence has three times the probability, draw by draw."""
    blocks = [island(4, np.log(1.0), [1, 2]), island(7, np.log(3.0), [3, 4]), island(8, 0.0, None)]
    starts = ReverseStarts.of_islands(blocks)
    assert starts.draws[:, 0].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert starts.group.tolist() == [4, 4, 7, 7]
    np.testing.assert_allclose(starts.probability, [0.125, 0.125, 0.375, 0.375])
    assert starts.kind == "islands" and not starts.relaxes


def test_no_island_reached_the_target():
    with pytest.raises(NumericalError, match="-inf at all 2 draws"):
        ReverseStarts.of_islands([island(0, -np.inf, None), island(1, -np.inf, None)])


def test_draws_that_are_taken_are_equally_probable():
    starts = ReverseStarts(np.arange(3.0)[:, None], np.array([5, 6, 7]), np.array([0.5, 0.5, 0.0]))
    taken = starts.take(np.array([1, 1, 0]))
    assert taken.draws[:, 0].tolist() == [1.0, 1.0, 0.0] and taken.group.tolist() == [6, 6, 5]
    assert taken.probability is None
    assert ReverseStarts(starts.draws).take(np.array([0])).group is None


def test_one_state_for_many_paths_is_moved_first():
    kinds = {"islands": False, "given": False, "exact": True, "relaxed": True}
    for kind, relaxes in kinds.items():
        assert ReverseStarts(np.zeros((1, 1)), kind=kind).relaxes is relaxes, kind
