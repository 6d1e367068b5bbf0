"""The heat bath of Potts lattices: exact on small lattices, reversible, one stream a chain.

Each statistical check has a fixed seed and a false-alarm rate of 1e-6.
"""

from dataclasses import dataclass

import numba as nb
import numpy as np
import pytest

from pm_evidence.kernels import heat_bath
from pm_evidence.kernels.heat_bath import ColourHeatBath
from pm_evidence.paths.lattice import DetouredPath, LatticePath
from pm_evidence.targets.lattice import Ising, Potts
from tests.kernels.lattices import (
    FALSE_ALARM,
    Listed,
    dependence,
    fresh_streams,
    invariance_p_value,
    reversal_p_value,
)

N = 100_000
PATHS = {
    "periodic": LatticePath(Potts((2, 3), 3, 0.7)),
    "many colours": LatticePath(Potts((2, 2), 7, 1.2)),
    "free": LatticePath(Potts((3, 2), 3, 1.1, periodic=False)),
    "strong": LatticePath(Potts((2, 2), 4, 9.0)),
    "stronger": LatticePath(Potts((2, 2), 4, 30.0)),
    "repelling": LatticePath(Potts((3, 2), 3, -0.8)),
    "cube": LatticePath(Potts((2, 2, 2), 2, 0.3)),
    "detour": DetouredPath(Potts((2, 3), 3, 0.7), 0.6),
    "free detour": DetouredPath(Potts((3, 2), 3, 0.7, periodic=False), 0.6),
    "repelling detour": DetouredPath(Potts((2, 3), 3, -0.4), 0.6),
}
every_path = pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)


def usual(path, n_sweeps=1):
    return ColourHeatBath(n_sweeps, order="sequential")


@every_path
def test_invariance(path):
    """A kernel that distorts its density biases every evidence."""
    for beta in (0.4, 1.0):
        assert invariance_p_value(usual(path), path, beta, N) > FALSE_ALARM
    assert invariance_p_value(usual(path, 3), path, 0.7, N) > FALSE_ALARM


def test_many_sweeps_of_many_chains():
    """The same with a hundred times as many draws, against errors of single precision."""
    path = PATHS["many colours"]
    assert invariance_p_value(usual(path, 2), path, 0.8, 20 * N) > FALSE_ALARM


@every_path
def test_reversal(path):
    """Reverse annealing with a wrong reversal is biased."""
    assert reversal_p_value(usual(path), path, 0.7, N) > FALSE_ALARM


def test_reversal_would_be_missed():
    """The check has power: a sweep in one order is not its own reversal."""

    @dataclass(frozen=True)
    class Same(ColourHeatBath):
        def reversed(self):
            return self

    assert reversal_p_value(Same(order="sequential"), PATHS["periodic"], 0.7, N) < FALSE_ALARM


def test_the_pull_of_the_detour_would_be_missed():
    """The check has power: without the favoured colour a detoured density is not invariant."""

    class Straight(DetouredPath):
        def field(self, beta):
            return 0.97 * super().field(beta)

    @dataclass(frozen=True)
    class Weak(ColourHeatBath):
        def advance(self, path, state, beta, streams):
            path = Straight(path.target, path.height)
            return super().advance(path, state, beta, streams)

    path = PATHS["detour"]
    assert invariance_p_value(Weak(5, "sequential"), path, 0.5, 10 * N) < FALSE_ALARM


@nb.njit
def _borders(near, q, coupling, field, favoured):
    """Return the borders of the pieces and their colours, written another way."""
    borders, colours = [float(c) for c in range(q + 1)], list(range(q))
    weight = np.ones(q)
    for colour in near:
        if colour != 255:
            more = weight[colour] * (np.exp(coupling) - 1.0)
            weight[colour] += more
            borders.append(borders[-1] + more)
            colours.append(colour)
    if field > 0.0:
        borders.append(borders[-1] + weight[favoured] * (np.exp(field) - 1.0))
        colours.append(favoured)
    return np.array(borders) / borders[-1], np.array(colours)


@nb.njit
def _colour_at(u, borders, colours):
    return colours[min(np.searchsorted(borders, u, side="right") - 1, len(colours) - 1)]


@nb.njit
def _crowd(random, near, q, coupling, field, favoured, rng):
    """Move numbers to the borders between colours."""
    for k in range(64):
        borders, _ = _borders(near[:, k], q, coupling, field, favoured[k])
        u = borders[rng.integers(0, len(borders))] * 2.0**24 + rng.integers(-20, 21)
        random[k] = np.uint32(min(max(u, 0.0), 2.0**24 - 1.0)) << np.uint32(8)


@nb.njit
def _compare(random, near, x, doubt, q, coupling, field, favoured):
    """Return how many colours are wrong without doubt, and the farthest border in doubt."""
    wrong, farthest = 0, 0.0
    for k in range(64):
        u = (random[k] >> 8) * 2.0**-24
        borders, colours = _borders(near[:, k], q, coupling, field, favoured[k])
        for v in (u, u + 0.999999 * 2.0**-24):
            if not doubt[k] and _colour_at(v, borders, colours) != x[k]:
                wrong += 1
        if doubt[k]:
            farthest = max(farthest, np.abs(borders - u).min())
    return wrong, farthest


DRAWINGS = {
    (False, False): heat_bath._draw,
    (False, True): heat_bath._draw_at_edge,
    (True, False): heat_bath._draw_in_field,
    (True, True): heat_bath._draw_in_field_at_edge,
}


@pytest.mark.parametrize(("in_field", "at_edge"), DRAWINGS)
@pytest.mark.parametrize("coupling", (0.0, 0.1, 1.0, 2.0, 4.0, 9.9))
def test_single_precision_is_doubted_where_it_must_be(coupling, in_field, at_edge):
    """Without doubt, the colour is that of every number that shares the 24 digits."""
    rng, q, field = np.random.default_rng(1), 10, 0.3 * in_field
    d = np.diff(np.exp(coupling * np.arange(5)))
    weights = tuple(np.float32(w) for w in (q, *d, np.expm1(field)))
    words, result = np.empty(5 * 64, np.uint32), np.empty(3 * 64, np.uint8)
    x, doubt, favoured = result.reshape(3, 64)
    random, doubts = words[256:], 0
    for k in range(1000):
        near = rng.choice([0, 0, 0, 1, 1, 2, 3, 255 if at_edge else 4], (4, 64)).astype(np.uint8)
        favoured[:] = rng.integers(3, size=64)
        random[:] = rng.integers(2**32, size=64, dtype=np.uint32)
        if k % 2:
            _crowd(random, near, q, coupling, field, favoured, rng)
        DRAWINGS[in_field, at_edge](*near, words, weights, result)
        wrong, farthest = _compare(random, near, x, doubt, q, coupling, field, favoured)
        assert wrong == 0
        assert farthest < 50.0 * 2.0**-24  # and little else is doubted
        doubts += doubt.sum()
    assert doubts > 0


def test_exact_draws_use_the_same_pieces():
    rng, q, coupling = np.random.default_rng(2), 10, 1.3
    exact = np.diff(np.exp(coupling * np.arange(5)))
    for field in (0.0, 0.4):
        for _ in range(5000):
            near = tuple(rng.choice([0, 0, 1, 2, 255], size=4).astype(np.uint8))
            u, favoured = rng.random(), np.uint8(rng.integers(3))
            found = heat_bath._draw_exactly(u, near, favoured, q, exact, np.expm1(field))
            borders, colours = _borders(np.array(near), q, coupling, field, favoured)
            assert found == _colour_at(u, borders, colours)


@pytest.mark.parametrize("n", (1, 63, 64, 65, 200))
def test_odd_numbers_of_chains(n):
    """Chains beyond the last member are dropped, and counts are those of the colours."""
    for path in (PATHS["free"], PATHS["detour"], PATHS["cube"]):
        target, chains = path.target, fresh_streams(n)
        state = path.draw(n, np.random.SeedSequence(3))
        before = state.to_draws().copy()
        moved, info = usual(path, 2).advance(path, state, 0.5, chains)
        draws = moved.to_draws()
        assert draws.shape == (n, *target.sizes)
        assert draws.max() < target.q
        assert info.acceptance == 1.0
        np.testing.assert_allclose(moved.energy(target), target.energy(draws), atol=1e-12)
        flat = draws.reshape(n, -1)
        counts = np.stack([(flat == c).sum(axis=1) for c in range(target.q)])
        assert np.array_equal(moved.counts(target), counts)
        assert np.array_equal(state.to_draws(), before)  # the start is left alone


def test_counts_of_large_lattices():
    """Counts of more than 255 sites do not run over."""
    target = Potts((40, 31), 3, periodic=False)
    path = LatticePath(target)
    state = path.at(np.zeros((70, 40, 31), np.uint8))
    assert (state.like == target.n_bonds).all()
    assert (state.counts(target) == [[1240], [0], [0]]).all()


def test_take_and_join():
    """Resampling copies whole chains, in any order and with repeats."""
    path = PATHS["free"]
    state = path.draw(100, np.random.SeedSequence(1))
    index = np.random.default_rng(2).integers(100, size=150)
    both = state.take(index).join([state])
    expected = np.concatenate([state.to_draws()[index], state.to_draws()])
    assert np.array_equal(both.to_draws(), expected)
    assert np.array_equal(path.at(expected).like, both.like)


def test_a_chain_depends_on_its_own_stream_only():
    """A chain takes the same way in any company."""
    for path in (PATHS["periodic"], PATHS["detour"], PATHS["cube"]):
        state = path.draw(150, np.random.SeedSequence(1))
        index, chains = np.array([140, 3, 77]), fresh_streams(150)
        alone = chains[index]
        moved, _ = usual(path).advance(path, state, 0.8, chains)
        few, _ = usual(path).advance(path, state.take(index), 0.8, alone)
        assert np.array_equal(moved.to_draws()[index], few.to_draws())
        assert np.array_equal(chains[index], alone)


def test_chains_are_independent():
    """Chains that share random numbers make the error of the mean wrong."""
    path, repeats, n = LatticePath(Potts(4, 5, 1.0)), 300, 128

    def energies(share):
        found = np.empty((repeats, n))
        for k in range(repeats):
            state, chains = path.draw(n, np.random.SeedSequence(k)), fresh_streams(n, k)
            if share:
                chains[:] = chains[:1]
            state, _ = ColourHeatBath(3).advance(path, state, 1.0, chains)
            found[k] = path.energy(state, 1.0)
        return found

    ratio, error = dependence(energies(share=False))
    assert abs(ratio - 1.0) < 5.0 * error
    ratio, error = dependence(energies(share=True))
    assert ratio > 1.0 + 20.0 * error


def test_what_is_wrong_is_named():
    path = LatticePath(Potts((3, 4), 3))
    state = path.draw(5, np.random.SeedSequence(1))
    with pytest.raises(ValueError, match=r"sizes \(3, 4\).*order='sequential'"):
        ColourHeatBath().advance(path, state, 0.5, fresh_streams(5))
    with pytest.raises(ValueError, match="order must be one of"):
        ColourHeatBath(order="random")
    with pytest.raises(ValueError, match="height must be a finite number above 0, got -1"):
        DetouredPath(Potts(4), -1.0)
    with pytest.raises(ValueError, match=r"no field of its own.*got field=0.1"):
        DetouredPath(Ising(4, field=0.1))


def test_energy_is_the_slope_of_the_path():
    """Schedules and cumulants rest on the derivative; weights on the path being straight at 0."""
    for path in (PATHS["detour"], DetouredPath(Ising((2, 3), 0.5), 0.3)):
        state = path.draw(50, np.random.SeedSequence(4))
        for beta in (0.1, 0.5, 0.9):
            slope = path.log_ratio(state, beta - 1e-5, beta + 1e-5) / 2e-5
            np.testing.assert_allclose(-slope, path.energy(state, beta), rtol=1e-6, atol=1e-6)
        whole = path.log_ratio(state, 0.0, 1.0)
        np.testing.assert_allclose(whole, -path.target.energy(state.to_draws()))
        probability = Listed(path).probability(0.4)
        assert probability.sum() == pytest.approx(1.0)
