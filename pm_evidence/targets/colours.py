"""Populations of Potts lattices, one byte a site, 64 chains side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numba as nb
import numpy as np
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from pm_evidence.core.vectors import INDEX, Vector
from pm_evidence.targets.lattice import Potts

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
Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

SIDE = 64  # chains side by side
NOBODY = 255  # the colour of what lies beyond a free edge
_TURNS = 2


@dataclass(frozen=True, slots=True)
class ColourCounts:
    """What the energies of Potts lattices need.

    Parameters
    ----------
    like : ndarray of int64, shape (..., n)
        Number of bonds between like colours, for every chain.
    tally : ndarray of int64, shape (..., q, n), optional
        Number of sites of each colour; None where nobody asked.
    """

    like: Counts
    tally: Counts | None = None

    def energy(self, target: Potts) -> Floats:
        """Return the energies in nats at beta 1, shape ``(..., n)``."""
        energy: Floats = self.like.astype(float)
        energy *= -target.coupling
        return energy

    def counts(self, target: Potts) -> Counts:
        """Return the number of sites of each colour, shape ``(q, ..., n)``."""
        assert self.tally is not None  # the path that needs them asks for them
        return np.moveaxis(self.tally, -2, 0)


@dataclass(frozen=True, slots=True)
class Colours:
    """A population of Potts lattices, with what their energies need.

    Parameters
    ----------
    sites : ndarray of uint8, shape (n_groups, n_sites + 1, 64)
        Colours; the last axis holds chains. The last row lies beyond free edges. The last group may
        hold chains beyond the last member, which nothing reads.
    like : ndarray of int64, shape (n,)
        Number of bonds between like colours, for every chain.
    sizes : tuple of ints
        Number of sites along each axis.
    tally : ndarray of int64, shape (q, n), optional
        Number of sites of each colour; None where nobody asked.
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

    def energy(self, target: Potts) -> Floats:
        """Return the energies in nats at beta 1, shape ``(n,)``."""
        return ColourCounts(self.like).energy(target)

    def counts(self, target: Potts) -> Counts:
        """Return the number of sites of each colour, shape ``(q, n)``."""
        if self.tally is not None:
            return self.tally
        tally = np.empty((target.q, len(self)), np.int64)
        for group, first in enumerate(range(0, len(self), SIDE)):
            count_colours(self.sites[group], tally[:, first : first + SIDE])
        return tally

    def rows(self) -> Bytes:
        """Return a chain a row, shape ``(n, n_sites)``."""
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


def colours_of(rows: NDArray[Any], target: Potts) -> Colours:
    """Return the population of states, shape ``(n, n_sites)``, with its counts."""
    return _counted(pack_colours(rows), len(rows), target)


def draw_colours(target: Potts, n: int, seed: np.random.SeedSequence) -> Colours:
    """Return ``n`` states of independent sites, all colours alike probable."""
    shape = -(-n // SIDE), target.n_dim + 1, SIDE
    sites = np.random.default_rng(seed).integers(target.q, size=shape, dtype=np.uint8)
    sites[:, -1] = NOBODY
    return _counted(sites, n, target)


def _counted(sites: Bytes, n: int, target: Potts) -> Colours:
    like, forward = np.empty(n, np.int64), target.geometry.forward
    for group, first in enumerate(range(0, n, SIDE)):
        count_like(sites[group], forward, like[first : first + SIDE])
    return Colours(sites, like, target.sizes)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def count_like(sites, forward, out):
    """Count the like bonds of the chains of a group.

    Parameters
    ----------
    sites : uint8 array, shape (n_sites + 1, 64)
    forward : int64 array, shape (n_sites, n_axes)
        A site that is its own neighbour has none there.
    out : int64 array, shape (n,)
        Receives the counts; n is at most 64.
    """
    n_sites, n_axes = forward.shape
    # sums of their own for some sites in turn, for none to wait for the one before
    n_sums = _TURNS * n_axes
    total, few = np.zeros((n_sums, SIDE), np.int64), np.zeros((n_sums, SIDE), np.uint8)
    for first in range(0, n_sites, 255):
        for i in range(first, min(first + 255, n_sites)):
            for axis in range(n_axes):
                j = forward[i, axis]
                if j != i:
                    _add_equal(sites, i, sites, j, few, i % _TURNS * n_axes + axis)
        _spill(few, total)
    out[:] = total.sum(axis=0)[: out.size]


@nb.njit(cache=True, nogil=True, error_model="numpy")
def count_colours(sites, out):
    """Count the sites of each colour; ``out`` has shape (q, n). See ``count_like``."""
    n_sites, q = sites.shape[0] - 1, out.shape[0]
    total, few = np.zeros((q, SIDE), np.int64), np.zeros((q, SIDE), np.uint8)
    colours = np.empty((q, SIDE), np.uint8)
    for c in range(q):
        colours[c] = c
    for first in range(0, n_sites, 255):
        for i in range(first, min(first + 255, n_sites)):
            for c in range(q):
                _add_equal(sites, i, colours, c, few, c)
        _spill(few, total)
    out[:] = total[:, : out.shape[1]]


@intrinsic
def _add_equal(typingctx: Any, a: Any, i: Any, b: Any, j: Any, few: Any, k: Any) -> Any:
    """Add 1 to row ``k`` of ``few`` wherever row ``i`` of ``a`` equals row ``j`` of ``b``."""
    signature = types.void(a, i, b, j, few, k)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        def row(array: int, index: int) -> tuple[Any, Any]:
            pointer = context.make_array(sig.args[array])(context, builder, args[array]).data
            number = builder.sext(args[index], INDEX) if sig.args[index].bitwidth < 64 else None
            return pointer, builder.mul(number or args[index], INDEX(SIDE))

        one, other, sums = (
            Vector.load(builder, *row(array, array + 1), 8, SIDE) for array in (0, 2, 4)
        )
        (sums + one.equals(other).resized(8)).store(*row(4, 5))
        return context.get_dummy_value()

    return signature, codegen


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _spill(few, total):
    for k in range(few.shape[0]):
        for c in range(SIDE):
            total[k, c] += nb.int64(few[k, c])
            few[k, c] = 0
