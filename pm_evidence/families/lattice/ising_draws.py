"""Draws of a spin of 512 Ising lattices together, one bit per chain, by comparing binary digits.

A uniform number is compared with a probability digit by digit, for all chains at once. A chain is
decided at the first digit that differs. After twelve digits nearly all chains are decided, and up
to 52 digits are compared for the rest. The probability of a chain depends on its class, the number
of its neighbours that are unlike. A table holds the digits for every class.
"""

from collections.abc import Callable
from functools import lru_cache
from math import exp
from typing import Any, NamedTuple

import numpy as np

from pm_evidence.core.codegen import lanes
from pm_evidence.core.codegen.lanes import WORD, next_lanes
from pm_evidence.core.codegen.numba import intrinsic, nb, njit, types
from pm_evidence.core.codegen.vectors import Vector
from pm_evidence.families.lattice.lattice import Lattice

__all__ = ["Form", "empty_table", "fill_table", "form_of", "renew"]

_DIGITS = 52
_ROUNDS = 12  # digits that are always compared; at one in eight sites some of 512 chains need more
_ONES = 2**64 - 1


class Form(NamedTuple):
    """The form of the code to be generated, as lengths of tuples, which numba knows on compiling.

    Parameters
    ----------
    sides : tuple, of as many zeros as a site has neighbours
    axes : tuple, of as many zeros as the lattice has axes
    two : tuple, empty or of one zero
        Whether there are two kinds of references, with different probabilities.
    folded : tuple, empty or of one zero
        Whether the probability with ``k`` unlike neighbours is 1 minus that with all but ``k``.
    undecided : tuple, of as many zeros as there are classes that need digits
        These classes are the first ones. The others have probability 0 or 1.
    """

    sides: tuple[int, ...]
    axes: tuple[int, ...]
    two: tuple[int, ...]
    folded: tuple[int, ...]
    undecided: tuple[int, ...]


@lru_cache(maxsize=32)
def form_of(target: Lattice, heat_bath: bool, biased: bool) -> Form:
    """Return the form of the code that a lattice needs, with a bias or without."""
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


@njit
def empty_table(form):
    """Return a table for ``fill_table``."""
    n_classes = len(form.sides) + 1
    return np.zeros((n_classes, _DIGITS + 1, n_classes * (1 + len(form.two))), np.uint64)


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
    """Write the digits of the probability to be unlike the reference spin.

    Parameters
    ----------
    table : uint64 array, shape (n_sides + 1, 53, n_classes)
        Indexed by the number of neighbours, the digit, and the number of unlike neighbours; for
        Metropolis moves with a bias, first for spins like the favoured one, then for others.
    heat_bath : bool
        Whether the reference is the favoured spin instead of the present one.
    coupling : float
        Beta times the coupling.
    bias : float
        Log of the density of a spin unlike the favoured one over that of one like it, without
        neighbours.
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
def renew(
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
        Row of the spins that distinguish the two kinds of reference, if there are two.
    neighbours : int64 array, shape (n_sites, n_sides)
    generator : uint64 array, shape (4, 8)
        States of eight streams.
    table : uint64 array, shape (n_sides + 1, 53, n_classes)
        Digits of the probability of the opposite.
    degree : int
        Row of the table.
    form : Form
        Form of the code: for how many neighbours, and for one or two kinds of reference.

    Returns
    -------
    int
        Number of chains that have the opposite.
    """
    signature = types.int64(
        planes, site, reference, favoured, neighbours, generator, table, degree, form
    )

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _renew_code(context, builder, sig, args, form)

    return signature, codegen


def _renew_code(context: Any, builder: Any, sig: Any, args: Any, form: Any) -> Any:
    """Emit the code of ``renew``."""
    spins, others, words, digits = (
        context.make_array(sig.args[k])(context, builder, args[k]).data for k in (0, 4, 5, 6)
    )
    site, n_sides = args[1], len(form[0])
    two, folded, n_undecided = (len(part) for part in form[2:])
    reference = lanes.load(builder, spins, args[2])
    start = builder.mul(site, WORD(n_sides))
    unlike = []
    for k in range(n_sides):
        other = builder.load(builder.gep(others, [builder.add(start, WORD(k))]))
        unlike.append(reference ^ lanes.load(builder, spins, other))
    classes, turned = _classes(builder, unlike), lanes.constant(builder, 0)
    n_columns = len(classes) * (1 + two)
    if folded:
        classes, turned = _folded(classes)
    if two:
        own = reference ^ lanes.load(builder, spins, args[3])
        classes = [c & ~own for c in classes] + [c & own for c in classes]
    size = WORD((_DIGITS + 1) * n_columns)
    digits = builder.gep(digits, [builder.mul(args[7], size)])

    def digit(row: Any, wanted: int = n_undecided) -> Vector:
        """Return one digit of every chain's probability, of the first classes only."""
        found = lanes.constant(builder, 0)
        first = builder.mul(row, WORD(n_columns))
        for k, of_class in enumerate(classes[:wanted]):
            word = builder.load(builder.gep(digits, [builder.add(first, WORD(k))]))
            found = found | (of_class & lanes.spread(builder, word))
        return found

    certain = digit(WORD(0), len(classes))
    opposite, generator = _below(builder, certain, digit, words)
    opposite = opposite ^ turned
    lanes.store(reference ^ opposite, spins, site)
    for k in range(4):
        lanes.store(generator[k], words, WORD(k))
    return opposite.popcount()


def _folded(classes: list[Vector]) -> tuple[list[Vector], Vector]:
    """Join every class with its opposite; return also which chains were in the second."""
    n_sides = len(classes) - 1
    turned = classes[0].like(0)
    for k in range(n_sides // 2):
        turned = turned | classes[n_sides - k]
        classes[k] = classes[k] | classes[n_sides - k]
    return classes[: n_sides // 2 + 1], turned


def _below(builder: Any, certain: Vector, digit: Callable, words: Any) -> tuple[Vector, list]:
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

    state = [certain, ~certain, *(lanes.load(builder, words, WORD(k)) for k in range(4))]
    for k in range(_ROUNDS):
        state = compare(WORD(k + 1), state)
    opposite, _, *generator = _while_undecided(builder, compare, state)
    return opposite, generator


def _classes(builder: Any, bits: list[Vector]) -> list[Vector]:
    """Return, for every possible number of set bits, which chains have that number."""
    classes = [lanes.constant(builder, _ONES)]
    for bit in bits:
        without = [c & ~bit for c in classes]
        with_ = [c & bit for c in classes]
        middle = [a | b for a, b in zip(without[1:], with_[:-1], strict=True)]
        classes = [without[0], *middle, with_[-1]]
    return classes


def _while_undecided(builder: Any, compare: Any, state: list[Vector]) -> list[Vector]:
    """Compare further digits until all chains are decided or digits run out."""
    before = builder.block
    tail = builder.append_basic_block("further_digits")
    done = builder.append_basic_block("decided")
    builder.cbranch(state[1].any(), tail, done)
    builder.position_at_end(tail)
    row = builder.phi(WORD)
    inside = [lane.phi() for lane in state]
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
    found = [lane.phi() for lane in state]
    for at_end, first, again in zip(found, state, after, strict=True):
        at_end.value.add_incoming(first.value, before)
        at_end.value.add_incoming(again.value, end)
    return found
