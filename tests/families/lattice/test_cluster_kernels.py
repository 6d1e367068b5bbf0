"""Cluster kernels: exact on small lattices, for spins and for colours.

Each statistical check has a fixed seed and a false-alarm rate of 1e-6.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from pm_evidence.families.lattice.lattice import DetouredPath, LatticePath
from pm_evidence.families.lattice.target import Ising, Potts, SwendsenWang, Wolff
from tests.families.lattice.lattices import (
    FALSE_ALARM,
    fresh_streams,
    invariance_p_value,
    reversal_p_value,
)

N, MANY = 20_000, 100_000  # for states, and for pairs of states
PATHS = {
    "spins": LatticePath(Ising((2, 4), 0.4)),
    "free spins": LatticePath(Ising((3, 3), 0.6, periodic=False)),
    "cube": LatticePath(Ising((2, 2, 2), 0.3, periodic=False)),
    "colours": LatticePath(Potts((2, 3), 3, 0.7)),
    "free colours": LatticePath(Potts((3, 2), 3, 1.1, periodic=False)),
}
every_path = pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
every_kernel = pytest.mark.parametrize("kind", (SwendsenWang, Wolff))


@every_path
@every_kernel
def test_invariance_and_reversal(kind, path):
    """A kernel that distorts its density, or has a wrong reversal, biases every evidence."""
    assert invariance_p_value(kind(), path, 0.7, N) > FALSE_ALARM
    assert reversal_p_value(kind(2), path, 0.7, MANY) > FALSE_ALARM


@every_kernel
@pytest.mark.parametrize(
    ("factor", "n"), [(1.2, N), pytest.param(1.05, 10 * MANY, marks=pytest.mark.slow)]
)
def test_wrong_bonds_are_caught(kind, factor, n):
    """The check has power: bonds of a coupling that is too strong fail."""

    @dataclass(frozen=True)
    class Hot(kind):
        def advance(self, path, state, beta, streams):
            return super().advance(path, state, factor * beta, streams)

    assert invariance_p_value(Hot(5), PATHS["colours"], 0.7, n) < FALSE_ALARM


@every_kernel
def test_a_chain_depends_on_its_own_stream_only(kind):
    """A chain takes the same way in any company; the start is left alone."""
    for path in (PATHS["spins"], PATHS["colours"]):
        state = path.draw(150, np.random.SeedSequence(1))
        before = state.to_draws().copy()
        index, chains = np.array([140, 3, 77]), fresh_streams(150)
        alone = chains[index]
        moved, info = kind().advance(path, state, 0.8, chains)
        few, _ = kind().advance(path, state.take(index), 0.8, alone)
        assert np.array_equal(moved.to_draws()[index], few.to_draws())
        assert np.array_equal(chains[index], alone)
        assert np.array_equal(state.to_draws(), before)
        energy = path.target.energy(moved.to_draws())
        np.testing.assert_allclose(moved.energy(path.target), energy, atol=1e-12)
        assert info.n_evaluations > 0


@every_kernel
def test_what_clusters_cannot_do(kind):
    for path, message in (
        (LatticePath(Ising(4, field=0.5)), "no field for cluster moves, got field=0.5"),
        (DetouredPath(Potts(4, 3), 0.5), "no field for cluster moves, got field=0.5"),
        (LatticePath(Ising(4, -1.0)), "must not be negative for cluster moves, got -1.0"),
    ):
        state = path.draw(5, np.random.SeedSequence(1))
        with pytest.raises(ValueError, match=message):
            kind().advance(path, state, 0.5, fresh_streams(5))
