"""Metropolis moves of Potts lattices: exact on small lattices, and each step reversible.

Each statistical check has a fixed seed and a false-alarm rate of 1e-6.
"""

from dataclasses import dataclass

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.families.lattice.lattice import DetouredPath, LatticePath
from pm_evidence.kernels import ColourMetropolis
from pm_evidence.testing.lattices import transfer_matrix
from tests.families.lattice.lattices import (
    FALSE_ALARM,
    Listed,
    _p_value,
    dependence,
    fresh_streams,
    invariance_p_value,
)

N = 100_000
PATHS = {
    "periodic": LatticePath(pe.lattices.Potts((2, 3), 3, 0.7)),
    "many colours": LatticePath(pe.lattices.Potts((2, 2), 7, 1.2)),
    "free": LatticePath(pe.lattices.Potts((3, 2), 3, 1.1, periodic=False)),
    "strong": LatticePath(pe.lattices.Potts((2, 2), 4, 9.0)),
    "repelling": LatticePath(pe.lattices.Potts((3, 2), 3, -0.8)),
    "cube": LatticePath(pe.lattices.Potts((2, 2, 2), 2, 0.3)),
}
every_path = pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)


@every_path
@pytest.mark.parametrize("kernel", [ColourMetropolis(2), ColourMetropolis(n_steps=5)])
def test_invariance(kernel, path):
    """Exact draws of a lattice whose states are listed stay exact."""
    assert invariance_p_value(kernel, path, 0.7, N) > FALSE_ALARM


@pytest.mark.parametrize("path", [p for name, p in PATHS.items() if name != "strong"])
def test_a_step_is_reversible(path):
    """Given the site, a pair of states is as frequent as the opposite pair, at every site."""
    listed = Listed(path)
    n_states = len(listed.table.energy)
    counts = np.zeros((n_states, n_states))
    for seed in range(3 * path.target.n_dim):
        state = listed.population(0.7, N // 5, seed)
        streams = fresh_streams(len(state), seed)
        moved, _ = ColourMetropolis(n_steps=1).advance(path, state, 0.7, streams)
        np.add.at(counts, (listed.index(state), listed.index(moved)), 1.0)
    first = np.tril_indices(n_states, -1)
    forward, back = counts[first], counts.T[first]
    assert (forward + back).sum() > N / 10
    assert _p_value(forward - back, np.zeros(len(forward)), forward + back) > FALSE_ALARM


def test_another_temperature_would_be_noticed():
    """The check has power: colours are accepted as if it were 5 % warmer."""

    @dataclass(frozen=True)
    class Warm(ColourMetropolis):
        def advance(self, path, state, beta, streams):
            return super().advance(path, state, 0.95 * beta, streams)

    assert invariance_p_value(Warm(5), PATHS["periodic"], 0.7, N) < FALSE_ALARM


def test_chains_are_independent_though_they_share_the_sites():
    path, repeats, n = LatticePath(pe.lattices.Potts(4, 5, 1.0)), 300, 128
    energies = np.empty((repeats, n))
    for k in range(repeats):
        state = path.draw(n, np.random.SeedSequence(k))
        state, _ = ColourMetropolis(3).advance(path, state, 0.3, fresh_streams(n, k))
        energies[k] = path.energy(state, 1.0)
    ratio, error = dependence(energies)
    assert abs(ratio - 1.0) < 5.0 * error


@pytest.mark.parametrize("n", (1, 65, 200))
def test_energies_and_acceptance_are_those_of_the_members(n):
    """Chains beyond the last member are not counted; at beta 0 every proposal is accepted."""
    for path in PATHS.values():
        state = path.draw(n, np.random.SeedSequence(3))
        before = state.to_draws().copy()
        moved, info = ColourMetropolis(3).advance(path, state, 0.5, fresh_streams(n))
        draws = moved.to_draws()
        assert np.isin(draws, path.target.site_values).all()
        np.testing.assert_allclose(moved.energy(path.target), path.target.energy(draws), atol=1e-12)
        assert 0.0 < info.acceptance <= 1.0 if n == 1 else 0.0 < info.acceptance < 1.0
        assert info.n_evaluations == n * 3 * path.target.n_dim
        assert ColourMetropolis().advance(path, state, 0.0, fresh_streams(n))[1].acceptance == 1.0
        assert np.array_equal(state.to_draws(), before)


def test_a_run_finds_log_z():
    """Both directions, against a transfer matrix; one false alarm in 16,000 seeds."""
    target = pe.lattices.Potts(4, q=10)
    dt = pe.sample_evidence(
        target,
        kernel=ColourMetropolis(n_steps=160),
        method=pe.methods.AIS(n_stages=100),
        draws=2000,
        target_mcse=None,
        random_seed=1,
        progressbar=False,
    )
    found = pe.log_evidence(dt, estimator="bar")
    assert found.status == "ok"
    assert abs(found.value - transfer_matrix(target) + target.log_n_states) < 4.0 * found.mcse


def test_what_is_wrong_is_named():
    target = pe.lattices.Potts(4, 3)
    state = LatticePath(target).draw(5, np.random.SeedSequence(1))
    with pytest.raises(ValueError, match=r"for Metropolis moves of colours, got field=0\.5"):
        ColourMetropolis().advance(DetouredPath(target, 0.5), state, 0.5, fresh_streams(5))
    with pytest.raises(ValueError, match=r"must move a pe\.lattices\.Potts, got a target of"):
        ColourMetropolis().check(pe.lattices.Ising(4))
    with pytest.raises(ValueError, match="n_steps must be"):
        ColourMetropolis(n_steps=0)
    with pytest.raises(ValueError, match="path must be 'geometric' for the kernel ColourMetropol"):
        pe.sample_evidence(target, kernel="metropolis", path="detour", progressbar=False)
