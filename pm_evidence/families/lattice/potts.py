"""Potts lattices, one byte per site, 64 chains side by side: populations, draws and moves."""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, expm1
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count
from pm_evidence.core.codegen.numba import emitted, nb, njit, nothing, types
from pm_evidence.core.codegen.vectors import INDEX, Vector, fast_exp, fast_log, next_words
from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import next_word, uniform
from pm_evidence.families.lattice.lattice import (
    BondCounts,
    Lattice,
    LatticeKernel,
    States,
    VisitKernel,
    check_no_field,
)

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]


SIDE = 64  # chains side by side
NOBODY = 255  # the colour of what lies beyond a free edge
_HALF = SIDE // 2  # longer vectors are compared more slowly
_LARGEST_BYTE = 255


@dataclass(frozen=True, slots=True)
class ColourCounts(BondCounts):
    """The counts that the energies of Potts lattices need."""

    def energy(self, target: Lattice) -> Floats:
        """Return the energies in nats at beta 1, shape ``(..., n)``."""
        energy: Floats = self.bonds.astype(float)
        energy *= -target.coupling
        return energy

    def favour(
        self, target: Lattice, fields: Floats, slope: Floats, energy: Floats, ratio: Floats
    ) -> None:
        """Add what fields in favour of every colour contribute; see ``path.DetouredPath``."""
        counts = np.ascontiguousarray(self.counted(target))
        _add_fields(counts.reshape(len(slope), target.n_colours, -1), fields, slope, energy, ratio)


@njit
def count_like(sites, bonds, out):
    """Count the bonds of the chains of a group between like colours."""
    total, few = np.zeros(SIDE, np.int32), np.zeros(SIDE, np.uint8)
    for start in range(0, len(bonds), _LARGEST_BYTE):
        for k in range(start, min(start + _LARGEST_BYTE, len(bonds))):
            one, other = sites[bonds[k, 0]], sites[bonds[k, 1]]
            for c in range(SIDE):
                few[c] += one[c] == other[c]
        for c in range(SIDE):
            total[c] += few[c]
            few[c] = 0
    out[:] = total[: out.size]


@njit
def count_colours(sites, out):
    """Count the sites of each colour; ``out`` has shape (q, n)."""
    total = np.zeros((out.shape[0], SIDE), np.int32)
    for i in range(sites.shape[0] - 1):
        for c in range(SIDE):
            total[sites[i, c], c] += 1
    out[:] = total[:, : out.shape[1]]


@dataclass(frozen=True, slots=True)
class Colours(States, ColourCounts):
    """A population of Potts lattices, with the counts that their energies need."""

    # shape (n_groups, n_sites + 1, 64): colours; the last axis holds chains. The last row lies
    # beyond free edges. The last group may hold chains beyond the last member, which are never
    # read.
    cells: Bytes
    sizes: tuple[int, ...]  # number of sites along each axis
    n_together = SIDE
    count_bonds, count_values = count_like, count_colours

    @classmethod
    def draw(cls, target: Lattice, n: int, seed: np.random.SeedSequence) -> Self:
        """Return ``n`` states of independent sites, where all colours have equal probability."""
        shape = -(-n // SIDE), target.n_dim + 1, SIDE
        sites = np.random.default_rng(seed).integers(target.n_colours, size=shape, dtype=np.uint8)
        sites[:, -1] = NOBODY
        return cls.of_cells(sites, n, target)

    @staticmethod
    def pack(rows: NDArray[Any]) -> Bytes:
        """Return the sites of colours, shape ``(n, n_sites)``."""
        n, n_sites = rows.shape
        full = np.zeros((-(-n // SIDE) * SIDE, n_sites), np.uint8)
        full[:n] = rows
        sites = np.full((len(full) // SIDE, n_sites + 1, SIDE), NOBODY, np.uint8)
        sites[:, :-1] = full.reshape(-1, SIDE, n_sites).transpose(0, 2, 1)
        return sites

    @staticmethod
    def unpack(sites: Bytes, n: int) -> Bytes:
        """Return a copy of the first ``n`` chains, shape ``(n, n_sites)``."""
        chains = sites[:, :-1].transpose(0, 2, 1)
        return np.array(chains.reshape(-1, chains.shape[2])[:n], order="C")


@njit
def _add_fields(counts, fields, slope, energy, ratio):
    """Add the contributions of fields in favour of every colour.

    ``counts`` has shape (m, q, n), so that sums over colours are sums of whole rows.
    """
    n = counts.shape[2]
    most, first, second, weighted = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for k in range(len(counts)):
        before, after = fields[0, k], fields[1, k]
        most[:] = 0.0
        for colour in range(counts.shape[1]):
            own = counts[k, colour]
            for c in range(n):
                most[c] = max(most[c], own[c])
        first[:] = 0.0
        second[:] = 0.0
        weighted[:] = 0.0
        for colour in range(counts.shape[1]):
            own = counts[k, colour]
            for c in range(n):
                gap = own[c] - most[c]
                weight = fast_exp(before * gap)
                first[c] += weight
                weighted[c] += weight * gap
                second[c] += fast_exp(after * gap)
        for c in range(n):
            energy[k, c] -= slope[k] * (most[c] + weighted[c] / first[c])
            ratio[k, c] += (after - before) * most[c] + fast_log(second[c] / first[c])


ROUNDS = 8  # random numbers drawn at a time, so that states are read and written less often
WORDS = 4  # of the state of a generator
_LANES = 16  # integers of 32 bits in a vector of 512
_UNIT, _UNIT_OF_COLOUR = 2.0**-15, 2.0**-16
_SIDES = 4
# A border is the sum of at most five lengths, so it lies less than 5 units beyond the sum of the
# rounded lengths. A number truncated after 15 bits is certainly before the border if it is before
# the rounded one, and certainly behind it if it is 5 units or more behind the rounded one.
_DOUBT = _SIDES + 1
# Classes: the number of pairs that are alike, and how many neighbours have each colour.
_LIKE = {0: (1, 1, 1, 1), 1: (2, 1, 1), 2: (2, 2), 3: (3, 1), 6: (4,)}
_WITH_LONE = tuple(pairs for pairs, like in _LIKE.items() if 1 in like)
_WITH_SHARED = tuple(pairs for pairs, like in _LIKE.items() if max(like) > 1)
# In a field also the number of favoured neighbours, times a number above that of pairs.
_FAVOUR = 7
_CODES = tuple(_LIKE)
_CODES_IN_FIELD = tuple(
    pairs + _FAVOUR * favoured for pairs, like in _LIKE.items() for favoured in sorted({0, *like})
)
_N_CLASSES = len(_CODES_IN_FIELD)
# Rows of tables: the total length of the first pieces, the piece of a neighbour like no other, that
# of a neighbour like others, and whether there is a third and a fourth neighbour.
_FIRST, _LONE, _SHARED, _THERE = range(4)
# The same for compiled code; rows of impossible numbers of pairs are not used.
_PLAIN_ROWS, _IN_FIELD_ROWS = np.array(_CODES), np.array(_CODES_IN_FIELD)
_LIKE_BY_PAIRS = np.array([[*_LIKE.get(pairs, ()), 0, 0, 0, 0][:_SIDES] for pairs in range(7)])


@njit
def tabulate(q, coupling, field):
    """Return the lengths of pieces."""
    table = np.zeros((_SIDES + 1, 4, _N_CLASSES, _HALF), np.uint16)
    shares = np.array([expm1(coupling * k) / max(k, 1) for k in range(_SIDES + 1)])
    extra, codes = expm1(field), _PLAIN_ROWS if field == 0.0 else _IN_FIELD_ROWS
    for degree in range(_SIDES + 1):
        for k in range(2):
            table[degree, _THERE, k] = 0xFFFF if degree > 2 + k else 0
        for row in range(len(codes)):
            pairs, favoured = codes[row] % _FAVOUR, codes[row] // _FAVOUR
            total, shared, absent = float(q), 0.0, _SIDES - degree
            for like in _LIKE_BY_PAIRS[pairs]:
                if like == absent:
                    absent = 0  # absent neighbours count as alike
                    continue
                total += like * shares[like]
                if like > 1:
                    shared = shares[like]
            scale = 1.0 / (_UNIT * (total + extra * (1.0 + favoured * shares[favoured])))
            table[degree, _FIRST, row] = nb.uint16(q * scale)
            table[degree, _LONE, row] = nb.uint16(shares[1] * scale)
            table[degree, _SHARED, row] = nb.uint16(shared * scale)
    return table, shares


def _drawing(codes: tuple[int, ...], in_field: bool) -> Any:
    @emitted(lambda: types.uint64)
    def draw(builder, sites, site, near, favoured, random, table, q):
        """Draw the colour of a site in 64 chains."""
        colours = sites.data

        def start(site):
            return builder.mul(site, INDEX(SIDE))

        def row(what, k):
            place = INDEX((what * _N_CLASSES + k) * _HALF)
            return Vector.load(builder, table.data, place, 16, _HALF)

        sides = [builder.extract_value(near.value, k) for k in range(_SIDES)]
        values = [Vector.load(builder, colours, start(k), 8, SIDE) for k in sides]
        if in_field:
            values.append(Vector.load(builder, favoured.data, INDEX(0), 8, SIDE))
        pairs, with_others = _compared(values)
        n_colours = Vector.spread(builder, q, 16, _HALF)
        halves = []
        for first in (0, _HALF):
            places = (INDEX(k + first // 2) for k in (0, _HALF))
            even, odd = (Vector.load(builder, random.data, k, 32, _LANES) for k in places)
            code = pairs.part(first, _HALF).resized(16)
            paired = [each.part(first, _HALF) for each in with_others]
            lengths = _lengths(code, paired, codes, row)
            halves.append(_placed(even, odd, lengths[: len(values)], n_colours))
        colour, doubt, *behind = (a.join(b) for a, b in zip(*halves, strict=True))
        for is_behind, other in zip(behind, values, strict=True):
            colour = is_behind.choose(other, colour)
        colour.store(colours, start(site))
        return doubt.bits()

    return draw


def _compared(near: list[Vector]) -> tuple[Vector, list[Vector]]:
    """Return the code of the class, and masks of which neighbours are like others."""
    a, b, c, d = near[:_SIDES]
    ab, ac, bc = a.equals(b), a.equals(c), b.equals(c)
    ad, bd, cd = a.equals(d), b.equals(d), c.equals(d)
    p, q, r, s, t, u = (alike.resized(8) for alike in (ab, ac, bc, ad, bd, cd))
    code = (p + q) + (r + s) + (t + u)
    if len(near) > _SIDES:
        p, q, r, s = (other.equals(near[_SIDES]).resized(8) for other in near[:_SIDES])
        favoured = (p + q) + (r + s)
        code = code + favoured * favoured.like(_FAVOUR)
    return code, [ab | ac | ad, ab | bc | bd, ac | bc | cd, ad | bd | cd]


def _lengths(
    code: Vector, with_others: list[Vector], codes: tuple[int, ...], row: Callable
) -> list[Vector]:
    """Return the total length of the first pieces, and the lengths of those of the neighbours."""
    is_class = [code.equals(code.like(k)) for k in codes]

    def look_up(what: int, pairs: tuple[int, ...]) -> Vector:
        wanted = [k for k, number in enumerate(codes) if number % _FAVOUR in pairs]
        found = row(what, wanted[0])
        for k in wanted[1:]:
            found = is_class[k].choose(row(what, k), found)
        return found

    lone, shared = look_up(_LONE, _WITH_LONE), look_up(_SHARED, _WITH_SHARED)
    a, b, c, d = (paired.choose(shared, lone) for paired in with_others)
    return [look_up(_FIRST, _CODES), a, b, c & row(_THERE, 0), d & row(_THERE, 1)]


def _placed(even: Vector, odd: Vector, lengths: list[Vector], q: Vector) -> list[Vector]:
    """Return colours by the first pieces, a mask of doubt, and masks of chains behind each border.

    The upper half of each random word gives the position of a chain, and the lower its colour.
    """
    upper = even.like(0xFFFF0000)
    where = ((odd & upper) | (even >> 16)).recut(16) >> 1
    which = ((odd << 16) | (even & ~upper)).recut(16)
    closest, behind = None, []
    for length in lengths:
        where = where - length
        closest = where if closest is None else closest.smaller(where)
        behind.append(~where.negative())
    assert closest is not None
    # further bits would add less than q to the lower half of the product
    carried = (q.like(0) - q).below(which * q) & ~behind[0]
    doubt = closest.below(q.like(_DOUBT)) | carried
    return [which.high_product(q).saturated(8), doubt, *behind]


draw = _drawing(_CODES, in_field=False)
draw_in_field = _drawing(_CODES_IN_FIELD, in_field=True)


@njit
def settle(doubtful, x, i, near, favoured, random, q, shares, extra, streams):
    """Draw again for the chains in doubt, with more bits; see ``draw`` and ``tabulate``."""
    for k in range(len(streams)):
        if (doubtful >> nb.uint64(k)) & nb.uint64(1):
            colours = x[near[0], k], x[near[1], k], x[near[2], k], x[near[3], k]
            word = random[_place_of_draw(k)]
            where = (nb.float64(word >> nb.uint32(17)) + uniform(streams[k])) * _UNIT
            which = (nb.float64(word & nb.uint32(0xFFFF)) + uniform(streams[k])) * _UNIT_OF_COLOUR
            x[i, k] = _draw_exactly(where, which, colours, favoured[k], q, shares, extra)


@njit
def _draw_exactly(where, which, near, favoured, q, shares, extra):
    """Return the colour at two numbers between 0 and 1, in double precision."""
    length, total, n_favoured = np.empty(_SIDES), float(q), 0
    for k in range(_SIDES):
        like = 0
        for j in range(_SIDES):
            like += near[j] == near[k]
        length[k] = 0.0 if near[k] == NOBODY else shares[like]
        total += length[k]
        n_favoured += near[k] == favoured
    t = where * (total + extra * (1.0 + n_favoured * shares[n_favoured]))
    if t < q:
        return nb.uint8(min(int(which * q), q - 1))  # the product may be rounded up to q
    t -= q
    last = favoured
    for k in range(_SIDES):
        if length[k] > 0.0:
            if t < length[k]:
                return near[k]
            t -= length[k]
            if extra == 0.0:
                last = near[k]  # the result if rounding leaves a remainder
    return last


@njit
def _place_of_draw(k):
    """Return the position of the random bits of a chain: those of even chains come first."""
    k = nb.uint64(k)
    return (k & nb.uint64(1)) * nb.uint64(_HALF) + (k >> nb.uint64(1))


@njit
def seed(streams, words):
    """Seed 64 xoshiro128++ generators from the streams of chains; surplus ones copy the first."""
    for k in range(SIDE):
        place = _place_of_draw(k)
        if k < streams.shape[0]:
            for half in range(2):
                word = next_word(streams[k])
                words[2 * half, place] = nb.uint32(word)
                words[2 * half + 1, place] = nb.uint32(word >> nb.uint64(32))
            words[0, place] |= nb.uint32(1)  # all zeros is the only fixed point
        else:
            for part in range(WORDS):
                words[part, place] = words[part, 0]


@emitted(nothing)
def fill(builder, words):
    """Draw 32 random bits for each chain, eight times (Blackman and Vigna 2021); see ``seed``."""

    def place(row, first):
        return INDEX(row * SIDE + first)

    for first in range(0, SIDE, _LANES):
        places = [place(k, first) for k in range(WORDS)]
        state = [Vector.load(builder, words.data, k, 32, _LANES) for k in places]
        for k in range(ROUNDS):
            random, state = next_words(state)
            random.store(words.data, place(WORDS + k, first))
        for k, word in zip(places, state, strict=True):
            word.store(words.data, k)


_LARGEST_LOG_WEIGHT = 600.0  # the exponential, and sums of it, are finite


@dataclass(frozen=True)
class ColourHeatBath(VisitKernel):
    """Draws every colour from its distribution given its neighbours, site by site.

    Every chain draws from its own stream only. On a detoured path a favoured colour is drawn for
    every chain first, given its state; see ``DetouredPath``. Lattices with three dimensions or a
    negative coupling are moved chain by chain, which is twenty times slower.
    """

    values = ("colours",)
    counts = ColourCounts

    def _visit(self, path: Any, state: Any, beta: Floats, streams: Any, counts: Any) -> Floats:
        target: Lattice = path.target
        coupling, field = beta * target.coupling, path.field(beta)
        wide = len(target.sizes) == 2 and target.coupling >= 0.0
        wide = bool(wide and (4.0 * coupling + field).max() <= _LARGEST_LOG_WEIGHT)
        orders = self.sites(target), self.n_sweeps
        stages, q = (coupling, field), target.n_colours
        _pass(state.cells, target.geometry, orders, q, wide, stages, streams, counts)
        return np.full(len(beta), float(len(state) * target.n_dim * self.n_sweeps))


@njit
def _pass(sites, bonds, orders, q, wide, stages, streams, counts):
    """Move all chains in place through some stages, and count after each."""
    coupling, field = stages
    like, tally = counts
    near = bonds.ghosted
    words, favoured = np.empty((WORDS + ROUNDS, SIDE), np.uint32), np.zeros(SIDE, np.uint8)
    tables = [tabulate(q, coupling[k] if wide else 0.0, field[k]) for k in range(coupling.size)]
    for group in range(sites.shape[0]):
        x, first = sites[group], group * SIDE
        last = min(first + SIDE, streams.shape[0])
        own = streams[first:last]
        for k in range(coupling.size):
            _favour(favoured, field[k], tally[k, :, first:last], own)
            if wide:
                seed(own, words)
                _sweep_wide(x, near, orders, q, field[k], favoured, words, tables[k], own)
            else:
                for c in range(last - first):
                    log_weights = coupling[k], field[k]
                    _sweep_one(x[:, c], near, orders, q, log_weights, favoured[c], own[c])
            count_like(x, bonds.bonds, like[k + 1, first:last])
            if tally.size:
                count_colours(x, tally[k + 1, :, first:last])


@njit
def _sweep_wide(x, neighbours, orders, q, field, favoured, words, tables, streams):
    """Move 64 chains of a square lattice in place, all at a time."""
    (order, n_sweeps), (table, shares) = orders, tables
    extra, n_sites, n_left = expm1(field), len(neighbours), 0
    for _ in range(n_sweeps):
        for i in order:
            if n_left == 0:
                fill(words)
                n_left = ROUNDS
            n_left -= 1
            random = words[WORDS + n_left]
            near, degree = _around(neighbours, i, n_sites)
            if field == 0.0:
                doubtful = draw(x, i, near, favoured, random, table[degree], q)
            else:
                doubtful = draw_in_field(x, i, near, favoured, random, table[degree], q)
            if doubtful:
                settle(doubtful, x, i, near, favoured, random, q, shares, extra, streams)


@njit
def _around(neighbours, i, n_sites):
    """Return the neighbours of a site, with those that do not exist last, and their number."""
    # no view of the row: threads would wait for each other to count the references to the array
    a, b, c, d = neighbours[i, 0], neighbours[i, 1], neighbours[i, 2], neighbours[i, 3]
    if max(max(a, b), max(c, d)) < n_sites:
        return (a, b, c, d), 4
    # there is at least one neighbour along each axis
    a, b = min(a, b), max(a, b)
    c, d = min(c, d), max(c, d)
    if d < n_sites:
        return (a, c, d, b), 3
    return (a, c, b, d), 3 if b < n_sites else 2


@njit
def _sweep_one(x, neighbours, orders, q, log_weights, favoured, stream):
    """Move one chain of any lattice in place, at any coupling."""
    (order, n_sweeps), (coupling, field) = orders, log_weights
    weight, n_sides = np.empty(q), neighbours.shape[1]
    most = max(coupling * n_sides, 0.0)
    powers = np.array([exp(coupling * k - most) for k in range(n_sides + 1)])
    for _ in range(n_sweeps):
        for i in order:
            weight[:] = 0.0
            for side in range(n_sides):
                colour = x[neighbours[i, side]]
                if colour != NOBODY:
                    weight[colour] += 1.0
            total = 0.0
            for colour in range(q):
                weight[colour] = powers[int(weight[colour])]
                if field != 0.0 and colour == favoured:
                    weight[colour] *= exp(field)
                total += weight[colour]
            t, colour = uniform(stream) * total, 0
            while colour < q - 1 and t >= weight[colour]:
                t -= weight[colour]
                colour += 1
            x[i] = colour


@njit
def _favour(favoured, field, tally, streams):
    """Draw the favoured colour of every chain given its numbers of sites, if there is a field."""
    if field == 0.0:
        return
    q, n = tally.shape
    most, left, weight = np.zeros(n), np.zeros(n), np.empty((q, n))
    weight[:] = tally
    for colour in range(q):
        for k in range(n):
            most[k] = max(most[k], weight[colour, k])
    for colour in range(q):
        for k in range(n):
            weight[colour, k] = fast_exp(field * (weight[colour, k] - most[k]))
            left[k] += weight[colour, k]
    for k in range(n):
        left[k] *= uniform(streams[k])
        favoured[k] = 0
    for colour in range(q - 1):
        for k in range(n):
            left[k] -= weight[colour, k]
            favoured[k] += left[k] >= 0.0


_QUARTER = SIDE // 4  # chains whose words of 32 bits fill a vector
_LARGEST_WORD, _LARGEST_BITS = 2**32 - 1, 2**64 - 1
_MOST_STEPS = 10**12  # larger numbers are mistakes


@dataclass(frozen=True)
class ColourMetropolis(LatticeKernel):
    """Proposes a random colour at a random site of a Potts lattice, again and again; reversible.

    Parameters
    ----------
    n_sweeps : int
        Number of sweeps at each stage.
    n_steps : int, optional
        Number of sites that a sweep visits; by default as many as the lattice has.

    Notes
    -----
    The kernel of Habeck (2017), section 6.2. All chains share the order of sites, which does not
    depend on their states, and draw colours from their own streams. Probabilities are rounded to
    2**-32. It has no moves along a ``DetouredPath``. The heat bath needs fewer steps.
    """

    values = ("colours",)
    n_steps: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_steps is not None:
            check_count("n_steps", self.n_steps, 1, _MOST_STEPS)

    def advance(
        self, path: Any, state: Colours, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Colours, MoveInfo]:
        """Move every member; see ``contracts.Kernel``."""
        target, sites, n = path.target, state.cells.copy(), len(state)
        check_no_field(path.field(beta), "Metropolis moves of colours")
        n_steps = self.n_sweeps * (target.n_dim if self.n_steps is None else self.n_steps)
        strength = beta * target.coupling
        n_sides = target.geometry.ghosted.shape[1]
        chances = [2.0**32 * exp(-abs(strength) * lost) for lost in range(1, n_sides + 1)]
        limits = np.minimum(np.rint(chances), _LARGEST_WORD).astype(np.uint32)
        # where neighbours repel, a move costs what it gains in like neighbours
        turned, sides = 255 if strength < 0.0 else 0, (0,) * n_sides
        colours = target.n_colours, turned
        accepted = _walk(sites, target.geometry.ghosted, sides, n_steps, colours, limits, streams)
        moved = Colours.of_cells(sites, n, target)
        return moved, MoveInfo(accepted / (n * n_steps), n * n_steps)


@njit
def _walk(groups, neighbours, sides, n_steps, colours, limits, streams):
    """Move all chains in place, and return how many proposals were accepted."""
    q, turned = colours
    n_groups, n_sites, n_accepted = groups.shape[0], neighbours.shape[0], 0
    # two generators for each chain: for colours, and for whether they are accepted
    words = np.empty((n_groups, 2, WORDS + ROUNDS, SIDE), np.uint32)
    members = np.empty(n_groups, np.uint64)  # a bit for each chain that is read
    for group in range(n_groups):
        own = streams[group * SIDE : (group + 1) * SIDE]
        seed(own, words[group, 0])
        seed(own, words[group, 1])
        members[group] = nb.uint64(_LARGEST_BITS) >> nb.uint64(SIDE - own.shape[0])
    sites = np.empty(ROUNDS, np.int64)
    for first in range(0, n_steps, ROUNDS):
        n_rounds = min(ROUNDS, n_steps - first)
        for k in range(n_rounds):
            high = next_word(streams[0]) >> nb.uint64(32)
            sites[k] = nb.int64(high * nb.uint64(n_sites) >> nb.uint64(32))
        for group in range(n_groups):
            x, new, chances = groups[group], words[group, 0], words[group, 1]
            fill(new)
            fill(chances)
            for k in range(n_rounds):
                accepted = _propose(
                    x, sites[k], neighbours, sides, new, chances, WORDS + k, q, turned, limits
                )
                n_accepted += _n_bits(accepted & members[group])
    return n_accepted


@emitted(lambda: types.int64)
def _n_bits(builder, word):
    """Return the number of bits that are set."""
    return builder.ctpop(word)


@emitted(lambda: types.uint64)
def _propose(builder, sites, site, neighbours, sides, new, chances, row, q, turned, limits):
    """Propose a colour to 64 chains at a site, and return which accept it, one bit for each.

    ``limits`` are those of the random words that accept a loss of 1 and more like neighbours.
    """
    n_sides = len(sides.kind)

    def load(i):
        return Vector.load(builder, sites.data, builder.mul(i, INDEX(SIDE)), 8, SIDE)

    def load_words(array, first):
        place = builder.add(builder.mul(row, INDEX(SIDE)), INDEX(first))
        return Vector.load(builder, array.data, place, 32, _QUARTER)

    quarters = range(0, SIDE, _QUARTER)
    n_colours = Vector.spread(builder, q, 32, _QUARTER)
    a, b, c, d = (load_words(new, k).high_product(n_colours).resized(8) for k in quarters)
    old, proposed = load(site), a.join(b).join(c.join(d))
    start = builder.mul(site, INDEX(n_sides))
    lost = old.like(0)
    for k in range(n_sides):
        other = load(builder.load(builder.gep(neighbours.data, [builder.add(start, INDEX(k))])))
        lost = lost + other.equals(old).resized(8) - other.equals(proposed).resized(8)
    flip = Vector.spread(builder, turned, 8, SIDE)
    lost = (lost ^ flip) - flip
    accepted = []
    for first in quarters:
        part = lost.part(first, _QUARTER)
        limit = part.resized(32).like(_LARGEST_WORD)
        for k in range(n_sides):
            word = builder.load(builder.gep(limits.data, [INDEX(k)]))
            bound = Vector.spread(builder, builder.zext(word, INDEX), 32, _QUARTER)
            limit = part.equals(part.like(k + 1)).choose(bound, limit)
        accepted.append(load_words(chances, first).below(limit))
    a, b, c, d = accepted
    moves = a.join(b).join(c.join(d))
    moves.choose(proposed, old).store(sites.data, builder.mul(site, INDEX(SIDE)))
    return moves.bits()
