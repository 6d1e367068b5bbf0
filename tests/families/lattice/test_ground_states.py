"""States of lowest energy, against all states of small lattices."""

import numpy as np
import pytest

from pm_evidence.families.lattice.target import Ising, Potts
from pm_evidence.testing.lattices import enumeration

UNIQUE = {
    "spins": Ising((2, 4), 0.5),
    "spins up": Ising((2, 4), 0.5, 0.3),
    "spins down": Ising((2, 4), 0.5, -0.3),
    "alternating spins": Ising((2, 4), -0.5),
    "free alternating spins": Ising((3, 3), -0.5, periodic=False),
    "like colours": Potts((2, 3), 3, 1.0),
}


@pytest.mark.parametrize("target", UNIQUE.values(), ids=UNIQUE)
def test_no_state_lies_lower(target):
    """With a field the other ordered state is drawn, too, but as rarely as its weight."""
    states = target.ground_states(200, np.random.default_rng(1))
    assert states.shape == (200, *target.sizes)
    lowest = enumeration(target).energy.min()
    energy = target.energy(states)
    np.testing.assert_allclose(energy.min(), lowest, rtol=1e-12)
    if not getattr(target, "field", 0.0):
        np.testing.assert_allclose(energy, lowest, rtol=1e-12)


@pytest.mark.parametrize("field", [0.0, 0.02, -0.1])
def test_ordered_states_are_drawn_by_their_weights(field):
    """20,000 draws, seed 2; the share of spins up misses by five errors at 6e-7."""
    target, n = Ising((4, 4), 1.0, field), 20_000
    states = target.ground_states(n, np.random.default_rng(2))
    both = np.stack([np.ones((4, 4), np.int8), -np.ones((4, 4), np.int8)])
    weight = np.exp(-target.energy(both))
    share = weight[0] / weight.sum()
    up = (states.reshape(n, -1) == 1).all(axis=1)
    assert (up | (states.reshape(n, -1) == -1).all(axis=1)).all()
    assert abs(up.mean() - share) < 5.0 * np.sqrt(share * (1.0 - share) / n)


def test_colours_that_repel_each_other_are_drawn_evenly():
    """Their ground states are too many to list: reverse paths relax from independent colours."""
    target = Potts((4, 4), 3, -1.0)
    states = target.ground_states(5000, np.random.default_rng(3))
    counts = np.bincount(states.ravel(), minlength=3)
    assert (np.abs(counts / states.size - 1 / 3) < 5.0 * np.sqrt(2 / 9 / states.size)).all()
    assert len(np.unique(states.reshape(5000, -1), axis=0)) > 4900
