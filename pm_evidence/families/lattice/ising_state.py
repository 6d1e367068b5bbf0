"""Populations of Ising lattices, one bit per spin: 64 chains share a word."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen import lanes
from pm_evidence.core.codegen.lanes import WIDTH, WORD
from pm_evidence.core.codegen.numba import intrinsic, nb, njit, types
from pm_evidence.core.codegen.vectors import INDEX, Vector
from pm_evidence.families.lattice.lattice import Lattice

__all__ = [
    "GROUP",
    "SpinCounts",
    "Spins",
    "count_unlike",
    "count_up",
    "draw_spins",
    "empty_planes",
    "pack",
    "spins_of",
    "unpack",
]

Counts = NDArray[np.int32]
Floats = NDArray[np.float64]
Planes = NDArray[np.uint64]

GROUP = 64 * WIDTH  # chains that are moved together
# A count is kept in planes: bit p of chain c is bit c of plane p. As many sites as possible are
# first added up in a few low planes, and then carried to the high ones, few of which change often.
_LOW, _OFTEN, _HIGH = 8, 12, 32
_NUMBER = 16  # planes that are read at once
_RUN = (0,) * 8  # sites that are added at once; only the length is used


@dataclass(frozen=True, slots=True)
class SpinCounts:
    """The counts that the energies of Ising lattices need.

    Parameters
    ----------
    unlike : ndarray of int32, shape (..., n)
        Number of bonds between unlike spins, for every chain.
    up : ndarray of int32, shape (..., n), optional
        Number of spins that are 1; None if they were not counted.
    """

    unlike: Counts
    up: Counts | None = None

    def n_up(self) -> Counts:
        """Return the number of spins that are 1, shape ``(..., n)``."""
        assert self.up is not None  # they are counted if the path needs them
        return self.up

    def energy(self, target: Lattice) -> Floats:
        """Return the energies in nats at beta 1, shape ``(..., n)``."""
        energy: Floats = self.unlike.astype(float)
        energy *= 2.0 * target.coupling
        energy -= target.coupling * target.n_bonds
        if target.field:
            energy -= target.field * (2 * self.n_up() - target.n_dim)
        return energy

    def counts(self, target: Lattice) -> Counts:
        """Return the numbers of spins -1 and 1, shape ``(2, ..., n)``."""
        up = self.n_up()
        return np.stack([target.n_dim - up, up])


@dataclass(frozen=True, slots=True)
class Spins:
    """A population of Ising lattices, with the counts that their energies need.

    Parameters
    ----------
    planes : ndarray of uint64, shape (n_groups, n_sites + 1, 8)
        Bit ``c % 64`` of word ``c // 64`` is chain ``c`` of a group of 512; a set bit is spin 1.
        The last row is scratch space of the kernels. The last group may hold chains beyond the last
        member, which are never read.
    unlike : ndarray of int32, shape (n,)
        Number of bonds between unlike spins, for every chain.
    sizes : tuple of ints
        Number of sites along each axis.
    up : ndarray of int32, shape (n,), optional
        Number of spins that are 1; None if they were not counted.
    """

    planes: Planes
    unlike: Counts
    sizes: tuple[int, ...]
    up: Counts | None = None

    def __len__(self) -> int:
        return len(self.unlike)

    def take(self, index: NDArray[np.int64]) -> Self:
        """Return the members at ``index`` as a new population."""
        index = np.arange(len(self))[index]
        planes = empty_planes(len(index), self.planes.shape[1] - 1)
        _gather(self.planes, index, planes, 0)
        up = None if self.up is None else self.up[index]
        return type(self)(planes, self.unlike[index], self.sizes, up)

    def join(self, others: Sequence[Self]) -> Self:
        """Return this population followed by ``others``."""
        parts = [self, *others]
        planes = empty_planes(sum(map(len, parts)), self.planes.shape[1] - 1)
        first = 0
        for part in parts:
            _gather(part.planes, np.arange(len(part)), planes, first)
            first += len(part)
        unlike = np.concatenate([part.unlike for part in parts])
        ups = [part.up for part in parts if part.up is not None]
        up = np.concatenate(ups) if len(ups) == len(parts) else None
        return type(self)(planes, unlike, self.sizes, up)

    def to_draws(self) -> NDArray[np.int8]:
        """Return spins of -1 and 1, shape ``(n, *sizes)``."""
        return unpack(self.planes, len(self)).reshape(len(self), *self.sizes)

    def energy(self, target: Lattice) -> Floats:
        """Return the energies in nats at beta 1, shape ``(n,)``."""
        return SpinCounts(self.unlike, self.n_up() if target.field else None).energy(target)

    def counts(self, target: Lattice) -> Counts:
        """Return the numbers of spins -1 and 1, shape ``(2, n)``."""
        return SpinCounts(self.unlike, self.n_up()).counts(target)

    def n_up(self) -> Counts:
        """Return the number of spins that are 1, shape ``(n,)``."""
        if self.up is not None:
            return self.up
        up = np.empty(len(self), np.int32)
        for group, first in enumerate(range(0, len(self), GROUP)):
            count_up(self.planes[group], up[first : first + GROUP])
        return up


def empty_planes(n: int, n_sites: int) -> Planes:
    """Return planes of ``n`` chains, all spins -1."""
    return np.zeros((-(-n // GROUP), n_sites + 1, WIDTH), np.uint64)


def spins_of(planes: Planes, n: int, target: Lattice) -> Spins:
    """Return the population of the first ``n`` chains, with its counts."""
    unlike, forward = np.empty(n, np.int32), target.geometry.forward
    for group, first in enumerate(range(0, n, GROUP)):
        part = slice(first, first + GROUP)
        count_unlike(planes[group], forward, (0,) * forward.shape[1], unlike[part])
    return Spins(planes, unlike, target.sizes)


def draw_spins(target: Lattice, n: int, seed: np.random.SeedSequence) -> Spins:
    """Return ``n`` states of independent spins, where 1 and -1 have equal probability."""
    planes = empty_planes(n, target.n_dim)
    shape = len(planes), target.n_dim, WIDTH
    planes[:, :-1] = np.random.default_rng(seed).integers(2**64, size=shape, dtype=np.uint64)
    return spins_of(planes, n, target)


def pack(draws: NDArray[Any]) -> Planes:
    """Return the planes of spins of -1 and 1, shape ``(n, n_sites)``."""
    planes = empty_planes(len(draws), draws.shape[1])
    _pack(np.ascontiguousarray(draws, np.int8), planes)
    return planes


def unpack(planes: Planes, n: int) -> NDArray[np.int8]:
    """Return the first ``n`` chains as spins of -1 and 1, shape ``(n, n_sites)``."""
    draws = np.empty((n, planes.shape[1] - 1), np.int8)
    _unpack(planes, draws)
    return draws


@njit
def _pack(draws, planes):
    for c in range(draws.shape[0]):
        group, word, bit = c // GROUP, c % GROUP // 64, nb.uint64(c % 64)
        for i in range(draws.shape[1]):
            planes[group, i, word] |= nb.uint64(draws[c, i] > 0) << bit


@njit
def _unpack(planes, draws):
    n, n_sites = draws.shape
    words = np.empty(n_sites, np.uint64)
    for first in range(0, n, 64):
        words[:] = planes[first // GROUP, :n_sites, first % GROUP // 64]
        for c in range(first, min(first + 64, n)):
            for i in range(n_sites):
                set_ = (words[i] >> nb.uint64(c - first)) & nb.uint64(1)
                draws[c, i] = nb.int8(nb.int8(set_ << nb.uint64(1)) - nb.int8(1))


@njit
def _gather(planes, index, out, first):
    """Copy the chains at ``index`` to those from ``first`` on of ``out``, which are all -1."""
    for k in range(index.size):
        c, to = index[k], first + k
        group, word, bit = c // GROUP, c % GROUP // 64, nb.uint64(c % 64)
        to_group, to_word, to_bit = to // GROUP, to % GROUP // 64, nb.uint64(to % 64)
        for i in range(planes.shape[1] - 1):
            spin = (planes[group, i, word] >> bit) & nb.uint64(1)
            out[to_group, i, to_word] |= spin << to_bit


@intrinsic
def _add_unlike(
    typingctx: Any, planes: Any, first: Any, forward: Any, low: Any, axes: Any, run: Any
) -> Any:
    """Add the unlike bonds of a run of sites with their forward neighbours to the low planes."""
    signature = types.void(planes, first, forward, low, axes, run)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        spins, others, counts = (
            context.make_array(sig.args[k])(context, builder, args[k]).data for k in (0, 2, 3)
        )
        n_axes, unlike = len(sig.args[4]), []
        for k in range(len(sig.args[5])):
            site = builder.add(args[1], WORD(k))
            own = lanes.load(builder, spins, site)
            start = builder.mul(site, WORD(n_axes))
            for axis in range(n_axes):
                other = builder.load(builder.gep(others, [builder.add(start, WORD(axis))]))
                unlike.append(own ^ lanes.load(builder, spins, other))
        _add_bits(builder, counts, unlike)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def _add_up(typingctx: Any, planes: Any, first: Any, low: Any, run: Any) -> Any:
    """Add the spins of a run of sites to the low planes."""
    signature = types.void(planes, first, low, run)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        spins, counts = (
            context.make_array(sig.args[k])(context, builder, args[k]).data for k in (0, 2)
        )
        rows = [builder.add(args[1], WORD(k)) for k in range(len(sig.args[3]))]
        _add_bits(builder, counts, [lanes.load(builder, spins, row) for row in rows])
        return context.get_dummy_value()

    return signature, codegen


def _add_bits(builder: Any, counts: Any, bits: list[Vector]) -> None:
    """Add some bits of every chain to the low planes."""
    for p in range(_LOW):
        column, carries = [*bits, lanes.load(builder, counts, WORD(p))], []
        while len(column) > 2:
            total, carry = lanes.full_adder(*column[:3])
            column = [*column[3:], total]
            carries.append(carry)
        if len(column) == 2:
            carries.append(column[0] & column[1])
            column = [column[0] ^ column[1]]
        lanes.store(column[0], counts, WORD(p))
        bits = carries


@intrinsic
def _carry(typingctx: Any, low: Any, high: Any) -> Any:
    """Add the low planes to the high ones, and clear them."""
    signature = types.void(low, high)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        small, large = (
            context.make_array(type_)(context, builder, value).data
            for type_, value in zip(sig.args, args, strict=True)
        )
        zero = carry = lanes.constant(builder, 0)

        def add(planes: range) -> None:
            nonlocal carry
            for p in planes:
                total = lanes.load(builder, large, WORD(p))
                lanes.store(total ^ carry, large, WORD(p))
                carry = total & carry

        for p in range(_LOW):
            total = lanes.load(builder, large, WORD(p))
            total, carry = lanes.full_adder(total, lanes.load(builder, small, WORD(p)), carry)
            lanes.store(total, large, WORD(p))
            lanes.store(zero, small, WORD(p))
        add(range(_LOW, _OFTEN))
        with builder.if_then(carry.any()):
            add(range(_OFTEN, _HIGH))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def _transpose(typingctx: Any, high: Any, first: Any, out: Any) -> Any:
    """Turn 16 planes, from ``first`` on, into 512 numbers of 16 bits."""
    signature = types.void(high, first, out)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        planes, numbers = (
            context.make_array(sig.args[k])(context, builder, args[k]).data for k in (0, 2)
        )
        rows = [lanes.load(builder, planes, builder.add(args[1], WORD(p))) for p in range(_NUMBER)]
        # blocks of 16 chains in 16 planes are transposed: row r then has every 16th number, from r
        step = _NUMBER // 2
        while step:
            pattern = sum(1 << bit for bit in range(64) if not bit & step)
            mask = lanes.constant(builder, pattern)
            for i in (i for i in range(_NUMBER) if not i & step):
                j = i | step
                change = ((rows[i] >> step) ^ rows[j]) & mask
                rows[i], rows[j] = rows[i] ^ (change << step), rows[j] ^ change
            step //= 2
        parts = [row.recut(_NUMBER) for row in rows]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [parts[k].interleave(parts[k + half]) for k in range(half)]
        parts[0].store(numbers, INDEX(0))
        return context.get_dummy_value()

    return signature, codegen


@njit
def _read(high, n_planes, out):
    """Read the counts of the first chains of a group from their planes."""
    numbers = np.empty(GROUP, np.uint16)
    out[:] = 0
    for first in range(0, n_planes, _NUMBER):
        _transpose(high, first, numbers)
        for c in range(out.size):
            out[c] += nb.int32(numbers[c]) << first


@njit
def count_unlike(planes, forward, axes, out):
    """Count the unlike bonds of the chains of a group.

    Parameters
    ----------
    planes : uint64 array, shape (n_sites + 1, 8)
    forward : int64 array, shape (n_sites, n_axes)
    axes : tuple of n_axes ints
        Only its length is used.
    out : int32 array, shape (n,)
        Receives the counts; n is at most 512.
    """
    low, high = np.zeros((_LOW, WIDTH), np.uint64), np.zeros((_HIGH, WIDTH), np.uint64)
    n_sites, room = forward.shape[0], (2**_LOW - 1) // len(axes) // len(_RUN) * len(_RUN)
    for start in range(0, n_sites, room):
        stop = min(start + room, n_sites)
        whole = start + (stop - start) // len(_RUN) * len(_RUN)
        for site in range(start, whole, len(_RUN)):
            _add_unlike(planes, site, forward, low, axes, _RUN)
        for site in range(whole, stop):
            _add_unlike(planes, site, forward, low, axes, (0,))
        _carry(low, high)
    _read(high, _n_planes(n_sites * len(axes)), out)


@njit
def count_up(planes, out):
    """Count the spins 1 of the chains of a group; see ``count_unlike``."""
    low, high = np.zeros((_LOW, WIDTH), np.uint64), np.zeros((_HIGH, WIDTH), np.uint64)
    n_sites, room = planes.shape[0] - 1, (2**_LOW - 1) // len(_RUN) * len(_RUN)
    for start in range(0, n_sites, room):
        stop = min(start + room, n_sites)
        whole = start + (stop - start) // len(_RUN) * len(_RUN)
        for site in range(start, whole, len(_RUN)):
            _add_up(planes, site, low, _RUN)
        for site in range(whole, stop):
            _add_up(planes, site, low, (0,))
        _carry(low, high)
    _read(high, _n_planes(n_sites), out)


@njit
def _n_planes(largest):
    """Return the number of binary digits of a count."""
    digits = 1
    while largest >> digits:
        digits += 1
    return digits
