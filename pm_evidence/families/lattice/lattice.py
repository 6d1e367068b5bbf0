"""The base of Ising and Potts lattices, and of the kernels that visit their sites in order."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log, prod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import (
    check_choice,
    check_count,
    check_finite,
    check_flag,
    described,
    plain_array,
)
from pm_evidence.core.contracts import MoveInfo, StageBatch
from pm_evidence.families.common import SweepKernel
from pm_evidence.families.native import NativeTarget

Counts = NDArray[np.int32]
Floats = NDArray[np.float64]


_MOST_SITES = 100_000_000  # bonds are counted in 32 bits
_LARGEST_STRENGTH = 1e6  # nats per bond; beyond it, sums of energies lose all digits of a change


class Geometry(NamedTuple):
    """The neighbours of the sites of a lattice."""

    # shape (n_sites, 2 * n_axes): neighbours of every site; beyond a free edge, where there is
    # none, the site itself
    neighbours: NDArray[np.int64]
    # shape (n_sites, 2 * n_axes): the same, with ``n_sites`` where there is none
    ghosted: NDArray[np.int64]
    # shape (n_sites, n_axes): neighbours with the next higher coordinate, so that every bond occurs
    # once; where there is none, the site itself
    forward: NDArray[np.int64]
    degree: NDArray[np.int64]  # shape (n_sites,): number of neighbours
    # shape (n_sites,): all sites, those of even coordinate sum first
    checkerboard: NDArray[np.int64]


@lru_cache(maxsize=32)
def geometry(sizes: tuple[int, ...], periodic: bool) -> Geometry:
    """Return the bonds of a lattice, whose sites are numbered in C order, as read-only arrays.

    A periodic axis of size 2 has two bonds between its two sites, as in Kaufman's formula.
    """
    n_sites = int(np.prod(sizes))
    sites = np.arange(n_sites).reshape(sizes)
    columns = []
    for axis, size in enumerate(sizes):
        for step in (1, -1):
            other = np.roll(sites, -step, axis=axis)
            if not periodic:
                edge = [slice(None)] * len(sizes)
                edge[axis] = slice(size - 1, None) if step == 1 else slice(0, 1)
                other[tuple(edge)] = n_sites
            columns.append(other.ravel())
    ghosted = np.stack(columns, axis=1).astype(np.int64)
    own = np.arange(n_sites)[:, None]
    neighbours = np.where(ghosted == n_sites, own, ghosted)
    parity = np.indices(sizes).sum(axis=0).ravel() % 2
    found = Geometry(
        neighbours,
        ghosted,
        np.ascontiguousarray(neighbours[:, ::2]),
        (ghosted < n_sites).sum(axis=1),
        np.concatenate([np.flatnonzero(parity == 0), np.flatnonzero(parity == 1)]),
    )
    for array in found:
        array.setflags(write=False)
    return found


class Lattice(NativeTarget):
    """The base of Ising and Potts lattices.

    Attributes
    ----------
    values : str
        Kind of values of a site: ``"spins"`` or ``"colours"``.
    states : type
        The class of populations: ``draw`` returns uniform states, ``of`` and ``of_colours`` those
        of the given values, or of colours from 0 on.
    field : float
        Strength of an external field in nats per site; only spins may have one.
    gap : float
        Energy of a bond between unlike neighbours minus that of a bond between like neighbours, in
        units of the coupling.
    """

    values: ClassVar[str]
    states: ClassVar[Any]
    gap: ClassVar[float]
    field: float = 0.0
    shape: int | tuple[int, ...]
    coupling: float
    periodic: bool
    n_colours: int  # number of values that a site can take
    site_values: NDArray[Any]  # these values

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of sites along each axis."""
        assert isinstance(self.shape, tuple)  # set by ``_check_lattice``
        return self.shape

    @property
    def geometry(self) -> Geometry:
        """The neighbours of all sites."""
        return geometry(self.sizes, self.periodic)

    @property
    def n_dim(self) -> int:  # type: ignore[override]
        """Number of sites."""
        return prod(self.sizes)

    @property
    def n_bonds(self) -> int:
        """Number of bonds."""
        edge = 0 if self.periodic else 1
        return sum(self.n_dim // size * (size - edge) for size in self.sizes)

    @property
    def log_n_states(self) -> float:
        """Log of the number of states; log Z is its sum with that relative to the reference."""
        return self.n_dim * log(self.n_colours)

    def posterior(self, draws: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the variable ``x``, shape ``(n, *sizes)``."""
        return {"x": draws}

    def energy(self, draws: NDArray[Any]) -> Floats:
        """Return the energies of states, shape ``(n, *sizes)``, in nats at beta 1.

        Raises
        ------
        ValueError
            If they are not states of this lattice.
        """
        return self._energy(self.check(draws))

    @abstractmethod
    def _energy(self, draws: NDArray[Any]) -> Floats: ...

    def sample_stats(self, draws: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the energy of each draw."""
        return {"energy": self._energy(draws)}

    def coords_and_dims(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return coordinates along the axes, and their names."""
        names = ["row", "column", "layer"][: len(self.sizes)]
        coords = {name: np.arange(size) for name, size in zip(names, self.sizes, strict=True)}
        return coords, {"x": names}

    def _check_lattice(self) -> None:
        shape = self.shape if isinstance(self.shape, tuple | list) else (self.shape,) * 2
        if len(shape) not in (2, 3):
            raise ValueError(
                f"shape must have two or three sizes, or be one number, got "
                f"{described(self.shape)}; try 32 or (16, 16, 16)."
            )
        for size in shape:
            check_count("shape", size, 2, _MOST_SITES)
        sizes = tuple(int(size) for size in shape)
        if prod(sizes) > _MOST_SITES:
            raise ValueError(
                f"shape must make at most {_MOST_SITES:,} sites, got {prod(sizes):.3g}, whose "
                f"bonds would take {prod(sizes) * len(sizes) * 40 / 1e9:.3g} GB; try 32."
            )
        object.__setattr__(self, "shape", sizes)
        check_strength("coupling", self.coupling, 1.0)
        check_flag("periodic", self.periodic)

    def check(self, draws: NDArray[Any], name: str = "draws") -> NDArray[Any]:
        """Return states as an array, shape ``(n, *sizes)``.

        Raises
        ------
        ValueError
            If there are none, or if they have a wrong shape or values that a site cannot take.
        """
        values = self.site_values
        draws = plain_array(name, draws)
        if draws.shape[1:] != self.sizes or not len(draws):
            raise ValueError(
                f"{name} must have shape (n, {', '.join(map(str, self.sizes))}), got "
                f"{draws.shape}; reshape them."
            )
        allowed = "-1 or 1" if len(values) == 2 and values[0] < 0 else f"0 to {values[-1]}"
        if draws.dtype.kind not in "biuf":
            raise ValueError(
                f"{name} must hold the values {allowed} only, got dtype {draws.dtype}; convert "
                "them to whole numbers."
            )
        if not np.isin(draws, values).all():
            wrong = draws[~np.isin(draws, values)][0]
            raise ValueError(
                f"{name} must hold the values {allowed} only, got {wrong!r}; map them."
            )
        return draws


def check_strength(name: str, value: Any, usual: float) -> None:
    """Check that a strength is a finite number of nats, and not so large that nothing moves."""
    if abs(check_finite(name, value, usual)) > _LARGEST_STRENGTH:
        raise ValueError(
            f"{name} must be at most {_LARGEST_STRENGTH:g} in size, got {value}, at which nothing "
            f"moves; try {usual:g}."
        )


@dataclass(frozen=True, slots=True)
class BondCounts:
    """The counts that the energies of lattices need."""

    # shape (..., n): number of bonds of every chain between unlike spins, or between like colours
    bonds: Counts
    # shape (..., n): number of spins that are 1; or, shape (..., q, n): of sites of each colour.
    # None if they were not counted
    tally: Counts | None

    def counted(self, target: Lattice) -> Counts:
        """Return the tally."""
        assert self.tally is not None  # it is counted if the path needs it
        return self.tally


class States:
    """The base of populations, with the counts that their energies need."""

    bonds: Counts
    tally: Counts | None
    cells: NDArray[Any]  # the values of all sites
    gathered_cells: Callable[[Any], NDArray[Any]]

    def __len__(self) -> int:
        return len(self.bonds)

    def take(self, index: NDArray[np.int64]) -> Self:
        """Return the members at ``index`` as a new population."""
        return self._gathered([(self, np.arange(len(self))[index])])

    def join(self, others: Sequence[Self]) -> Self:
        """Return this population followed by ``others``."""
        return self._gathered([(part, np.arange(len(part))) for part in (self, *others)])

    def copy(self) -> Self:
        """Return a population that can be moved in place."""
        return replace(self, cells=self.cells.copy())  # type: ignore[type-var]

    def _gathered(self, parts: Sequence[tuple[Any, NDArray[np.int64]]]) -> Self:
        """Return some members of each part, one after the other."""
        bonds = np.concatenate([part.bonds[index] for part, index in parts])
        tallies = [part.tally[..., index] for part, index in parts if part.tally is not None]
        tally = np.concatenate(tallies, axis=-1) if len(tallies) == len(parts) else None
        cells = self.gathered_cells(parts)
        return replace(self, bonds=bonds, tally=tally, cells=cells)  # type: ignore[type-var]


def check_no_field(field: float, moves: str) -> None:
    """Raise ValueError where kernels that have no moves in a field would meet one."""
    if field:
        raise ValueError(
            f"target and path must have no field for {moves}, got field={field:.3g}; use the heat "
            "bath."
        )


_NAMES = {"spins": "pe.lattices.Ising", "colours": "pe.lattices.Potts"}


@dataclass(frozen=True)
class LatticeKernel(SweepKernel):
    """The base of kernels that move lattices."""

    values: ClassVar[tuple[str, ...]] = tuple(_NAMES)

    def check(self, target: Any) -> NDArray[np.int64]:
        """Return the sites that it moves: all."""
        n_sites: int = getattr(target, "n_dim", 0)
        if not isinstance(target, Lattice) or target.values not in self.values:
            names = " or ".join(_NAMES[values] for values in self.values)
            raise ValueError(
                f"kernel {type(self).__name__} must move a {names}, got a target of type "
                f"{type(target).__name__}; pass kernel='auto'."
            )
        return np.arange(n_sites)


@dataclass(frozen=True)
class VisitKernel(LatticeKernel):
    """A kernel that visits sites one after the other, and is reversed by the opposite order."""

    order: str = "checkerboard"
    backwards: bool = False
    orders: ClassVar[tuple[str, ...]] = ("checkerboard", "sequential")
    counts: ClassVar[type[BondCounts]]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("order", self.order, self.orders)

    def check(self, target: Any) -> NDArray[np.int64]:
        """Return the sites that it moves: all; see ``sites``."""
        moved = super().check(target)
        self.sites(target)
        return moved

    def advance(
        self, path: Any, state: Any, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Any, MoveInfo]:
        """Move every member; see ``contracts.Kernel``."""
        batch = self.advance_many(path, state.copy(), np.array([beta]), streams)
        return batch.state, MoveInfo(float(batch.acceptance[0]), batch.n_evaluations)

    def advance_many(
        self, path: Any, state: Any, beta: Floats, streams: NDArray[np.uint64]
    ) -> StageBatch:
        """Move every member at every inverse temperature; see ``contracts.BatchedKernel``."""
        target, n, n_stages = path.target, len(state), len(beta)
        needed, shape = path.needs_counts, state.tally_shape(target)
        # counts before the first stage and after each
        bonds = np.empty((n_stages + 1, n), np.int32)
        tally = np.empty((n_stages + 1, *shape, n if needed else 0), np.int32)
        bonds[0] = state.bonds
        if needed:
            tally[0] = state.counted(target)
        n_moves = n * target.n_dim * self.n_sweeps
        acceptance = self._visit(path, state, beta, streams, (bonds, tally)) / n_moves
        before, after, last = (
            (bonds[rows], tally[rows] if needed else None)
            for rows in (slice(-1), slice(1, None), -1)
        )
        moved = replace(state, bonds=last[0], tally=last[1])
        visited = self.counts(*before), self.counts(*after)
        return StageBatch(moved, *visited, acceptance, n_moves * n_stages)

    @abstractmethod
    def _visit(self, path: Any, state: Any, beta: Floats, streams: Any, counts: Any) -> Floats:
        """Move in place, fill in counts, and return how many moves each stage accepted."""

    def sites(self, target: Any) -> NDArray[np.int64]:
        """Return the sites in the order of visits; none if they are drawn at random."""
        return _visits(target, self.order, self.backwards)


@lru_cache(maxsize=32)
def _visits(target: Any, order: str, backwards: bool) -> NDArray[np.int64]:
    sites = np.arange(0 if order == "random" else target.n_dim)
    if order == "checkerboard":
        if target.periodic and any(size % 2 for size in target.sizes):
            raise ValueError(
                f"order must not be 'checkerboard' on a periodic lattice of odd sizes, got "
                f"sizes {target.sizes}, where some neighbours have the same colour; pass "
                "order='sequential', or an even shape."
            )
        sites = target.geometry.checkerboard
    sites = np.array(sites[::-1] if backwards else sites)
    sites.flags.writeable = False
    return sites
