"""Ising and Potts lattices in two and three dimensions, and moves of whole clusters of sites."""

from abc import abstractmethod
from dataclasses import dataclass
from math import expm1
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count, described
from pm_evidence.core.codegen.numba import nb, njit
from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import next_word, uniform
from pm_evidence.families.lattice.ising import SpinHeatBath, SpinMetropolis, Spins
from pm_evidence.families.lattice.lattice import (
    Lattice,
    LatticeKernel,
    check_no_field,
    check_strength,
)
from pm_evidence.families.lattice.potts import ColourHeatBath, ColourMetropolis, Colours


class _ClusterKernel(LatticeKernel):
    """The base of both cluster kernels."""

    def check(self, target: Any) -> NDArray[np.int64]:
        """Return the sites that it moves: all."""
        moved = super().check(target)
        if target.coupling < 0.0:
            raise ValueError(
                f"coupling must not be negative for cluster moves, got {target.coupling}; use the "
                "heat bath."
            )
        check_no_field(target.field, "cluster moves")
        return moved

    def advance(
        self, path: Any, state: Any, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Any, MoveInfo]:
        """Move every member; see ``contracts.Kernel``."""
        target = path.target
        self.check(target)
        check_no_field(path.field(beta), "cluster moves")
        kept = -expm1(-beta * target.coupling * target.gap)  # probability that a like bond is kept
        rows = state.to_colours()
        n_moved = self._move(rows, target, kept, streams)
        return target.states.of_colours(rows, target), MoveInfo(1.0, n_moved)

    @abstractmethod
    def _move(self, rows: Any, target: Any, kept: float, streams: Any) -> int:
        """Move the colours of all chains in place, and return how many were drawn."""


class SwendsenWang(_ClusterKernel):
    """Divides the lattice into clusters of like sites and gives each a random colour.

    Swendsen and Wang (1987). Exact; every chain draws from its own stream. It decorrelates a
    critical lattice in a few sweeps. For the Ising model, however, the bit-sliced heat bath gives a
    smaller error in equal time up to sizes of some hundreds, and at a first-order transition these
    clusters get stuck like all other moves.
    """

    def _move(self, rows: Any, target: Any, kept: float, streams: Any) -> int:
        _swendsen_wang(rows, target.geometry.bonds, kept, target.n_colours, self.n_sweeps, streams)
        return len(rows) * target.n_dim * self.n_sweeps


class Wolff(_ClusterKernel):
    """Grows one cluster of like sites from a random site and gives it another colour.

    Wolff (1989). Exact; every chain draws from its own stream. At high temperature clusters are
    small, so that one cluster is much less than a sweep.
    """

    def _move(self, rows: Any, target: Any, kept: float, streams: Any) -> int:
        neighbours = target.geometry.neighbours
        return int(_wolff(rows, neighbours, kept, target.n_colours, self.n_sweeps, streams))


@njit
def _swendsen_wang(rows, bonds, probability, q, n_sweeps, streams):
    n, n_sites = rows.shape
    parent, colour = np.empty(n_sites, np.int64), np.empty(n_sites, np.int64)
    for chain in range(n):
        x, stream = rows[chain], streams[chain]
        for _ in range(n_sweeps):
            for i in range(n_sites):
                parent[i] = i
                colour[i] = -1
            for k in range(len(bonds)):
                i, j = bonds[k]
                if x[i] == x[j] and uniform(stream) < probability:
                    a, b = _root(parent, i), _root(parent, j)
                    parent[max(a, b)] = min(a, b)
            for i in range(n_sites):
                root = _root(parent, i)
                if colour[root] < 0:
                    colour[root] = _below(q, stream)
                x[i] = colour[root]


@njit
def _root(parent, i):
    """Return the root of a site's cluster, and shorten the path to it."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@njit
def _wolff(rows, neighbours, probability, q, n_clusters, streams):
    """Move all chains, and return the number of sites moved."""
    n, n_sites = rows.shape
    stack, moved = np.empty(n_sites, np.int64), 0
    for chain in range(n):
        x, stream = rows[chain], streams[chain]
        for _ in range(n_clusters):
            first = _below(n_sites, stream)
            old = x[first]
            new = (old + 1 + _below(q - 1, stream)) % q
            x[first] = new
            stack[0], size = first, 1
            while size:
                size -= 1
                moved += 1
                i = stack[size]
                for side in range(neighbours.shape[1]):
                    j = neighbours[i, side]
                    if x[j] == old and uniform(stream) < probability:
                        x[j] = new
                        stack[size] = j
                        size += 1
    return moved


@njit
def _below(n, stream):
    """Return a random whole number below ``n``; the relative bias is at most n / 2**32."""
    return nb.int64(((next_word(stream) >> nb.uint64(32)) * nb.uint64(n)) >> nb.uint64(32))


_LARGEST_Q = 250  # colours are bytes, and some bytes mean "no neighbour"
_CLUSTERS = {"swendsen_wang": SwendsenWang, "wolff": Wolff}


@dataclass(frozen=True)
class Ising(Lattice):
    """Spins of -1 and 1 with ``E = -coupling sum_bonds x_i x_j - field sum_i x_i``.

    Annealed from the uniform distribution (beta 0) to ``exp(-E)`` (beta 1).

    Parameters
    ----------
    shape : int or tuple of two or three ints
        Number of sites along each axis; one number means a square.
    coupling : float
        If it is above 0, neighbours prefer to be alike.
    field : float
        If it is above 0, spins prefer to be 1.
    periodic : bool
        Whether opposite edges are neighbours. An axis of size 2 then has two bonds.

    Notes
    -----
    ``log Z`` is relative to the uniform distribution over the ``exp(log_n_states)`` states.

    Examples
    --------
    >>> target = Ising(32)
    >>> target.n_dim, target.n_bonds
    (1024, 2048)
    """

    values = "spins"
    _constants = ("coupling", "field", "log_n_states")
    states = Spins
    n_colours = 2
    site_values = np.array([-1, 1], np.int8)
    kernels = MappingProxyType(
        {"heat_bath": SpinHeatBath, "metropolis": SpinMetropolis, **_CLUSTERS}
    )
    height, stages_per_site, most_moves = 0.5, 64, 67_000_000
    gap = 2.0  # a bond has the energies -coupling and coupling
    shape: int | tuple[int, ...] = 32
    coupling: float = 1.0
    field: float = 0.0
    periodic: bool = True

    def __post_init__(self) -> None:
        self._check_lattice()
        check_strength("field", self.field, 0.0)

    def ground_states(self, n: int, rng: np.random.Generator) -> NDArray[np.int8]:
        """Return ``n`` ordered states: all spins alike, or alternating if neighbours repel."""
        # a field prefers one of the two ordered states
        up = 1.0 / (1.0 + np.exp(-np.clip(2.0 * self.field * self.n_dim, -700.0, 700.0)))
        sign = np.where(rng.random(n) < up, 1, -1).astype(np.int8)
        parity = np.indices(self.sizes).sum(axis=0) % 2
        pattern = np.ones(self.sizes, np.int8) if self.coupling >= 0.0 else 1 - 2 * parity
        return (sign.reshape(n, *(1 for _ in self.sizes)) * pattern).astype(np.int8)


@dataclass(frozen=True)
class Potts(Lattice):
    """Colours from 0 to ``q - 1`` with ``E = -coupling sum_bonds delta(x_i, x_j)``.

    Annealed from the uniform distribution (beta 0) to ``exp(-E)`` (beta 1). The defaults are
    Habeck's (2017, section 6.2), with a strong first-order transition on the way.

    Parameters
    ----------
    shape : int or tuple of two or three ints
        Number of sites along each axis; one number means a square.
    q : int
        Number of colours, 2 to 250.
    coupling : float
        If it is above 0, neighbours prefer to be alike.
    periodic : bool
        Whether opposite edges are neighbours. An axis of size 2 then has two bonds.

    Notes
    -----
    ``log Z`` is relative to the uniform distribution over the ``exp(log_n_states)`` states.

    Examples
    --------
    >>> round(Potts(4, q=10).log_n_states, 3)
    36.841
    """

    values = "colours"
    _constants = ("coupling", "log_n_states")
    states = Colours
    kernels = MappingProxyType(
        {"heat_bath": ColourHeatBath, "metropolis": ColourMetropolis, **_CLUSTERS}
    )
    height, stages_per_site, most_moves = 0.8, 3, 12_000_000
    gap = 1.0
    shape: int | tuple[int, ...] = 32
    q: int = 10
    coupling: float = 2.0
    periodic: bool = True

    def __post_init__(self) -> None:
        self._check_lattice()
        check_count("q", self.q, 2)
        if self.q > _LARGEST_Q:
            raise ValueError(
                f"q must be at most {_LARGEST_Q}, got {described(self.q)}; merge colours."
            )

    @property
    def n_colours(self) -> int:  # type: ignore[override]
        """Number of values that a site can take: q."""
        return self.q

    @property
    def tally_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """Shape of the tally of one chain."""
        return (self.q,)

    @property
    def site_values(self) -> NDArray[np.uint8]:  # type: ignore[override]
        """The colours, from 0 to q - 1."""
        return np.arange(self.q).astype(np.uint8)

    def ground_states(self, n: int, rng: np.random.Generator) -> NDArray[np.uint8]:
        """Return ``n`` states of one colour each, or of uniform colours if neighbours repel."""
        size = (n, *self.sizes) if self.coupling < 0.0 else (n, *(1 for _ in self.sizes))
        colours = rng.integers(self.q, size=size, dtype=np.uint8)
        return np.broadcast_to(colours, (n, *self.sizes)).copy()
