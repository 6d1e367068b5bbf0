"""Heat bath of Potts lattices, 64 chains side by side.

On square lattices all 64 colours of a site are drawn at once (see ``potts_draws``); other lattices
are moved chain by chain.
"""

from dataclasses import dataclass, replace
from math import exp, expm1
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen.fast_math import fast_exp
from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.contracts import MoveInfo, StageBatch
from pm_evidence.core.random import uniform
from pm_evidence.families.lattice.lattice import Lattice
from pm_evidence.families.lattice.potts_draws import (
    ROUNDS,
    WORDS,
    draw,
    draw_in_field,
    fill,
    seed,
    settle,
    tabulate,
)
from pm_evidence.families.lattice.potts_state import (
    NOBODY,
    SIDE,
    ColourCounts,
    Colours,
    count_colours,
    count_like,
)
from pm_evidence.families.lattice.sweep import VisitKernel

__all__ = ["ColourHeatBath"]

Floats = NDArray[np.float64]

_LARGEST_LOG_WEIGHT = 600.0  # the exponential, and sums of it, are finite


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
    Every chain draws from its own stream only. On a detoured path a favoured colour is drawn for
    every chain first, given its state; see ``DetouredPath``. Lattices with three dimensions or a
    negative coupling are moved chain by chain, which is twenty times slower.
    """

    values = ("colours",)

    def advance(
        self, path: Any, state: Colours, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Colours, MoveInfo]:
        """Move every member; see ``contracts.Kernel``."""
        state = replace(state, sites=state.sites.copy())
        batch = self.advance_many(path, state, np.array([beta]), streams)
        return batch.state, MoveInfo(1.0, batch.n_evaluations)

    def advance_many(
        self, path: Any, state: Colours, beta: Floats, streams: NDArray[np.uint64]
    ) -> StageBatch:
        """Move every member at every inverse temperature; see ``contracts.BatchedKernel``."""
        target: Lattice = path.target
        coupling, field = beta * target.coupling, path.field(beta)
        n, n_stages = len(state), len(beta)
        # counts before the first stage and after each
        like = np.empty((n_stages + 1, n), np.int32)
        tally = np.empty((n_stages + 1, target.n_colours, n if path.needs_counts else 0), np.int32)
        like[0] = state.like
        if path.needs_counts:
            tally[0] = state.counts(target)
        wide = len(target.sizes) == 2 and target.coupling >= 0.0
        wide = wide and (4.0 * coupling + field).max() <= _LARGEST_LOG_WEIGHT
        go = _pass_wide if wide else _pass_one_by_one
        orders = self.sites(target), self.n_sweeps, (0,) * len(target.sizes)
        go(
            state.sites,
            target.geometry,
            orders,
            target.n_colours,
            (coupling, field),
            streams,
            (like, tally),
        )
        before, after = (
            ColourCounts(like[rows], tally[rows] if path.needs_counts else None)
            for rows in (slice(-1), slice(1, None))
        )
        moved = replace(state, like=like[-1], tally=tally[-1] if path.needs_counts else None)
        n_evaluations = n * target.n_dim * self.n_sweeps * n_stages
        return StageBatch(moved, before, after, np.ones(n_stages), n_evaluations)


@njit
def _pass_wide(sites, bonds, orders, q, stages, streams, counts):
    """Move all chains of a square lattice in place through some stages, and count after each.

    Parameters
    ----------
    sites : uint8 array, shape (n_groups, n_sites + 1, 64)
    bonds : Geometry
    orders : tuple
        Sites in the order of visits, shape (n_sites,); the number of sweeps; and as many zeros as
        the lattice has axes, so that their number is known on compiling.
    q : int
    stages : tuple of two float64 arrays, shape (n_stages,)
        Log weight of a like neighbour, and of the favoured colour.
    streams : uint64 array, shape (n, 4)
    counts : tuple of int32 arrays
        Like bonds, shape (n_stages + 1, n), whose first row is not changed; sites of each colour,
        shape (n_stages + 1, q, n) with the first given, or (n_stages + 1, q, 0) if they are not to
        be counted.
    """
    coupling, field = stages
    like, tally = counts
    words, favoured = np.empty((WORDS + ROUNDS, SIDE), np.uint32), np.zeros(SIDE, np.uint8)
    tables = [tabulate(q, coupling[k], field[k]) for k in range(coupling.size)]
    for group in range(sites.shape[0]):
        x, first = sites[group], group * SIDE
        last = min(first + SIDE, streams.shape[0])
        own = streams[first:last]
        for k in range(coupling.size):
            _favour(favoured, field[k], tally[k, :, first:last], own)
            seed(own, words)
            table, shares = tables[k]
            _sweep_wide(x, bonds.ghosted, orders, q, field[k], favoured, words, table, shares, own)
            count_like(x, bonds.ghosted, orders[2], like[k + 1, first:last])
            if tally.size:
                count_colours(x, tally[k + 1, :, first:last])


@njit
def _sweep_wide(x, neighbours, orders, q, field, favoured, words, table, shares, streams):
    """Move 64 chains in place, all at a time."""
    order, n_sweeps, _ = orders
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
def _pass_one_by_one(sites, bonds, orders, q, stages, streams, counts):
    """Move all chains of any lattice in place, at any coupling; see ``_pass_wide``."""
    coupling, field = stages
    like, tally = counts
    favoured = np.zeros(SIDE, np.uint8)
    for group in range(sites.shape[0]):
        x, first = sites[group], group * SIDE
        last = min(first + SIDE, streams.shape[0])
        own = streams[first:last]
        for k in range(coupling.size):
            _favour(favoured, field[k], tally[k, :, first:last], own)
            for c in range(last - first):
                _sweep_one(
                    x[:, c], bonds.ghosted, orders, q, coupling[k], field[k], favoured[c], own[c]
                )
            count_like(x, bonds.ghosted, orders[2], like[k + 1, first:last])
            if tally.size:
                count_colours(x, tally[k + 1, :, first:last])


@njit
def _sweep_one(x, neighbours, orders, q, coupling, field, favoured, stream):
    """Move one chain in place."""
    order, n_sweeps, _ = orders
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
