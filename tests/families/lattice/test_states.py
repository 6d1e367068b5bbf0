"""Populations of lattices, packed side by side: what goes in comes out, whoever is taken or joined.

Ising chains lie in groups of 512, a bit each, and Potts chains in groups of 64, a byte each; the
numbers of members here lie on both sides of these.
"""

import numpy as np
import pytest

from pm_evidence.families.lattice.target import Ising, Potts
from tests.families.lattice.lattices import plain_energy

TARGETS = {
    "periodic spins": Ising((4, 6), 0.7, 0.2),
    "free spins": Ising((3, 5), -0.4, periodic=False),
    "cubes of spins": Ising((2, 3, 4), 0.3),
    "periodic colours": Potts((4, 6), 3, 0.7),
    "free colours": Potts((3, 5), 10, -0.4, periodic=False),
    "cubes of colours": Potts((2, 3, 4), 250, 0.3),
}
every_target = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


def population(draws, target):
    return target.states.of(draws.reshape(len(draws), -1), target)


def some_draws(target, n, seed=1):
    rng = np.random.default_rng(seed)
    if isinstance(target, Ising):
        return rng.choice(np.array([-1, 1], np.int8), (n, *target.sizes))
    return rng.integers(target.q, size=(n, *target.sizes), dtype=np.uint8)


def check(state, draws, target):
    """The state holds these draws, and knows their energies and counts."""
    assert len(state) == len(draws)
    np.testing.assert_array_equal(state.to_draws(), draws)
    np.testing.assert_allclose(
        state.energy(target), plain_energy(target, draws), rtol=1e-12, atol=1e-12
    )
    values = (-1, 1) if isinstance(target, Ising) else range(target.q)
    rows = draws.reshape(len(draws), -1)
    expected = [(rows == value).sum(axis=1) for value in values]
    found = (
        state.counted(target)
        if isinstance(target, Potts)
        else [len(rows.T) - state.counted(target), state.counted(target)]
    )
    np.testing.assert_array_equal(found, expected)


@every_target
def test_draws_go_in_and_come_out(target):
    for n in (1, 63, 64, 65, 511, 512, 513, 1100):
        draws = some_draws(target, n)
        check(population(draws, target), draws, target)


@every_target
def test_members_taken_and_joined_are_those_of_the_draws(target):
    """Resampling takes members with repeats, and reverse paths are joined from islands."""
    rng = np.random.default_rng(2)
    for n in (1, 64, 513):
        draws = some_draws(target, n, seed=n)
        state = population(draws, target)
        index = rng.integers(n, size=700)
        check(state.take(index), draws[index], target)
        parts = [draws[:1], draws, draws[index]]
        joined = population(parts[0], target).join([population(part, target) for part in parts[1:]])
        check(joined, np.concatenate(parts), target)
        check(state, draws, target)  # which both leave as it was


@every_target
def test_reference_draws_are_uniform(target):
    """Each site takes each value alike: chi-square of 2,000 draws, seed 3, false alarms 1e-6."""
    from scipy.stats import chi2

    state = target.states.draw(target, 2000, np.random.SeedSequence(3))
    check(state, state.to_draws(), target)
    rows = state.to_draws().reshape(2000, -1)
    values = (-1, 1) if isinstance(target, Ising) else range(target.q)
    counts = np.stack([(rows == value).sum(axis=0) for value in values])
    expected = 2000 / len(values)
    statistic = np.sum((counts - expected) ** 2) / expected
    dof = (len(values) - 1) * rows.shape[1]
    assert chi2.sf(statistic, dof) > 1e-6 and chi2.cdf(statistic, dof) > 1e-6
