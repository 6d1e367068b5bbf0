"""Moves of whole clusters of like sites, for Ising and Potts lattices without a field."""

from abc import abstractmethod
from math import expm1
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen.numba import nb, njit
from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import next_word, uniform
from pm_evidence.families.lattice.lattice import LatticeKernel, check_no_field


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
