"""Populations of packed units."""

import numpy as np
import pytest

from pm_evidence.families.rbm.path import BaseRatePath
from pm_evidence.families.rbm.state import LogDensities, Units, pack, unpack
from tests.families.rbm.machines import bits, sine


@pytest.mark.parametrize("n_units", [1, 63, 64, 65, 200])
def test_packed_and_unpacked(n_units):
    rows = bits(7, n_units)
    words = pack(rows)
    assert words.dtype == np.uint64 and words.shape == (7, -(-n_units // 64))
    np.testing.assert_array_equal(unpack(words, n_units), rows)
    assert bool(words[3, 0] & np.uint64(1)) == bool(rows[3, 0])


def test_members_taken_and_joined():
    """Their log densities go with them."""
    path = BaseRatePath(sine(base="uniform"))
    draws = bits(9, 28)
    state = path.at(draws)
    assert isinstance(state, Units) and isinstance(state.log_density, LogDensities)
    some = state.take(np.array([3, 3, 8]))
    np.testing.assert_array_equal(some.to_draws(), draws[[3, 3, 8]])
    both = some.join([state])
    np.testing.assert_array_equal(both.to_draws(), np.concatenate([draws[[3, 3, 8]], draws]))
    np.testing.assert_array_equal(both.log_density.target[3:], state.log_density.target)
    np.testing.assert_array_equal(both.log_density.base[:3], state.log_density.base[[3, 3, 8]])
