"""Moves of single Ising spins for 512 chains at a time, one bit a spin.

Every chain has random bits of its own. A uniform number is compared with a probability binary digit
by binary digit, for all chains at once: a chain is decided at the first digit that differs, and
after twelve digits nearly all are; the digits go on to 52 for the rest. Chains share the order of
sites, which is drawn without looking at them.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import exp
from typing import Any, ClassVar, NamedTuple

import numba as nb
import numpy as np
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from pm_evidence.core.contracts import MoveInfo, Passage
from pm_evidence.core.fast_math import fast_exp
from pm_evidence.core.lanes import WIDTH, WORD, Lanes, next_lanes
from pm_evidence.core.random import fill_uniform, next_word
from pm_evidence.kernels.lattice import VisitKernel
from pm_evidence.targets.lattice import Ising
from pm_evidence.targets.spins import GROUP, SpinCounts, Spins, count_unlike, count_up

__all__ = ["SpinHeatBath", "SpinMetropolis"]

Floats = NDArray[np.float64]

_DIGITS = 52
_CERTAIN = 40.0  # log odds beyond which a uniform number of 52 bits cannot tell from infinity
_ROUNDS = 12  # digits that are always compared: of 512 chains one in eight sites needs more
_ONES = 2**64 - 1


class Form(NamedTuple):
    """What code is made: the lengths of tuples are known when it is compiled.

    Parameters
    ----------
    sides : tuple, of as many zeros as a site has neighbours
    axes : tuple, of as many zeros as the lattice has axes
    two : tuple, empty or of one zero
        Whether the reference is of two kinds, with probabilities of their own.
    folded : tuple, empty or of one zero
        Whether the probability with ``k`` unlike neighbours is 1 less that with all but ``k``.
    undecided : tuple, of as many zeros as there are classes, from the first on, that need digits
        The others have probability 0 or 1.
    """

    sides: tuple[int, ...]
    axes: tuple[int, ...]
    two: tuple[int, ...]
    folded: tuple[int, ...]
    undecided: tuple[int, ...]


@lru_cache(maxsize=32)
def _form(target: Ising, heat_bath: bool, biased: bool) -> Form:
    """Return what code a lattice needs, with a bias or without."""
    n_sides = target.geometry.neighbours.shape[1]
    two_kinds = int(biased and not heat_bath)
    folded = int(not biased and heat_bath and target.periodic)
    n_undecided = (n_sides + 1) * (1 + two_kinds)
    if folded:
        n_undecided = n_sides // 2 + 1
    elif not biased and not heat_bath and target.coupling >= 0.0:
        n_undecided = n_sides // 2  # the other flips do not cost energy
    lengths = n_sides, n_sides // 2, two_kinds, folded, n_undecided
    return Form(*((0,) * length for length in lengths))


@dataclass(frozen=True)
class _SpinKernel(VisitKernel):
    """What heat bath and Metropolis share; see there."""

    orders = ("checkerboard", "sequential", "random")

    heat_bath: ClassVar[bool]

    def advance(
        self, path: Any, state: Spins, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Spins, MoveInfo]:
        """Move every member; see ``contracts.Kernel``."""
        state = replace(state, planes=state.planes.copy())
        passage = self.pass_through(path, state, np.array([beta]), streams)
        return passage.state, MoveInfo(float(passage.acceptance[0]), passage.n_evaluations)

    def pass_through(
        self, path: Any, state: Spins, beta: Floats, streams: NDArray[np.uint64]
    ) -> Passage:
        """Move every member at every inverse temperature; see ``contracts.StageKernel``."""
        target: Ising = path.target
        n_stages = len(beta)
        # counts before the first stage and after each
        unlike = np.empty((n_stages + 1, len(state)), np.int32)
        up = np.empty((n_stages + 1, len(state) if path.needs_counts else 0), np.int32)
        unlike[0] = state.unlike
        if path.needs_counts:
            up[0] = state.n_up()
        field = path.field(beta)
        bias = np.where(field != 0.0, -field, 2.0 * beta * target.field)
        changed = np.empty(n_stages)
        biased = bias != 0.0
        edges = np.flatnonzero(biased[1:] != biased[:-1]) + 1  # where other code is needed
        for first, stop in pairwise([0, *edges, n_stages]):
            stages, rows = slice(first, stop), slice(first, stop + 1)
            _pass(
                state.planes,
                (self.heat_bath, self.n_sweeps),
                _form(target, self.heat_bath, bool(biased[first])),
                self.sites(target),
                target.geometry,
                (beta[stages] * target.coupling, bias[stages], field[stages]),
                streams,
                (unlike[rows], up[rows], changed[stages]),
            )
        n_moves = len(state) * target.n_dim * self.n_sweeps
        acceptance = np.ones(n_stages) if self.heat_bath else changed / n_moves
        before, after = (
            SpinCounts(unlike[rows], up[rows] if path.needs_counts else None)
            for rows in (slice(-1), slice(1, None))
        )
        moved = replace(state, unlike=unlike[-1], up=up[-1] if path.needs_counts else None)
        return Passage(moved, before, after, acceptance, n_moves * n_stages)


@dataclass(frozen=True)
class SpinHeatBath(_SpinKernel):
    """Draws every spin from its distribution given its neighbours, site by site.

    Parameters
    ----------
    n_sweeps : int
        Number of times that every site is visited.
    order : str
        ``"checkerboard"``, the fastest; ``"sequential"``, for periodic lattices of odd sizes; or
        ``"random"``: sites are drawn with replacement, as many as there are.
    backwards : bool
        Whether sites are visited in the opposite order.

    Notes
    -----
    Exact up to probabilities rounded to 2**-52. Chains ``64 k`` to ``64 k + 63`` share the stream
    of the first of them, each with a bit of its own; chains that share a word are independent of
    each other, and a group of 512 only shares the order of sites. In a detoured path a favoured
    spin is drawn for every chain first, given its state; see ``DetouredPath``.
    """

    heat_bath = True


@dataclass(frozen=True)
class SpinMetropolis(_SpinKernel):
    """Proposes to flip every spin, site by site.

    With ``order="random"`` this is Habeck's (2017) kernel.

    Parameters
    ----------
    n_sweeps, order, backwards
        As for ``SpinHeatBath``.

    Notes
    -----
    Near beta 0 nearly all flips are accepted, so that a sweep in a fixed order only turns all
    spins round and mixes little. Prefer the heat bath. For the rest see there.
    """

    heat_bath = False


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _logistic(x):
    return 1.0 / (1.0 + exp(-x)) if x > -700.0 else 0.0


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _write_digits(probability, column):
    """Write the binary digits of a probability, each as a word of equal bits.

    Row 0 says whether the probability is 1, which no digits after the point can say.
    """
    whole = nb.uint64(round(probability * 2.0**_DIGITS))
    for k in range(_DIGITS + 1):
        digit = (whole >> nb.uint64(_DIGITS - k)) & nb.uint64(1)
        column[k] = nb.uint64(0) - digit  # no branches: digits are as good as random


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _fill_table(table, heat_bath, coupling, bias, degrees):
    """Write the digits of the probability to be unlike the reference spin.

    Parameters
    ----------
    table : uint64 array, shape (n_sides + 1, 53, n_classes)
        By the number of neighbours; digit; and number of neighbours that are unlike, for Metropolis
        moves in a bias first for spins like the favoured one, then for those unlike it.
    heat_bath : bool
        Whether the reference is the favoured spin, and not the present one.
    coupling : float
        Beta times the coupling.
    bias : float
        Log density of a spin unlike the favoured one, over that of one like it, without neighbours.
    degrees : tuple of two ints
        Smallest and largest number of neighbours of any site.
    """
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


@intrinsic
def _renew(
    typingctx: Any,
    planes: Any,
    site: Any,
    reference: Any,
    favoured: Any,
    neighbours: Any,
    generator: Any,
    table: Any,
    degree: Any,
    form: Any,
) -> Any:
    """Set a site of 512 chains to its reference, or, by chance, to the opposite.

    Parameters
    ----------
    planes : uint64 array, shape (n_sites + 1, 8)
    site : int
        The site.
    reference : int
        Row of the spins that the site and its neighbours are compared with.
    favoured : int
        Row of the spins that, with two kinds, tell two kinds of reference apart.
    neighbours : int64 array, shape (n_sites, n_sides)
    generator : uint64 array, shape (4, 8)
        States of eight streams.
    table : uint64 array, shape (n_sides + 1, 53, n_classes)
        Digits of the probability of the opposite.
    degree : int
        Row of the table.
    form : Form
        Says what code is made: for how many neighbours, and for one kind of reference or two.

    Returns
    -------
    int
        How many chains have the opposite.
    """
    signature = types.int64(
        planes, site, reference, favoured, neighbours, generator, table, degree, form
    )

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        spins, others, words, digits = (
            context.make_array(sig.args[k])(context, builder, args[k]).data for k in (0, 4, 5, 6)
        )
        site, n_sides = args[1], len(form[0])
        two, folded, n_undecided = (len(part) for part in form[2:])
        reference = Lanes.load(builder, spins, args[2])
        start = builder.mul(site, WORD(n_sides))
        unlike = []
        for k in range(n_sides):
            other = builder.load(builder.gep(others, [builder.add(start, WORD(k))]))
            unlike.append(reference ^ Lanes.load(builder, spins, other))
        classes = _classes(builder, unlike)
        n_classes = len(classes) * (1 + two)
        turned = Lanes.constant(builder, 0)
        if folded:
            for k in range(n_sides // 2):
                turned = turned | classes[n_sides - k]
                classes[k] = classes[k] | classes[n_sides - k]
            classes = classes[: n_sides // 2 + 1]
        if two:
            own = reference ^ Lanes.load(builder, spins, args[3])
            classes = [c & ~own for c in classes] + [c & own for c in classes]
        size = WORD((_DIGITS + 1) * n_classes)
        digits = builder.gep(digits, [builder.mul(args[7], size)])

        def digit(row: Any, wanted: int = n_undecided) -> Lanes:
            """Return one digit of every chain's probability, of the first classes only."""
            found = Lanes.constant(builder, 0)
            first = builder.mul(row, WORD(n_classes))
            for k, of_class in enumerate(classes[:wanted]):
                word = builder.load(builder.gep(digits, [builder.add(first, WORD(k))]))
                found = found | (of_class & Lanes.spread(builder, word))
            return found

        def compare(row: Any, state: list[Lanes]) -> list[Lanes]:
            """Compare another digit: below makes the opposite, equal leaves it open."""
            opposite, undecided, *generator = state
            random, generator = next_lanes(generator)
            wanted = digit(row)
            opposite = opposite | (undecided & ~random & wanted)
            return [opposite, undecided & ~(random ^ wanted), *generator]

        certain = digit(WORD(0), len(classes))
        state = [certain, ~certain, *(Lanes.load(builder, words, WORD(k)) for k in range(4))]
        for k in range(_ROUNDS):
            state = compare(WORD(k + 1), state)
        opposite, _, *generator = _while_undecided(builder, compare, state)
        opposite = opposite ^ turned
        (reference ^ opposite).store(spins, site)
        for k in range(4):
            generator[k].store(words, WORD(k))
        return opposite.popcount()

    return signature, codegen


def _classes(builder: Any, bits: list[Lanes]) -> list[Lanes]:
    """Return, for every possible number of set bits, which chains have that number."""
    classes = [Lanes.constant(builder, _ONES)]
    for bit in bits:
        without = [c & ~bit for c in classes]
        with_ = [c & bit for c in classes]
        middle = [a | b for a, b in zip(without[1:], with_[:-1], strict=True)]
        classes = [without[0], *middle, with_[-1]]
    return classes


def _while_undecided(builder: Any, compare: Any, state: list[Lanes]) -> list[Lanes]:
    """Compare further digits until all chains are decided or digits run out."""
    before = builder.block
    tail = builder.append_basic_block("further_digits")
    done = builder.append_basic_block("decided")
    builder.cbranch(state[1].any(), tail, done)
    builder.position_at_end(tail)
    row = builder.phi(WORD)
    inside = [Lanes.phi(builder) for _ in state]
    after = compare(row, inside)
    next_row = builder.add(row, WORD(1))
    more = builder.and_(after[1].any(), builder.icmp_unsigned("<", next_row, WORD(_DIGITS + 1)))
    end = builder.block
    row.add_incoming(WORD(_ROUNDS + 1), before)
    row.add_incoming(next_row, end)
    for at_start, first, again in zip(inside, state, after, strict=True):
        at_start.value.add_incoming(first.value, before)
        at_start.value.add_incoming(again.value, end)
    builder.cbranch(more, tail, done)
    builder.position_at_end(done)
    found = [Lanes.phi(builder) for _ in state]
    for at_end, first, again in zip(found, state, after, strict=True):
        at_end.value.add_incoming(first.value, before)
        at_end.value.add_incoming(again.value, end)
    return found


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _pass(planes, moves, form, sites, bonds, stages, streams, out):
    """Move all chains in place through some stages, and count after each.

    Parameters
    ----------
    planes : uint64 array, shape (n_groups, n_sites + 1, 8)
    moves : tuple of bool and int
        Whether sites are compared with the favoured spin (heat bath), and not with themselves
        (Metropolis); number of sweeps.
    form : Form
    sites : int64 array, shape (n_sites,) or (0,)
        Order of sites; drawn at random if empty.
    bonds : Geometry
    stages : tuple of three float64 arrays, shape (n_stages,)
        Beta times coupling; bias, see ``_fill_table``; and log of how much more weight the
        favoured spin has.
    streams : uint64 array, shape (n, 4)
    out : tuple of arrays
        Unlike bonds, shape (n_stages + 1, n), the first row left alone; spins 1, of the same shape
        with the first row given, or (n_stages + 1, 0) where they are not to be counted; sites
        renewed otherwise, shape (n_stages,).
    """
    coupling, bias, field = stages
    unlike, up, changed = out
    changed[:] = 0.0
    n_classes, n_sites = len(form.sides) + 1, planes.shape[1] - 1
    visits = sites.copy() if sites.size else np.empty(n_sites, np.int64)
    table = np.zeros((n_classes, _DIGITS + 1, n_classes * (1 + len(form.two))), np.uint64)
    degrees = bonds.degree.min(), bonds.degree.max()
    for group in range(planes.shape[0]):
        spins, first = planes[group], group * GROUP
        last = min(first + GROUP, unlike.shape[1])
        own = streams[first:last]
        for k in range(coupling.size):
            _favour(spins[-1], field[k], n_sites, up[k, first:last], own)
            _fill_table(table, moves[0], coupling[k], bias[k], degrees)
            n_opposite = _sweep(spins, moves, form, visits, sites.size == 0, bonds, table, own)
            # chains beyond the last member are counted as if they did as the others
            changed[k] += n_opposite * ((last - first) / GROUP)
            count_unlike(spins, bonds.forward, form.axes, unlike[k + 1, first:last])
            if up.size:
                count_up(spins, up[k + 1, first:last])


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _sweep(spins, moves, form, visits, at_random, bonds, table, streams):
    """Move the chains of a group in place; return how many sites were renewed otherwise."""
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
            n_opposite += _renew(
                spins, site, reference, n_sites, neighbours, generator, table, degree, form
            )
    _end(streams, generator)
    return n_opposite


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _favour(row, field, n_sites, up, streams):
    """Draw the favoured spin of every chain given its state; -1 where there is no field."""
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
        # most are certain to the last digit
        if abs(field) * least < _CERTAIN:
            fill_uniform(streams[first], drawn)
            word = nb.uint64(0)
            for bit in range(own.size):
                odds = fast_exp(field * (n_sites - 2 * own[bit]))
                word |= nb.uint64(drawn[bit] * (1.0 + odds) < 1.0) << nb.uint64(bit)
        row[first // 64] = word


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _begin(streams, generator, with_sites):
    """Load the stream of the first chain of each word; return a stream of sites if asked for.

    Words beyond the last chain get copies of the first stream: nothing reads what they hold.
    """
    site_stream = np.zeros(4, np.uint64)
    if with_sites:
        for k in range(4):
            site_stream[k] = next_word(streams[0])
    for word in range(WIDTH):
        generator[:, word] = streams[64 * word if 64 * word < streams.shape[0] else 0]
    return site_stream


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _end(streams, generator):
    """Write the streams back."""
    for word in range(WIDTH):
        if 64 * word < streams.shape[0]:
            streams[64 * word] = generator[:, word]


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _draw_sites(stream, sites):
    """Draw every entry, uniformly but for one in 2**32; any law that ignores the state is exact."""
    n = nb.uint64(sites.size)
    for k in range(sites.size):
        sites[k] = nb.int64(((next_word(stream) >> nb.uint64(32)) * n) >> nb.uint64(32))
