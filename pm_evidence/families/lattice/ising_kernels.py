"""Moves of single Ising spins for 512 chains at a time, one bit per spin.

Every chain has its own random bits (see ``ising_draws``). Chains share the order of sites, which is
drawn independently of their states.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen.fast_math import fast_exp
from pm_evidence.core.codegen.lanes import WIDTH
from pm_evidence.core.codegen.numba import nb, njit
from pm_evidence.core.contracts import MoveInfo, StageBatch
from pm_evidence.core.random import fill_uniform, next_word
from pm_evidence.families.lattice.ising_draws import empty_table, fill_table, form_of, renew
from pm_evidence.families.lattice.ising_state import (
    GROUP,
    SpinCounts,
    Spins,
    count_unlike,
    count_up,
)
from pm_evidence.families.lattice.lattice import Lattice
from pm_evidence.families.lattice.sweep import VisitKernel

__all__ = ["SpinHeatBath", "SpinMetropolis"]

Floats = NDArray[np.float64]

_CERTAIN = 40.0  # log odds that a uniform number of 52 bits cannot distinguish from infinity


@dataclass(frozen=True)
class _SpinKernel(VisitKernel):
    """The base of heat bath and Metropolis kernels."""

    orders = ("checkerboard", "sequential", "random")
    values = ("spins",)
    n_together = GROUP

    heat_bath: ClassVar[bool]

    def advance(
        self, path: Any, state: Spins, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Spins, MoveInfo]:
        """Move every member; see ``contracts.Kernel``."""
        state = replace(state, planes=state.planes.copy())
        batch = self.advance_many(path, state, np.array([beta]), streams)
        return batch.state, MoveInfo(float(batch.acceptance[0]), batch.n_evaluations)

    def advance_many(
        self, path: Any, state: Spins, beta: Floats, streams: NDArray[np.uint64]
    ) -> StageBatch:
        """Move every member at every inverse temperature; see ``contracts.BatchedKernel``."""
        target: Lattice = path.target
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
        edges = np.flatnonzero(biased[1:] != biased[:-1]) + 1  # the code differs with a bias
        for first, stop in pairwise([0, *edges, n_stages]):
            stages, rows = slice(first, stop), slice(first, stop + 1)
            _pass(
                state.planes,
                (self.heat_bath, self.n_sweeps),
                form_of(target, self.heat_bath, bool(biased[first])),
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
        return StageBatch(moved, before, after, acceptance, n_moves * n_stages)


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
    Exact, except that probabilities are rounded to 2**-52. Chains ``64 k`` to ``64 k + 63`` share
    the stream of the first of them, each with its own bit. Chains that share a word are independent
    of each other, and a group of 512 only shares the order of sites. On a detoured path a favoured
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
    Near beta 0 nearly all flips are accepted, so that a sweep in a fixed order only reverses all
    spins and mixes little. The heat bath is preferable. See ``SpinHeatBath`` for the other notes.
    """

    heat_bath = False


@njit
def _pass(planes, moves, form, sites, bonds, stages, streams, out):
    """Move all chains in place through some stages, and count after each.

    Parameters
    ----------
    planes : uint64 array, shape (n_groups, n_sites + 1, 8)
    moves : tuple of bool and int
        Whether sites are compared with the favoured spin (heat bath) instead of themselves
        (Metropolis); number of sweeps.
    form : Form
    sites : int64 array, shape (n_sites,) or (0,)
        Order of sites; drawn at random if empty.
    bonds : Geometry
    stages : tuple of three float64 arrays, shape (n_stages,)
        Beta times coupling; bias, see ``fill_table``; and log of the factor by which the favoured
        spin has more weight.
    streams : uint64 array, shape (n, 4)
    out : tuple of arrays
        Unlike bonds, shape (n_stages + 1, n), whose first row is not changed; spins 1, of the same
        shape with the first row given, or (n_stages + 1, 0) if they are not to be counted; number
        of sites set to the opposite, shape (n_stages,).
    """
    coupling, bias, field = stages
    unlike, up, changed = out
    changed[:] = 0.0
    n_sites = planes.shape[1] - 1
    visits = sites.copy() if sites.size else np.empty(n_sites, np.int64)
    table = empty_table(form)
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
            count_unlike(spins, bonds.forward, form.axes, unlike[k + 1, first:last])
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
