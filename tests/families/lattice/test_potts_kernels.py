"""The heat bath of Potts lattices: exact on small lattices, reversible, one stream a chain.

Each statistical check has a fixed seed and a false-alarm rate of 1e-6.
"""

from dataclasses import dataclass

import numba as nb
import numpy as np
import pytest

from pm_evidence.families.lattice import potts as colour_draws
from pm_evidence.families.lattice.lattice import DetouredPath, LatticePath
from pm_evidence.families.lattice.potts import ColourHeatBath
from pm_evidence.families.lattice.target import Ising, Potts
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
def test_invariance_and_reversal(path):
    """A kernel that distorts its density, or has a wrong reversal, biases every evidence."""
    assert invariance_p_value(usual(path), path, 0.7, MANY) > FALSE_ALARM
    assert reversal_p_value(usual(path), path, 0.7, MANY) > FALSE_ALARM


def test_reversal_would_be_missed():
    """The check has power: a sweep in one order is not its own reversal."""

    @dataclass(frozen=True)
    class Same(ColourHeatBath):
        def reversed(self):
            return self

    assert reversal_p_value(Same(order="sequential"), PATHS["periodic"], 0.7, MANY) < FALSE_ALARM


@pytest.mark.parametrize(
    ("share", "n"), [(0.8, N), pytest.param(0.97, 10 * MANY, marks=pytest.mark.slow)]
)
def test_the_pull_of_the_detour_would_be_missed(share, n):
    """The check has power: with too weak a favour a detoured density is not invariant."""

    class Straight(DetouredPath):
        def field(self, beta):
            return share * super().field(beta)

    @dataclass(frozen=True)
    class Weak(ColourHeatBath):
        def advance(self, path, state, beta, streams):
            path = Straight(path.target, path.height)
            return super().advance(path, state, beta, streams)

    path = PATHS["detour"]
    assert invariance_p_value(Weak(5, "sequential"), path, 0.5, n) < FALSE_ALARM


@nb.njit
def _pieces(near, q, coupling, field, favoured):
    """Return the ends of the pieces, over the total, and their colours; -1 where all are alike."""
    n_like, ends, colours = np.zeros(256), [float(q)], [-1]
    for colour in near:
        n_like[colour] += 1.0
    for colour in near:
        if colour != 255:
            gain = np.exp(n_like[colour] * coupling) - 1.0
            ends.append(ends[-1] + gain / n_like[colour])
            colours.append(colour)
    if field > 0.0:
        weight = np.exp(n_like[favoured] * coupling)
        ends.append(ends[-1] + weight * (np.exp(field) - 1.0))
        colours.append(favoured)
    return np.array(ends) / ends[-1], np.array(colours)


@nb.njit
def _colour_at(where, which, q, ends, colours):
    piece = min(np.searchsorted(ends, where, side="right"), len(colours) - 1)
    return int(which * q) if colours[piece] < 0 else colours[piece]


@nb.njit
def _crowd(where, which, near, q, coupling, field, favoured, rng):
    """Move numbers to the borders between colours."""
    for k in range(64):
        ends, _ = _pieces(near[:, k], q, coupling, field, favoured[k])
        where[k] = int(ends[rng.integers(0, len(ends))] * 2.0**15) + rng.integers(-9, 10)
        where[k] = min(max(where[k], 0), 2**15 - 1)
        which[k] = rng.integers(1, q) * 2**16 // q + rng.integers(-2, 3)


@nb.njit
def _compare(where, which, near, x, doubtful, q, coupling, field, favoured):
    """Return how many colours are wrong without doubt and with it, and how many have neither."""
    wrong, right, needless = 0, 0, 0
    for k in range(64):
        ends, colours = _pieces(near[:, k], q, coupling, field, favoured[k])
        doubt = (doubtful >> np.uint64(k)) & np.uint64(1)
        far = np.abs(ends - where[k] * 2.0**-15).min() > 7.0 * 2.0**-15
        far &= int(which[k] * q * 2.0**-16) == int((which[k] + 1) * q * 2.0**-16)
        differs = False
        for more in (0.0, 0.999999):
            for yet_more in (0.0, 0.999999):
                here, this = (where[k] + more) * 2.0**-15, (which[k] + yet_more) * 2.0**-16
                differs |= _colour_at(here, this, q, ends, colours) != x[k]
        wrong += differs and not doubt
        right += differs and doubt
        needless += doubt and far
    return wrong, right, needless


@nb.njit
def _draw(sites, near, favoured, random, table, q, in_field):
    if in_field:
        return colour_draws.draw_in_field(sites, 4, near, favoured, random, table, q)
    return colour_draws.draw(sites, 4, near, favoured, random, table, q)


@pytest.mark.parametrize("in_field", (False, True))
@pytest.mark.parametrize("q", (2, 10, 250))
@pytest.mark.parametrize("coupling", (0.0, 1.0, 9.9, 140.0))
def test_doubt_is_where_it_must_be(coupling, q, in_field):
    """Without doubt, the colour is that of all numbers that begin with the same bits."""
    rng, field = np.random.default_rng(1), 0.3 * in_field
    table, _ = colour_draws.tabulate(q, coupling, field)
    sites, place = np.full((6, 64), 255, np.uint8), np.arange(64) % 2 * 32 + np.arange(64) // 2
    total = np.zeros(3, int)
    for k in range(600):
        degree = 2 + k % 3
        sites[degree:] = 255
        sites[:degree] = rng.choice([0, 0, 0, 1, 1, 2, 3, 249], (degree, 64)) % q
        favoured = rng.integers(min(q, 3), size=64).astype(np.uint8)
        where, which = rng.integers(2**15, size=64), rng.integers(2**16, size=64)
        if k % 4:
            _crowd(where, which, sites[:4], q, coupling, field, favoured, rng)
        random = np.empty(64, np.uint32)
        random[place] = where << 17 | which
        doubtful = _draw(sites, (0, 1, 2, 3), favoured, random, table[degree], q, in_field)
        total += _compare(
            where, which, sites[:4], sites[4], np.uint64(doubtful), q, coupling, field, favoured
        )
    wrong, right, needless = total
    assert wrong == 0
    assert right > 0 or (q, coupling, in_field) == (2, 0.0, False)  # two equal halves
    assert needless == 0


def test_exact_draws_use_the_same_pieces():
    rng, q, coupling = np.random.default_rng(2), 10, 1.3
    for field in (0.0, 0.4):
        _, shares = colour_draws.tabulate(q, coupling, field)
        for _ in range(5000):
            near = tuple(rng.choice([0, 0, 1, 2, 255], size=4).astype(np.uint8))
            (where, which), favoured = rng.random(2), np.uint8(rng.integers(3))
            found = colour_draws._draw_exactly(
                where, which, near, favoured, q, shares, np.expm1(field)
            )
            pieces = _pieces(np.array(near), q, coupling, field, favoured)
            assert found == _colour_at(where, which, q, *pieces)


def test_doubt_is_settled_by_further_bits():
    """All chains given over to be settled follow the law of their numbers' first bits."""
    n, q, rng = 2000, 3, np.random.default_rng(3)
    _, shares = colour_draws.tabulate(q, 0.5, 0.0)
    sites, favoured = rng.integers(q, size=(6, 64)).astype(np.uint8), np.zeros(64, np.uint8)
    where = 12_345
    ends = np.array([_pieces(sites[:4, k], q, 0.5, 0.0, 0)[0][0] for k in range(64)])
    assert (np.abs(ends - where * 2.0**-15) > 2.0**-15).all()  # where is not in doubt
    which = 2**16 // q  # the border between colours 0 and 1 lies a third of a unit behind it
    random = np.full(64, where << 17 | which, np.uint32)
    own, ones = fresh_streams(64), np.zeros(64)
    for _ in range(n):
        colour_draws.settle(
            np.uint64(2**64 - 1), sites, 4, (0, 1, 2, 3), favoured, random, q, shares, 0.0, own
        )
        ones += sites[4] == 1
    inside = where * 2.0**-15 < ends
    assert inside.any()
    share, error = ones[inside].sum() / (n * inside.sum()), np.sqrt(2 / 9 / (n * inside.sum()))
    assert abs(share - 2 / 3) < 5.0 * error


@pytest.mark.parametrize("n", (1, 65, 200))
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
        np.testing.assert_allclose(moved.energy(target), plain_energy(target, draws), atol=1e-12)
        flat = draws.reshape(n, -1)
        counts = np.stack([(flat == c).sum(axis=1) for c in range(target.q)])
        assert np.array_equal(moved.counted(target), counts)
        assert np.array_equal(state.to_draws(), before)  # the start is left alone


def test_counts_of_large_lattices():
    """Counts of more than 255 sites do not run over."""
    target = Potts((40, 31), 3, periodic=False)
    path = LatticePath(target)
    state = path.at(np.zeros((70, 40, 31), np.uint8))
    assert (state.bonds == target.n_bonds).all()
    assert (state.counted(target) == [[1240], [0], [0]]).all()


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
