"""Ising lattices, one bit per spin: populations, draws of 512 chains together, and their moves."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import exp
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen import vectors
from pm_evidence.core.codegen.numba import cgutils, emitted, nb, njit, nothing, types
from pm_evidence.core.codegen.vectors import (
    WIDTH,
    WORD,
    Vector,
    fast_exp,
    fast_log,
    next_lanes,
)
from pm_evidence.core.random import fill_uniform, next_word
from pm_evidence.families.lattice.lattice import BondCounts, Lattice, States, VisitKernel

Floats = NDArray[np.float64]
Planes = NDArray[np.uint64]


GROUP = 64 * WIDTH  # chains that are moved together
# A count is kept in planes: bit p of chain c is bit c of plane p. As many sites as possible are
# first added up in a few low planes, and then carried to the high ones.
_LOW, _HIGH = 8, 32
_RUN = (0,) * 16  # bonds that are added at once; only the length is used
_DIGITS = 52
_ROUNDS = 12  # digits that are always compared; at one in eight sites some of 512 chains need more
_ONES = 2**64 - 1
_CERTAIN = 40.0  # log odds that a uniform number of 52 bits cannot distinguish from infinity
_NEGLIGIBLE = 40.0  # a term that is so many nats smaller than another changes no digit of the sum


@dataclass(frozen=True, slots=True)
class SpinCounts(BondCounts):
    """The counts that the energies of Ising lattices need."""

    def energy(self, target: Lattice) -> Floats:
        """Return the energies in nats at beta 1, shape ``(..., n)``."""
        energy: Floats = self.bonds.astype(float)
        energy *= 2.0 * target.coupling
        energy -= target.coupling * target.n_bonds
        if target.field:
            energy -= target.field * (2 * self.counted(target) - target.n_dim)
        return energy

    def favour(
        self, target: Lattice, fields: Floats, slope: Floats, energy: Floats, ratio: Floats
    ) -> None:
        """Add what fields in favour of either spin contribute; see ``path.DetouredPath``."""
        up = self.counted(target).reshape(energy.shape)
        _add_fields(target.n_dim, up, fields, slope, energy, ratio)


@njit
def _add_fields(n_sites, up, fields, slope, energy, ratio):
    """Add the contributions of fields in favour of either spin to energies and log ratios."""
    for k in range(up.shape[0]):
        own, before, after, least = up[k], fields[0, k], fields[1, k], n_sites
        for c in range(own.size):
            gap = abs(2 * own[c] - n_sites)
            least = min(least, gap)
            larger = 0.5 * (n_sites + gap)
            energy[k, c] -= slope[k] * larger
            ratio[k, c] += (after - before) * larger
        if min(before, after) * least > _NEGLIGIBLE:
            continue
        for c in range(own.size):
            gap = abs(2 * own[c] - n_sites)
            # the smaller of the two terms, over the larger
            first, second = fast_exp(-before * gap), fast_exp(-after * gap)
            share = 1.0 / (1.0 + first)
            energy[k, c] += slope[k] * gap * first * share
            ratio[k, c] += fast_log((1.0 + second) * share)


@emitted(nothing)
def _add_unlike(builder, planes, first, bonds, low, run):
    """Add to the low planes which of a run of bonds are between unlike spins."""

    def end(k):
        place = builder.add(builder.mul(first, WORD(2)), WORD(k))
        site = builder.load(builder.gep(bonds.data, [place]))
        return vectors.load(builder, planes.data, site)

    unlike = [end(2 * k) ^ end(2 * k + 1) for k in range(len(run.kind))]
    _add_bits(builder, low.data, unlike)


def _add_bits(builder: Any, counts: Any, bits: list[Vector]) -> None:
    """Add some bits of every chain to the low planes."""
    for p in range(_LOW):
        column, carries = [*bits, vectors.load(builder, counts, WORD(p))], []
        while len(column) > 2:
            total, carry = vectors.full_adder(*column[:3])
            column = [*column[3:], total]
            carries.append(carry)
        if len(column) == 2:
            carries.append(column[0] & column[1])
            column = [column[0] ^ column[1]]
        vectors.store(column[0], counts, WORD(p))
        bits = carries


@emitted(nothing)
def _carry(builder, low, high):
    """Add the low planes to the high ones, and clear them."""
    zero = carry = vectors.constant(builder, 0)
    for p in range(_LOW):
        total, own = (vectors.load(builder, planes.data, WORD(p)) for planes in (high, low))
        total, carry = vectors.full_adder(total, own, carry)
        vectors.store(total, high.data, WORD(p))
        vectors.store(zero, low.data, WORD(p))
    with builder.if_then(carry.any()):
        for p in range(_LOW, _HIGH):
            total = vectors.load(builder, high.data, WORD(p))
            vectors.store(total ^ carry, high.data, WORD(p))
            carry = total & carry


@njit
def count_unlike(planes, bonds, out):
    """Count the bonds of the chains of a group between unlike spins."""
    low, high = np.zeros((_LOW, WIDTH), np.uint64), np.zeros((_HIGH, WIDTH), np.uint64)
    n_bonds, room = len(bonds), (2**_LOW - 1) // len(_RUN) * len(_RUN)
    for start in range(0, n_bonds, room):
        stop = min(start + room, n_bonds)
        whole = start + (stop - start) // len(_RUN) * len(_RUN)
        for k in range(start, whole, len(_RUN)):
            _add_unlike(planes, k, bonds, low, _RUN)
        for k in range(whole, stop):
            _add_unlike(planes, k, bonds, low, (0,))
        _carry(low, high)
    total = np.zeros(GROUP, np.int32)
    for p in range(_HIGH):
        for word in range(WIDTH if n_bonds >> p else 0):
            bits = high[p, word]
            for k in range(64):
                total[64 * word + k] += nb.int32((bits >> nb.uint64(k)) & nb.uint64(1)) << p
    out[:] = total[: out.size]


@njit
def count_up(planes, out):
    """Count the spins 1 of the chains of a group: bonds with the last row, which is 0."""
    n_sites = planes.shape[0] - 1
    bonds = np.full((n_sites, 2), n_sites)
    for i in range(n_sites):
        bonds[i, 0] = i
    count_unlike(planes, bonds, out)


@dataclass(frozen=True, slots=True)
class Spins(States, SpinCounts):
    """A population of Ising lattices, with the counts that their energies need."""

    # shape (n_groups, n_sites + 1, 8): bit ``c % 64`` of word ``c // 64`` is chain ``c`` of a group
    # of 512; a set bit is spin 1. The last row is scratch space of the kernels, and 0 otherwise.
    # The last group may hold chains beyond the last member, which are never read.
    cells: Planes
    sizes: tuple[int, ...]  # number of sites along each axis
    n_together = GROUP
    count_bonds, count_values = count_unlike, count_up

    @classmethod
    def draw(cls, target: Lattice, n: int, seed: np.random.SeedSequence) -> Self:
        """Return ``n`` states of independent spins, where 1 and -1 have equal probability."""
        planes = np.zeros((-(-n // GROUP), target.n_dim + 1, WIDTH), np.uint64)
        shape = len(planes), target.n_dim, WIDTH
        planes[:, :-1] = np.random.default_rng(seed).integers(2**64, size=shape, dtype=np.uint64)
        return cls.of_cells(planes, n, target)

    @classmethod
    def of(cls, rows: NDArray[Any], target: Lattice) -> Self:
        """Return the population of states of -1 and 1, shape ``(n, n_sites)``."""
        return cls.of_colours(rows > 0, target)

    def to_draws(self) -> NDArray[np.int8]:
        """Return spins of -1 and 1, shape ``(n, *sizes)``."""
        return 2 * super(Spins, self).to_draws().astype(np.int8) - 1

    @staticmethod
    def pack(rows: NDArray[Any]) -> Planes:
        """Return the planes of colours 0 and 1, shape ``(n, n_sites)``."""
        n, n_sites = rows.shape
        full = np.zeros((-(-n // GROUP) * GROUP, n_sites + 1), np.uint8)
        full[:n, :-1] = rows
        octets = np.ascontiguousarray(np.packbits(full.T, axis=1, bitorder="little"))
        planes = octets.view("<u8").reshape(n_sites + 1, -1, WIDTH).transpose(1, 0, 2)
        return np.array(planes, np.uint64, order="C")

    @staticmethod
    def unpack(planes: Planes, n: int) -> NDArray[np.uint8]:
        """Return the first ``n`` chains as colours 0 and 1, shape ``(n, n_sites)``."""
        octets = planes[:, :-1].transpose(1, 0, 2).astype("<u8", order="C").view(np.uint8)
        rows = octets.reshape(len(octets), -1)
        return np.ascontiguousarray(np.unpackbits(rows, axis=1, count=n, bitorder="little").T)


class Form(NamedTuple):
    """The form of the code to generate, as lengths of tuples, which numba knows on compiling."""

    sides: tuple[int, ...]
    two: tuple[int, ...]  # whether there are two kinds of references, with different probabilities
    # Whether the probability with ``k`` unlike neighbours is 1 minus that with all but ``k``
    folded: tuple[int, ...]


@njit
def _logistic(x):
    return 1.0 / (1.0 + exp(-x)) if x > -700.0 else 0.0


@njit
def _write_digits(probability, column):
    """Write the binary digits of a probability, each as a word of equal bits.

    Row 0 tells whether the probability is 1, which digits after the point cannot express.
    """
    whole = nb.uint64(round(probability * 2.0**_DIGITS))
    for k in range(_DIGITS + 1):
        digit = (whole >> nb.uint64(_DIGITS - k)) & nb.uint64(1)
        column[k] = nb.uint64(0) - digit  # no branch, because digits cannot be predicted


@njit
def fill_table(table, heat_bath, coupling, bias, degrees):
    """Write the digits of the probability to be unlike the reference spin."""
    n_classes = table.shape[0]
    for degree in range(degrees[0], degrees[1] + 1):
        for unlike in range(degree + 1):
            log_odds = 2.0 * coupling * (2 * unlike - degree)
            if heat_bath:
                _write_digits(_logistic(log_odds + bias), table[degree, :, unlike])
                continue
            for own in range(table.shape[2] // n_classes):
                change = log_odds - bias if own else log_odds + bias
                column = table[degree, :, unlike + own * n_classes]
                _write_digits(exp(min(change, 0.0)), column)


@emitted(lambda: types.int64)
def renew(builder, planes, site, reference, favoured, neighbours, generator, table, degree, form):
    """Set a site of 512 chains to its reference, or, by chance, to the opposite."""
    n_sides, two, spins = len(form.kind[0]), len(form.kind[1]), planes.data
    reference = vectors.load(builder, spins, reference)
    start = builder.mul(site, WORD(n_sides))
    unlike = []
    for k in range(n_sides):
        other = builder.load(builder.gep(neighbours.data, [builder.add(start, WORD(k))]))
        unlike.append(reference ^ vectors.load(builder, spins, other))
    classes, turned = _classes(builder, unlike), vectors.constant(builder, 0)
    n_columns = len(classes) * (1 + two)
    if form.kind[2]:
        classes, turned = _folded(classes)
    if two:
        own = reference ^ vectors.load(builder, spins, favoured)
        classes = [c & ~own for c in classes] + [c & own for c in classes]
    size = WORD((_DIGITS + 1) * n_columns)
    digits = builder.gep(table.data, [builder.mul(degree, size)])

    def digit(row):
        """Return one digit of every chain's probability."""
        found = vectors.constant(builder, 0)
        first = builder.mul(row, WORD(n_columns))
        for k, of_class in enumerate(classes):
            word = builder.load(builder.gep(digits, [builder.add(first, WORD(k))]))
            found = found | (of_class & vectors.spread(builder, word))
        return found

    opposite, state = _below(builder, digit, generator.data)
    opposite = opposite ^ turned
    vectors.store(reference ^ opposite, spins, site)
    for k in range(4):
        vectors.store(state[k], generator.data, WORD(k))
    return opposite.popcount()


def _folded(classes: list[Vector]) -> tuple[list[Vector], Vector]:
    """Join every class with its opposite; return also which chains were in the second."""
    n_sides = len(classes) - 1
    turned = classes[0].like(0)
    for k in range(n_sides // 2):
        turned = turned | classes[n_sides - k]
        classes[k] = classes[k] | classes[n_sides - k]
    return classes[: n_sides // 2 + 1], turned


def _below(builder: Any, digit: Callable, words: Any) -> tuple[Vector, list[Vector]]:
    """Return which chains draw a number below their probability, and the generator after it.

    No number is drawn for chains whose probability is 1.
    """

    def compare(row: Any, state: list[Vector]) -> list[Vector]:
        """Compare another digit: a smaller one gives the opposite, an equal one decides nothing."""
        opposite, undecided, *generator = state
        random, generator = next_lanes(generator)
        wanted = digit(row)
        opposite = opposite | (undecided & ~random & wanted)
        return [opposite, undecided & ~(random ^ wanted), *generator]

    certain = digit(WORD(0))
    state = [certain, ~certain, *(vectors.load(builder, words, WORD(k)) for k in range(4))]
    for k in range(_ROUNDS):
        state = compare(WORD(k + 1), state)
    # until all chains are decided or digits run out
    places = [cgutils.alloca_once_value(builder, part.value) for part in state]
    rest = {"count": WORD(_DIGITS + 1), "start": WORD(_ROUNDS + 1)}
    with builder.if_then(state[1].any()), cgutils.for_range(builder, **rest) as loop:
        after = compare(loop.index, [Vector(builder, builder.load(place)) for place in places])
        for place, part in zip(places, after, strict=True):
            builder.store(part.value, place)
        with builder.if_then(builder.not_(after[1].any())):
            loop.do_break()
    opposite, _, *generator = (Vector(builder, builder.load(place)) for place in places)
    return opposite, generator


def _classes(builder: Any, bits: list[Vector]) -> list[Vector]:
    """Return, for every possible number of set bits, which chains have that number."""
    classes = [vectors.constant(builder, _ONES)]
    for bit in bits:
        without = [c & ~bit for c in classes]
        with_ = [c & bit for c in classes]
        middle = [a | b for a, b in zip(without[1:], with_[:-1], strict=True)]
        classes = [without[0], *middle, with_[-1]]
    return classes


@dataclass(frozen=True)
class _SpinKernel(VisitKernel):
    """The base of heat bath and Metropolis kernels."""

    orders = ("checkerboard", "sequential", "random")
    values = ("spins",)
    n_together = GROUP
    counts = SpinCounts

    heat_bath: ClassVar[bool]

    def _visit(self, path: Any, state: Any, beta: Floats, streams: Any, counts: Any) -> Floats:
        target: Lattice = path.target
        field, sides = path.field(beta), 2 * len(target.sizes)
        bias = np.where(field != 0.0, -field, 2.0 * beta * target.field)
        changed = np.empty(len(beta))
        biased = bias != 0.0
        edges = np.flatnonzero(biased[1:] != biased[:-1]) + 1  # the code differs with a bias
        for first, stop in pairwise([0, *edges, len(beta)]):
            stages, rows, uneven = slice(first, stop), slice(first, stop + 1), bool(biased[first])
            folded = self.heat_bath and target.periodic and not uneven
            form = Form((0,) * sides, (0,) * (uneven and not self.heat_bath), (0,) * folded)
            _pass(
                state.cells,
                (self.heat_bath, self.n_sweeps),
                form,
                self.sites(target),
                target.geometry,
                (beta[stages] * target.coupling, bias[stages], field[stages]),
                streams,
                (*(each[rows] for each in counts), changed[stages]),
            )
        n_moves = len(state) * target.n_dim * self.n_sweeps
        return np.full(len(beta), float(n_moves)) if self.heat_bath else changed


@dataclass(frozen=True)
class SpinHeatBath(_SpinKernel):
    """Draws every spin from its distribution given its neighbours, site by site.

    Exact, except that probabilities are rounded to 2**-52. Chains ``64 k`` to ``64 k + 63`` share
    the stream of the first of them, each with its own bit. Chains that share a word are independent
    of each other, and a group of 512 only shares the order of sites. On a detoured path a favoured
    spin is drawn for every chain first, given its state; see ``DetouredPath``.
    """

    heat_bath = True


@dataclass(frozen=True)
class SpinMetropolis(_SpinKernel):
    """Proposes to flip every spin, site by site.

    Parameters
    ----------
    n_sweeps : int
        Number of sweeps at each stage.
    order : {"checkerboard", "sequential", "random"}
        The order in which sites are visited; ``"random"`` is the kernel of Habeck (2017).
    backwards : bool
        Whether sites are visited in the opposite order, which makes it the time reversal.

    Notes
    -----
    Near beta 0 nearly all flips are accepted, so that a sweep in a fixed order only reverses all
    spins and mixes little. The heat bath is preferable. See ``SpinHeatBath`` for the other notes.
    """

    heat_bath = False


@njit
def _pass(planes, moves, form, sites, bonds, stages, streams, out):
    """Move all chains in place through some stages, and count after each."""
    coupling, bias, field = stages
    unlike, up, changed = out
    changed[:] = 0.0
    n_sites = planes.shape[1] - 1
    visits = sites.copy() if sites.size else np.empty(n_sites, np.int64)
    n_classes = len(form.sides) + 1
    table = np.zeros((n_classes, _DIGITS + 1, n_classes * (1 + len(form.two))), np.uint64)
    degrees = bonds.degree.min(), bonds.degree.max()
    for group in range(planes.shape[0]):
        spins, first = planes[group], group * GROUP
        last = min(first + GROUP, unlike.shape[1])
        own = streams[first:last]
        for k in range(coupling.size):
            _favour(spins[-1], field[k], n_sites, up[k, first:last], own)
            fill_table(table, moves[0], coupling[k], bias[k], degrees)
            n_opposite = _sweep(spins, moves, form, visits, sites.size == 0, bonds, table, own)
            # chains beyond the last member are taken out in proportion
            changed[k] += n_opposite * ((last - first) / GROUP)
            spins[-1] = 0
            count_unlike(spins, bonds.bonds, unlike[k + 1, first:last])
            if up.size:
                count_up(spins, up[k + 1, first:last])


@njit
def _sweep(spins, moves, form, visits, at_random, bonds, table, streams):
    """Move the chains of a group in place; return how many sites were set to the opposite."""
    heat_bath, n_sweeps = moves
    n_sites, generator = spins.shape[0] - 1, np.empty((4, WIDTH), np.uint64)
    neighbours = bonds.ghosted if heat_bath else bonds.neighbours
    site_stream = _begin(streams, generator, at_random)
    n_opposite = 0
    for _ in range(n_sweeps):
        if at_random:
            _draw_sites(site_stream, visits)
        for k in range(n_sites):
            site = visits[k]
            reference = n_sites if heat_bath else site
            degree = bonds.degree[site]
            n_opposite += renew(
                spins, site, reference, n_sites, neighbours, generator, table, degree, form
            )
    _end(streams, generator)
    return n_opposite


@njit
def _favour(row, field, n_sites, up, streams):
    """Draw the favoured spin of every chain given its state; -1 if there is no field."""
    row[:] = 0
    if field == 0.0:
        return
    drawn = np.empty(64)
    for first in range(0, up.size, 64):
        own = up[first : first + 64]
        least, word = n_sites, nb.uint64(0)
        for bit in range(own.size):
            least = min(least, abs(2 * own[bit] - n_sites))
            word |= nb.uint64(2 * own[bit] > n_sites) << nb.uint64(bit)
        # usually the result is certain for all chains
        if abs(field) * least < _CERTAIN:
            fill_uniform(streams[first], drawn)
            word = nb.uint64(0)
            for bit in range(own.size):
                odds = fast_exp(field * (n_sites - 2 * own[bit]))
                word |= nb.uint64(drawn[bit] * (1.0 + odds) < 1.0) << nb.uint64(bit)
        row[first // 64] = word


@njit
def _begin(streams, generator, with_sites):
    """Load the stream of the first chain of each word; return a stream of sites if requested.

    Words beyond the last chain get copies of the first stream; their chains are never read.
    """
    site_stream = np.zeros(4, np.uint64)
    if with_sites:
        for k in range(4):
            site_stream[k] = next_word(streams[0])
    for word in range(WIDTH):
        generator[:, word] = streams[64 * word if 64 * word < streams.shape[0] else 0]
    return site_stream


@njit
def _end(streams, generator):
    """Write the streams back."""
    for word in range(WIDTH):
        if 64 * word < streams.shape[0]:
            streams[64 * word] = generator[:, word]


@njit
def _draw_sites(stream, sites):
    """Draw every entry, uniformly up to a bias of about 2**-32, which leaves the kernel exact.

    Any distribution that does not depend on the state is valid.
    """
    n = nb.uint64(sites.size)
    for k in range(sites.size):
        sites[k] = nb.int64(((next_word(stream) >> nb.uint64(32)) * n) >> nb.uint64(32))
