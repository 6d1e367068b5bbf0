"""Heat bath of Potts lattices, 64 chains side by side.

On square lattices all 64 colours of a site are drawn at once (see ``colour_draws``); other lattices
are moved chain by chain.
"""

from dataclasses import dataclass
from math import exp, expm1
from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import uniform
from pm_evidence.kernels.colour_draws import (
    ROUNDS,
    WORDS,
    draw,
    draw_in_field,
    fill,
    seed,
    settle,
    tabulate,
)
from pm_evidence.kernels.lattice import VisitKernel
from pm_evidence.targets.colours import NOBODY, SIDE, Colours, count_colours, count_like
from pm_evidence.targets.lattice import Potts

__all__ = ["ColourHeatBath"]

_LARGEST_LOG_WEIGHT = 600.0  # whose exponential is finite, with room for sums


@dataclass(frozen=True)
class ColourHeatBath(VisitKernel):
    """Draws every colour from its distribution given its neighbours, site by site.

    Parameters
    ----------
    n_sweeps : int
        Number of times that every site is visited.
    order : str
        ``"checkerboard"``, or ``"sequential"`` for periodic lattices of odd sizes.
    backwards : bool
        Whether sites are visited in the opposite order.

    Notes
    -----
    Every chain draws from its own stream only. In a detoured path a favoured colour is drawn for
    every chain first, given its state; see ``DetouredPath``. Lattices of three dimensions and
    negative couplings are moved chain by chain, twenty times slower.
    """

    def advance(
        self, path: Any, state: Colours, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Colours, MoveInfo]:
        """Move every member; see ``contracts.Kernel``."""
        target: Potts = path.target
        geometry = target.geometry
        order = self.sites(target)
        coupling, field = beta * target.coupling, path.field(beta)
        tally = state.counts(target).T.copy() if path.needs_counts else np.empty((0, target.q), int)
        sites, like = state.sites.copy(), np.empty(len(state), np.int64)
        wide = len(target.sizes) == 2 and 0.0 <= 4.0 * coupling + field <= _LARGEST_LOG_WEIGHT
        move = _sweep_wide if wide and coupling >= 0.0 else _sweep_one_by_one
        move(
            sites, geometry.ghosted, order, self.n_sweeps, target.q, coupling, field, streams, tally
        )
        _count(sites, geometry.forward, like, tally)
        moved = Colours(sites, like, state.sizes, tally if path.needs_counts else None)
        return moved, MoveInfo(1.0, len(state) * target.n_dim * self.n_sweeps)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _sweep_wide(sites, neighbours, order, n_sweeps, q, coupling, field, streams, tally):
    """Move all chains of a square lattice in place."""
    words, favoured = np.empty((WORDS + ROUNDS, SIDE), np.uint32), np.zeros(SIDE, np.uint8)
    table, shares = tabulate(q, coupling, field)
    extra, n_sites = expm1(field), len(neighbours)
    for group in range(sites.shape[0]):
        x, first = sites[group], group * SIDE
        last = min(first + SIDE, streams.shape[0])
        own = streams[first:last]
        if field != 0.0:
            _favour(favoured, field, tally[first:last], own)
        seed(own, words)
        n_left = 0
        for _ in range(n_sweeps):
            for i in order:
                if n_left == 0:
                    fill(words)
                    n_left = ROUNDS
                n_left -= 1
                random = words[WORDS + n_left]
                near, degree = _around(neighbours[i], n_sites)
                if field == 0.0:
                    doubtful = draw(x, i, near, favoured, random, table[degree], q)
                else:
                    doubtful = draw_in_field(x, i, near, favoured, random, table[degree], q)
                if doubtful:
                    settle(doubtful, x, i, near, favoured, random, q, shares, extra, own)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _around(sides, n_sites):
    """Return the neighbours of a site, those that are not there last, and the number of others."""
    a, b, c, d = sides[0], sides[1], sides[2], sides[3]
    if max(max(a, b), max(c, d)) < n_sites:
        return (a, b, c, d), 4
    # along each axis there is one at least
    a, b = min(a, b), max(a, b)
    c, d = min(c, d), max(c, d)
    if d < n_sites:
        return (a, c, d, b), 3
    return (a, c, b, d), 3 if b < n_sites else 2


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _sweep_one_by_one(sites, neighbours, order, n_sweeps, q, coupling, field, streams, tally):
    """Move all chains of any lattice in place, at any coupling."""
    weight, favoured = np.empty(q), np.zeros(SIDE, np.uint8)
    n_sides = neighbours.shape[1]
    powers = np.array(
        [exp(coupling * k - max(coupling * n_sides, 0.0)) for k in range(n_sides + 1)]
    )
    boost = exp(field)
    for group in range(sites.shape[0]):
        x, first = sites[group], group * SIDE
        last = min(first + SIDE, streams.shape[0])
        own = streams[first:last]
        if field != 0.0:
            _favour(favoured, field, tally[first:last], own)
        for k in range(last - first):
            for _ in range(n_sweeps):
                for i in order:
                    weight[:] = 0.0
                    for side in range(n_sides):
                        colour = x[neighbours[i, side], k]
                        if colour != NOBODY:
                            weight[colour] += 1.0
                    total = 0.0
                    for colour in range(q):
                        weight[colour] = powers[int(weight[colour])]
                        if field != 0.0 and colour == favoured[k]:
                            weight[colour] *= boost
                        total += weight[colour]
                    t, colour = uniform(own[k]) * total, 0
                    while colour < q - 1 and t >= weight[colour]:
                        t -= weight[colour]
                        colour += 1
                    x[i, k] = colour


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _favour(favoured, field, tally, streams):
    """Draw the favoured colour of every chain given how many sites have each."""
    n, q = tally.shape
    for k in range(n):
        most, total = tally[k].max(), 0.0
        for c in range(q):
            total += exp(field * (tally[k, c] - most))
        t, c = uniform(streams[k]) * total, 0
        while c < q - 1:
            t -= exp(field * (tally[k, c] - most))
            if t < 0.0:
                break
            c += 1
        favoured[k] = c


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _count(sites, forward, like, tally):
    """Count like bonds, and colours if ``tally`` has room."""
    for group in range(sites.shape[0]):
        first = group * SIDE
        count_like(sites[group], forward, like[first : first + SIDE])
        if tally.shape[0]:
            count_colours(sites[group], tally[first : first + SIDE])
