"""Draws of the colours of a site of 64 Potts lattices together, without branches.

The weights of a site's colours are divided into pieces: one of weight 1 for every colour; for each
neighbour an equal share of the weight that its colour gains by all neighbours that have it; and in
a field one for the weight that the favoured colour gains by it. The lengths of pieces depend only
on which neighbours are alike. There are five classes, which differ in the number of pairs of
neighbours that are alike.

Lengths are tabulated in units of 2**-15 of the total weight, rounded down. 15 random bits determine
the piece of a chain; if it is one of the first, 16 other bits determine which. If further bits or
the rounding could change the result, the chain is in doubt: it is given further bits and decided in
double precision. Everything else is integer arithmetic without rounding.
"""

from collections.abc import Callable
from math import expm1
from typing import Any

import numpy as np
from llvmlite import ir

from pm_evidence.core.codegen.numba import intrinsic, nb, njit, types
from pm_evidence.core.codegen.vectors import INDEX, Vector
from pm_evidence.core.random import next_word, uniform
from pm_evidence.families.lattice.potts_state import NOBODY, SIDE

__all__ = [
    "ROUNDS",
    "WORDS",
    "draw",
    "draw_in_field",
    "fill",
    "seed",
    "settle",
    "tabulate",
]

ROUNDS = 8  # random numbers drawn at a time, so that states are read and written less often
WORDS = 4  # of the state of a generator
_LANES = 16  # integers of 32 bits in a vector of 512
_HALF = SIDE // 2  # chains in such a vector with 16 bits each
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
    """Return the lengths of pieces.

    Parameters
    ----------
    q : int
        Number of colours.
    coupling, field : float
        Log weight of a like neighbour, and of being favoured; not negative.

    Returns
    -------
    table : ndarray of uint16, shape (5, 4, n_classes, 32)
        In units of 2**-15 of the total, rounded down; indexed by the number of neighbours, the
        quantity, the class, and copies.
    shares : ndarray, shape (5,)
        Share of a neighbour whose colour so many neighbours have, on the scale of the weights.
    """
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
    @intrinsic
    def draw(
        typingctx: Any,
        sites: Any,
        site: Any,
        near: Any,
        favoured: Any,
        random: Any,
        table: Any,
        q: Any,
    ) -> Any:
        """Draw the colour of a site in 64 chains.

        Parameters
        ----------
        sites : uint8 array, shape (n_sites + 1, 64)
        site : int
        near : tuple of four ints
            Its neighbours; those that do not exist, at most two, come last.
        favoured : uint8 array, shape (64,)
            Favoured colours.
        random : uint32 array, shape (64,)
            Random bits; see ``seed`` for their order.
        table : uint16 array, shape (4, n_classes, 32)
            Lengths of pieces given the number of neighbours.
        q : int
            Number of colours.

        Returns
        -------
        int
            A bit for each chain that is in doubt.
        """
        signature = types.uint64(sites, site, near, favoured, random, table, q)

        return signature, _colour_codegen(codes, in_field)

    return draw


def _colour_codegen(codes: tuple[int, ...], in_field: bool) -> Any:
    """Return the function that emits the code of a draw; see ``_drawing``."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        colours, special, words, rows = (
            context.make_array(sig.args[k])(context, builder, args[k]).data for k in (0, 3, 4, 5)
        )

        def start(site: Any) -> Any:
            return builder.mul(site, INDEX(SIDE))

        def row(what: int, k: int) -> Vector:
            place = INDEX((what * _N_CLASSES + k) * _HALF)
            return Vector.load(builder, rows, place, 16, _HALF)

        sides = [builder.extract_value(args[2], k) for k in range(_SIDES)]
        near = [Vector.load(builder, colours, start(k), 8, SIDE) for k in sides]
        if in_field:
            near.append(Vector.load(builder, special, INDEX(0), 8, SIDE))
        pairs, with_others = _compared(near)
        n_colours = Vector.spread(builder, args[6], 16, _HALF)
        halves = []
        for first in (0, _HALF):
            even, odd = (
                Vector.load(builder, words, INDEX(k + first // 2), 32, _LANES) for k in (0, _HALF)
            )
            code = pairs.part(first, _HALF).resized(16)
            lengths = _lengths(
                code, [paired.part(first, _HALF) for paired in with_others], codes, row
            )
            halves.append(_placed(even, odd, lengths[: len(near)], n_colours))
        colour, doubt, *behind = (a.join(b) for a, b in zip(*halves, strict=True))
        for is_behind, other in zip(behind, near, strict=True):
            colour = is_behind.choose(other, colour)
        colour.store(colours, start(args[1]))
        return doubt.bits()

    return codegen


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


@intrinsic
def _lowest(typingctx: Any, word: Any) -> Any:
    """Return the position of the lowest bit that is set."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.uint64(types.uint64), codegen


@njit
def settle(doubtful, x, i, near, favoured, random, q, shares, extra, streams):
    """Draw again for the chains in doubt, with more bits; see ``draw`` and ``tabulate``."""
    while doubtful:
        k = _lowest(doubtful)
        doubtful &= doubtful - nb.uint64(1)
        if k < nb.uint64(len(streams)):
            colours = x[near[0], k], x[near[1], k], x[near[2], k], x[near[3], k]
            word = random[_place(k)]
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
def _place(k):
    """Return the position of the random bits of a chain: those of even chains come first."""
    k = nb.uint64(k)
    return (k & nb.uint64(1)) * nb.uint64(_HALF) + (k >> nb.uint64(1))


@njit
def seed(streams, words):
    """Seed 64 xoshiro128++ generators from the streams of chains; surplus ones copy the first.

    Parameters
    ----------
    streams : uint64 array, shape (n, 4)
    words : uint32 array, shape (4 + 8, 64)
        Receives the states; then come the numbers that ``fill`` draws. Generators of even chains
        come first, so that two vectors of 32-bit integers become one of their upper halves, in the
        order of the chains, without being shuffled.
    """
    for k in range(SIDE):
        place = _place(k)
        if k < streams.shape[0]:
            for half in range(2):
                word = next_word(streams[k])
                words[2 * half, place] = nb.uint32(word)
                words[2 * half + 1, place] = nb.uint32(word >> nb.uint64(32))
            words[0, place] |= nb.uint32(1)  # all zeros is the only fixed point
        else:
            for part in range(WORDS):
                words[part, place] = words[part, 0]


@intrinsic
def fill(typingctx: Any, words: Any) -> Any:
    """Draw 32 random bits for each chain, eight times (Blackman and Vigna 2021); see ``seed``."""
    signature = types.void(words)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        rows = context.make_array(sig.args[0])(context, builder, args[0]).data

        def place(row: int, first: int) -> Any:
            return INDEX(row * SIDE + first)

        for first in range(0, SIDE, _LANES):
            a, b, c, d = (
                Vector.load(builder, rows, place(k, first), 32, _LANES) for k in range(WORDS)
            )
            for k in range(ROUNDS):
                ((a + d).rotate(7) + a).store(rows, place(WORDS + k, first))
                shifted = b << 9
                c, d = c ^ a, d ^ b
                b, a = b ^ c, a ^ d
                c, d = c ^ shifted, d.rotate(11)
            for k, word in enumerate((a, b, c, d)):
                word.store(rows, place(k, first))
        return context.get_dummy_value()

    return signature, codegen
