"""Metropolis moves of Potts lattices at random sites, 64 chains side by side."""

from dataclasses import dataclass
from math import exp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count
from pm_evidence.core.codegen.numba import emitted, nb, njit, types
from pm_evidence.core.codegen.vectors import INDEX, Vector
from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import next_word
from pm_evidence.families.lattice.lattice import LatticeKernel, check_no_field
from pm_evidence.families.lattice.potts import ROUNDS, SIDE, WORDS, Colours, fill, seed

_QUARTER = SIDE // 4  # chains whose words of 32 bits fill a vector
_LARGEST_WORD = 2**32 - 1
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


_LARGEST_BITS = 2**64 - 1


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
