"""Populations of Potts lattices, one byte per site, 64 chains side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen.numba import intrinsic, nb, njit, types
from pm_evidence.core.codegen.vectors import INDEX, Vector
from pm_evidence.families.lattice.lattice import Lattice

__all__ = [
    "NOBODY",
    "SIDE",
    "ColourCounts",
    "Colours",
    "colours_of",
    "count_colours",
    "count_like",
    "draw_colours",
    "pack_colours",
]

Bytes = NDArray[np.uint8]
Counts = NDArray[np.int32]
Floats = NDArray[np.float64]

SIDE = 64  # chains side by side
NOBODY = 255  # the colour of what lies beyond a free edge
_HALF = SIDE // 2  # longer vectors are compared more slowly
_LARGEST_BYTE = 255
_RUN = (0,) * 8  # sites that are counted at once; only the length is used


@dataclass(frozen=True, slots=True)
class ColourCounts:
    """The counts that the energies of Potts lattices need.

    Parameters
    ----------
    like : ndarray of int32, shape (..., n)
        Number of bonds between like colours, for every chain.
    tally : ndarray of int32, shape (..., q, n), optional
        Number of sites of each colour; None if they were not counted.
    """

    like: Counts
    tally: Counts | None = None

    def energy(self, target: Lattice) -> Floats:
        """Return the energies in nats at beta 1, shape ``(..., n)``."""
        energy: Floats = self.like.astype(float)
        energy *= -target.coupling
        return energy

    def counts(self, target: Lattice) -> Counts:
        """Return the number of sites of each colour, shape ``(q, ..., n)``."""
        assert self.tally is not None  # they are counted if the path needs them
        return np.moveaxis(self.tally, -2, 0)


@dataclass(frozen=True, slots=True)
class Colours:
    """A population of Potts lattices, with the counts that their energies need.

    Parameters
    ----------
    sites : ndarray of uint8, shape (n_groups, n_sites + 1, 64)
        Colours; the last axis holds chains. The last row lies beyond free edges. The last group may
        hold chains beyond the last member, which are never read.
    like : ndarray of int32, shape (n,)
        Number of bonds between like colours, for every chain.
    sizes : tuple of ints
        Number of sites along each axis.
    tally : ndarray of int32, shape (q, n), optional
        Number of sites of each colour; None if they were not counted.
    """

    sites: Bytes
    like: Counts
    sizes: tuple[int, ...]
    tally: Counts | None = None

    def __len__(self) -> int:
        return len(self.like)

    def take(self, index: NDArray[np.int64]) -> Self:
        """Return the members at ``index`` as a new population."""
        index = np.arange(len(self))[index]
        tally = None if self.tally is None else self.tally[:, index]
        return type(self)(pack_colours(self.rows()[index]), self.like[index], self.sizes, tally)

    def join(self, others: Sequence[Self]) -> Self:
        """Return this population followed by ``others``."""
        parts = [self, *others]
        tallies = [part.tally for part in parts if part.tally is not None]
        return type(self)(
            pack_colours(np.concatenate([part.rows() for part in parts])),
            np.concatenate([part.like for part in parts]),
            self.sizes,
            np.concatenate(tallies, axis=1) if len(tallies) == len(parts) else None,
        )

    def to_draws(self) -> Bytes:
        """Return colours from 0 on, shape ``(n, *sizes)``."""
        return np.ascontiguousarray(self.rows()).reshape(len(self), *self.sizes)

    def energy(self, target: Lattice) -> Floats:
        """Return the energies in nats at beta 1, shape ``(n,)``."""
        return ColourCounts(self.like).energy(target)

    def counts(self, target: Lattice) -> Counts:
        """Return the number of sites of each colour, shape ``(q, n)``."""
        if self.tally is not None:
            return self.tally
        tally = np.empty((target.n_colours, len(self)), np.int32)
        for group, first in enumerate(range(0, len(self), SIDE)):
            count_colours(self.sites[group], tally[:, first : first + SIDE])
        return tally

    def rows(self) -> Bytes:
        """Return the colours, one chain per row, shape ``(n, n_sites)``."""
        chains = self.sites[:, :-1].transpose(0, 2, 1)
        return chains.reshape(-1, chains.shape[2])[: len(self)]


def pack_colours(rows: NDArray[Any]) -> Bytes:
    """Return the sites of states, shape ``(n, n_sites)``; see ``Colours``."""
    n, n_sites = rows.shape
    full = np.zeros((-(-n // SIDE) * SIDE, n_sites), np.uint8)
    full[:n] = rows
    sites = np.empty((len(full) // SIDE, n_sites + 1, SIDE), np.uint8)
    sites[:, :-1] = full.reshape(-1, SIDE, n_sites).transpose(0, 2, 1)
    sites[:, -1] = NOBODY
    return sites


def colours_of(rows: NDArray[Any], target: Lattice) -> Colours:
    """Return the population of states, shape ``(n, n_sites)``, with its counts."""
    return _counted(pack_colours(rows), len(rows), target)


def draw_colours(target: Lattice, n: int, seed: np.random.SeedSequence) -> Colours:
    """Return ``n`` states of independent sites, where all colours have equal probability."""
    shape = -(-n // SIDE), target.n_dim + 1, SIDE
    sites = np.random.default_rng(seed).integers(target.n_colours, size=shape, dtype=np.uint8)
    sites[:, -1] = NOBODY
    return _counted(sites, n, target)


def _counted(sites: Bytes, n: int, target: Lattice) -> Colours:
    like, ghosted = np.empty(n, np.int32), target.geometry.ghosted
    axes = (0,) * len(target.sizes)
    for group, first in enumerate(range(0, n, SIDE)):
        count_like(sites[group], ghosted, axes, like[first : first + SIDE])
    return Colours(sites, like, target.sizes)


@njit
def count_like(sites, ghosted, axes, out):
    """Count the like bonds of the chains of a group.

    Parameters
    ----------
    sites : uint8 array, shape (n_sites + 1, 64)
    ghosted : int64 array, shape (n_sites, 2 * n_axes)
        Neighbours of every site, along each axis the next one first.
    axes : tuple of n_axes ints
        Only its length is used.
    out : int32 array, shape (n,)
        Receives the counts; n is at most 64.
    """
    total, few = np.zeros((1, SIDE), np.int32), np.zeros((1, SIDE), np.uint8)
    n_sites, room = ghosted.shape[0], _LARGEST_BYTE // len(axes) // len(_RUN) * len(_RUN)
    for start in range(0, n_sites, room):
        stop = min(start + room, n_sites)
        whole = start + (stop - start) // len(_RUN) * len(_RUN)
        for site in range(start, whole, len(_RUN)):
            _add_like(sites, site, ghosted, few, axes, _RUN)
        for site in range(whole, stop):
            _add_like(sites, site, ghosted, few, axes, (0,))
        _spill(few, total)
    out[:] = total[0, : out.size]


@njit
def count_colours(sites, out):
    """Count the sites of each colour; ``out`` has shape (q, n). See ``count_like``."""
    n_sites, q = sites.shape[0] - 1, out.shape[0]
    total, few = np.zeros((q, SIDE), np.int32), np.zeros((q, SIDE), np.uint8)
    total[-1] = n_sites  # the last colour has all sites that the others do not have
    room = _LARGEST_BYTE // len(_RUN) * len(_RUN)
    for start in range(0, n_sites, room):
        stop = min(start + room, n_sites)
        whole = start + (stop - start) // len(_RUN) * len(_RUN)
        for colour in range(q - 1):
            for site in range(start, whole, len(_RUN)):
                _add_colour(sites, site, colour, few, _RUN)
            for site in range(whole, stop):
                _add_colour(sites, site, colour, few, (0,))
        _spill(few, total)
    for colour in range(q - 1):
        total[-1] -= total[colour]
    out[:] = total[:, : out.shape[1]]


@intrinsic
def _add_like(
    typingctx: Any, sites: Any, first: Any, ghosted: Any, few: Any, axes: Any, run: Any
) -> Any:
    """Add the like bonds of a run of sites with their next neighbours to the row of ``few``."""
    signature = types.void(sites, first, ghosted, few, axes, run)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        colours, others, sums = (
            context.make_array(sig.args[k])(context, builder, args[k]).data for k in (0, 2, 3)
        )
        pairs = []
        for k in range(len(sig.args[5])):
            site = builder.add(args[1], INDEX(k))
            start = builder.mul(site, INDEX(2 * len(sig.args[4])))
            for axis in range(len(sig.args[4])):
                place = builder.add(start, INDEX(2 * axis))
                pairs.append((site, builder.load(builder.gep(others, [place]))))
        for first in (0, _HALF):
            like = [
                _load(builder, colours, site, first).equals(_load(builder, colours, other, first))
                for site, other in pairs
            ]
            _add_ones(builder, sums, INDEX(0), first, like)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def _add_colour(typingctx: Any, sites: Any, first: Any, colour: Any, few: Any, run: Any) -> Any:
    """Add the number of sites of a run that have a colour to the row of that colour in ``few``."""
    signature = types.void(sites, first, colour, few, run)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        colours, sums = (
            context.make_array(sig.args[k])(context, builder, args[k]).data for k in (0, 3)
        )
        wanted = Vector.spread(builder, args[2], 8, _HALF)
        sites = [builder.add(args[1], INDEX(k)) for k in range(len(sig.args[4]))]
        for first in (0, _HALF):
            like = [_load(builder, colours, site, first).equals(wanted) for site in sites]
            _add_ones(builder, sums, args[2], first, like)
        return context.get_dummy_value()

    return signature, codegen


def _load(builder: Any, array: Any, row: Any, first: int) -> Vector:
    """Return half of a row, from ``first`` on."""
    return Vector.load(builder, array, _place(builder, row, first), 8, _HALF)


def _place(builder: Any, row: Any, first: int) -> Any:
    return builder.add(builder.mul(row, INDEX(SIDE)), INDEX(first))


def _add_ones(builder: Any, few: Any, row: Any, first: int, masks: list[Vector]) -> None:
    """Add 1 to half of a row of ``few`` where a mask is set, for all masks."""
    total = _load(builder, few, row, first)
    for mask in masks:
        total = total + mask.resized(8)
    total.store(few, _place(builder, row, first))


@njit
def _spill(few, total):
    for k in range(few.shape[0]):
        for c in range(SIDE):
            total[k, c] += nb.int32(few[k, c])
            few[k, c] = 0
