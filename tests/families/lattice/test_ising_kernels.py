"""Bit-sliced kernels: exact on small lattices, independent between chains, reversible.

Each statistical check has a fixed seed and a false-alarm rate of 1e-6.
"""

from dataclasses import dataclass
from itertools import pairwise, product

import numba as nb
import numpy as np
import pytest

from pm_evidence.core import random
from pm_evidence.core.codegen import vectors as lanes
from pm_evidence.core.codegen.vectors import Vector
from pm_evidence.families.lattice import ising as ising_draws
from pm_evidence.families.lattice import ising as ising_kernels
from pm_evidence.families.lattice.ising import SpinHeatBath, SpinMetropolis, _favour
from pm_evidence.families.lattice.lattice import DetouredPath, LatticePath
from pm_evidence.families.lattice.target import Ising
from tests.families.lattice.lattices import (
    FALSE_ALARM,
    Listed,
    dependence,
    fresh_streams,
    invariance_p_value,
    plain_energy,
    reversal_p_value,
)

N, MANY = 20_000, 100_000  # for states, and for pairs of states
PATHS = {
    "periodic": LatticePath(Ising((2, 2), 0.5)),
    "field": LatticePath(Ising((2, 4), 0.3, 0.4)),
    "free": LatticePath(Ising((3, 3), 0.6, -0.3, periodic=False)),
    "antiferromagnet": LatticePath(Ising((2, 3), -0.5, 0.2, periodic=False)),
    "cube": LatticePath(Ising((2, 2, 2), 0.2, 0.1)),
    "free cube": LatticePath(Ising((2, 2, 2), 0.4, periodic=False)),
    "detour": DetouredPath(Ising((2, 4), 0.3), 0.5),
    "free detour": DetouredPath(Ising((3, 3), 0.6, periodic=False), 0.5),
}
KERNELS = {
    f"{kind.__name__} {order}": kind(n_sweeps, order)
    for kind in (SpinHeatBath, SpinMetropolis)
    for n_sweeps, order in ((1, "checkerboard"), (2, "sequential"), (1, "random"))
}
every_path = pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def with_slow(pairs):
    """Return parameters; Metropolis in three dimensions takes seconds to compile."""
    return [
        pytest.param(
            KERNELS[kernel],
            PATHS[path],
            id=f"{kernel}-{path}",
            marks=pytest.mark.slow if "Metropolis" in kernel and "cube" in path else (),
        )
        for kernel, path in pairs
    ]


@pytest.mark.parametrize(("kernel", "path"), with_slow(product(KERNELS, PATHS)))
def test_invariance(kernel, path):
    """A kernel that distorts its density biases every evidence."""
    assert invariance_p_value(kernel, path, 0.7, N) > FALSE_ALARM


IN_ORDER = [name for name in KERNELS if "random" not in name]


@pytest.mark.parametrize(
    ("kernel", "path"), with_slow(product(IN_ORDER, ("field", "free cube", "detour")))
)
def test_reversal(kernel, path):
    """Reverse annealing with a wrong reversal is biased."""
    assert reversal_p_value(kernel, path, 0.7, MANY) > FALSE_ALARM


@pytest.mark.parametrize(
    "kind", [SpinHeatBath, pytest.param(SpinMetropolis, marks=pytest.mark.slow)]
)
def test_reversal_where_chains_of_a_group_share_the_sites(kind):
    path = LatticePath(Ising((2, 2), 0.3, 0.4))
    assert reversal_p_value(kind(1, "random"), path, 0.7, 2000 * 512, every=512) > FALSE_ALARM


def test_reversal_would_be_missed():
    """The check has power: in a fixed order a kernel is not its own reversal."""

    @dataclass(frozen=True)
    class Same(SpinHeatBath):
        def reversed(self):
            return self

    assert reversal_p_value(Same(order="sequential"), PATHS["field"], 0.7, MANY) < FALSE_ALARM


@pytest.mark.parametrize(
    ("factor", "n_sweeps", "n"),
    [(1.1, 1, N), pytest.param(1.03, 5, 4 * MANY, marks=pytest.mark.slow)],
)
def test_wrong_probabilities_are_caught(factor, n_sweeps, n):
    """The check has power: the heat bath of a coupling that is too strong fails."""

    @dataclass(frozen=True)
    class Hot(SpinHeatBath):
        def advance(self, path, state, beta, streams):
            return super().advance(path, state, factor * beta, streams)

    path = LatticePath(Ising((2, 4), 0.5))
    assert invariance_p_value(Hot(n_sweeps), path, 0.7, n) < FALSE_ALARM


@pytest.mark.parametrize("n", (1, 65, 512, 1000))
def test_odd_numbers_of_chains(n):
    """Chains beyond the last member are dropped, and counts are those of the spins."""
    for path in (PATHS["free"], PATHS["detour"], PATHS["cube"]):
        target, chains = path.target, fresh_streams(n)
        state = path.draw(n, np.random.SeedSequence(3))
        before = state.to_draws().copy()
        in_plane = (SpinMetropolis(2, "random"),) if len(target.sizes) == 2 else ()
        for kernel in (SpinHeatBath(2), *in_plane):
            moved, info = kernel.advance(path, state, 0.5, chains)
            assert len(moved) == n
            assert 0.0 < info.acceptance <= 1.0
            draws = moved.to_draws()
            assert draws.shape == (n, *target.sizes)
            assert np.isin(draws, (-1, 1)).all()
            np.testing.assert_allclose(
                moved.energy(target), plain_energy(target, draws), atol=1e-12
            )
            assert np.array_equal(moved.counted(target), (draws > 0).reshape(n, -1).sum(axis=1))
        assert np.array_equal(state.to_draws(), before)  # the start is left alone


def test_counts_of_large_lattices():
    """Counts carry into the high planes on lattices of many sites."""
    for sizes in ((64, 50), (10, 11, 13)):
        target = Ising(sizes, periodic=False)
        state = LatticePath(target).draw(70, np.random.SeedSequence(1))
        draws = state.to_draws()
        np.testing.assert_allclose(state.energy(target), plain_energy(target, draws))
        assert np.array_equal(state.counted(target), (draws > 0).reshape(70, -1).sum(axis=1))


REPEATS, CHAINS = 300, 512


def log_weights_of_repeats():
    """Return log weights of short annealing in independent repeats, shape (repeats, chains)."""
    path, kernel, betas = LatticePath(Ising(4, 0.4)), SpinHeatBath(), np.linspace(0.0, 1.0, 5)
    found = np.zeros((REPEATS, CHAINS))
    for k in range(REPEATS):
        state, chains = path.draw(CHAINS, np.random.SeedSequence(k)), fresh_streams(CHAINS, k)
        for start, stop in pairwise(betas):
            found[k] += path.log_ratio(state, start, stop)
            state, _ = kernel.advance(path, state, stop, chains)
    return found


def test_chains_are_independent():
    """Chains that share random bits make the error of the mean wrong."""
    ratio, error = dependence(log_weights_of_repeats())
    assert abs(ratio - 1.0) < 5.0 * error


def test_shared_words_are_caught(monkeypatch):
    """One uniform for all chains of a word, as if it were enough, makes the mean far noisier."""

    def shared(generator):
        word, after = lanes.next_lanes(generator)
        sign = word.builder.ashr(word.value, word.like(63).value)
        return Vector(word.builder, sign), after

    monkeypatch.setattr(ising_draws, "next_lanes", shared)
    for name in ("_sweep", "_pass"):  # the latter calls the former
        anew = nb.njit(nogil=True, error_model="numpy")(getattr(ising_kernels, name).py_func)
        monkeypatch.setattr(ising_kernels, name, anew)
    ratio, error = dependence(log_weights_of_repeats())
    assert ratio > 1.0 + 20.0 * error


def test_certain_flips_and_strong_couplings():
    """Probabilities of exactly 0 and 1 are no fractions."""
    path = LatticePath(Ising((2, 2), 500.0))
    listed = Listed(path)
    state = listed.population(1.0, 2000, 1)
    for kernel in (SpinHeatBath(3), SpinMetropolis(3)):
        moved, _ = kernel.advance(path, state, 1.0, fresh_streams(2000))
        assert np.array_equal(moved.to_draws(), state.to_draws())
    flipped, info = SpinMetropolis().advance(path, state, 0.0, fresh_streams(2000))
    assert info.acceptance == 1.0
    assert np.array_equal(flipped.to_draws(), -state.to_draws())


@pytest.mark.parametrize("field", [1e-3, 0.05, 0.5])
def test_favoured_spins_follow_the_state(field):
    """Where all chains of a word are certain no numbers are drawn; where one is not, all are."""
    n_sites, n = 1024, 512
    up = np.random.default_rng(1).integers(0, n_sites + 1, n)
    up[:64] = 900  # certain in the two stronger fields
    up[64:128] = n_sites // 2 + np.arange(-32, 32) // 8  # in doubt in all of them
    row, total, draws = np.empty(8, np.uint64), np.zeros(n), 400
    own = random.streams(np.random.SeedSequence(2), n)
    for _ in range(draws):
        _favour(row, field, n_sites, up, own)
        total += np.unpackbits(row.view(np.uint8), bitorder="little")
    probability = 1.0 / (1.0 + np.exp(-field * (2 * up - n_sites)))
    sd = np.sqrt(draws * probability * (1.0 - probability))
    assert np.all(np.abs(total - draws * probability) <= 5.0 * sd + 1e-6)
    doubtful = sd > 1.0
    assert doubtful.sum() >= 64
    z = (total - draws * probability)[doubtful] / sd[doubtful]
    assert np.abs(np.mean(z**2) - 1.0) < 5.0 * np.sqrt(2.0 / doubtful.sum())
