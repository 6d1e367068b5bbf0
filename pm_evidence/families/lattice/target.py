"""Ising and Potts lattices, of any size, in two and three dimensions."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count, described
from pm_evidence.core.contracts import AnnealingSetup, Kernel, Path
from pm_evidence.families.common import chosen_kernel
from pm_evidence.families.lattice.cluster_kernels import SwendsenWang, Wolff
from pm_evidence.families.lattice.colour_metropolis import ColourMetropolis
from pm_evidence.families.lattice.ising import SpinHeatBath, SpinMetropolis, Spins
from pm_evidence.families.lattice.lattice import Lattice, VisitKernel, check_strength
from pm_evidence.families.lattice.path import DetouredPath, LatticePath
from pm_evidence.families.lattice.potts import ColourHeatBath, Colours
from pm_evidence.families.native import along
from pm_evidence.kernels.suitability import check_moves

Floats = NDArray[np.float64]


_LEAST_STAGES, _PATHS = 1000, 512


@dataclass(frozen=True)
class Detour:
    """The path around a phase transition, and its default number of stages."""

    height: float  # strength of the field at beta 1/2, in nats per site
    # Number of stages per site. The variance of the work is proportional to the number of sites
    # over that of stages.
    stages_per_site: int
    most_moves: int  # largest default of the number of stages times that of sites


class _AnnealedLattice(Lattice):
    """The base of both lattices: how they are annealed."""

    kernels: ClassVar[Mapping[str, Any]]
    detour: ClassVar[Detour]

    def annealing_setup(self, kernel: str | Kernel) -> AnnealingSetup:
        """Return path, kernel and number of stages; with the heat bath by default.

        Raises
        ------
        ValueError
            If the kernel does not suit the lattice.
        """
        chosen = chosen_kernel(kernel, self.kernels, "a lattice")
        # a periodic checkerboard of odd size has neighbours of the same colour at its seam
        odd = self.periodic and any(size % 2 for size in self.sizes)
        if isinstance(kernel, str) and isinstance(chosen, VisitKernel) and odd:
            chosen = replace(chosen, order="sequential")
        check_moves(chosen, self)
        # only attractive lattices without a field have a transition, and cluster moves need none
        straight = self.field or self.coupling <= 0.0 or not isinstance(chosen, VisitKernel)
        affordable = self.detour.most_moves // self.n_dim
        return AnnealingSetup(
            LatticePath(self) if straight else DetouredPath(self, self.detour.height),
            chosen,
            n_stages=max(min(self.detour.stages_per_site * self.n_dim, affordable), _LEAST_STAGES),
            starts=self.ground_states,
            n_paths=_PATHS,
        )

    @abstractmethod
    def ground_states(self, n: int, rng: np.random.Generator) -> NDArray[Any]:
        """Return ``n`` states of lowest energy, from which reverse paths relax."""

    def with_path(self, setup: AnnealingSetup, path: str | Path) -> AnnealingSetup:
        """Return the setup along a path: ``"auto"``, ``"geometric"``, ``"detour"``, or an object.

        Raises
        ------
        ValueError
            If the lattice has no such path, or the kernel has no moves along it.
        """

        def detoured(target: Any) -> Path:
            return DetouredPath(target, self.detour.height)

        found = along(setup, path, self, {"geometric": LatticePath, "detour": detoured})
        if isinstance(found.path, DetouredPath) and not isinstance(setup.kernel, VisitKernel):
            raise ValueError(
                f"path must be 'geometric' for the kernel {type(setup.kernel).__name__}, which has "
                "no moves in a field, got a detour; use the heat bath."
            )
        return found


def _like_bonds(x: NDArray[Any], forward: NDArray[np.int64]) -> Floats:
    """Return the number of bonds between like neighbours."""
    own = np.arange(x.shape[1])
    like = np.zeros(len(x))
    for other in forward.T:
        there = other != own
        like += (x[:, there] == x[:, other[there]]).sum(axis=1)
    return like


_LARGEST_Q = 250  # colours are bytes, and some bytes mean "no neighbour"
_CLUSTERS = {"swendsen_wang": SwendsenWang, "wolff": Wolff}


@dataclass(frozen=True)
class Ising(_AnnealedLattice):
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
    states = Spins
    n_colours = 2
    site_values = np.array([-1, 1], np.int8)
    kernels = MappingProxyType(
        {"heat_bath": SpinHeatBath, "metropolis": SpinMetropolis, **_CLUSTERS}
    )
    detour = Detour(height=0.5, stages_per_site=64, most_moves=67_000_000)
    gap = 2.0  # a bond has the energies -coupling and coupling
    shape: int | tuple[int, ...] = 32
    coupling: float = 1.0
    field: float = 0.0
    periodic: bool = True

    def __post_init__(self) -> None:
        self._check_lattice()
        check_strength("field", self.field, 0.0)

    def _energy(self, draws: NDArray[Any]) -> Floats:
        x = np.asarray(draws).reshape(len(draws), self.n_dim).astype(np.int8)
        bonds = _like_bonds(x, self.geometry.forward)
        aligned = 2.0 * bonds - self.n_bonds
        up = x.sum(axis=1, dtype=np.int64)
        return -self.coupling * aligned - self.field * up

    def constant_data(self) -> dict[str, NDArray[Any]]:
        """Return coupling and field, and the log of the number of states."""
        return {
            "coupling": np.array(self.coupling),
            "field": np.array(self.field),
            "log_n_states": np.array(self.log_n_states),
        }

    def ground_states(self, n: int, rng: np.random.Generator) -> NDArray[np.int8]:
        """Return ``n`` ordered states: all spins alike, or alternating if neighbours repel."""
        # a field prefers one of the two ordered states
        up = 1.0 / (1.0 + np.exp(-np.clip(2.0 * self.field * self.n_dim, -700.0, 700.0)))
        sign = np.where(rng.random(n) < up, 1, -1).astype(np.int8)
        parity = np.indices(self.sizes).sum(axis=0) % 2
        pattern = np.ones(self.sizes, np.int8) if self.coupling >= 0.0 else 1 - 2 * parity
        return (sign.reshape(n, *(1 for _ in self.sizes)) * pattern).astype(np.int8)


@dataclass(frozen=True)
class Potts(_AnnealedLattice):
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
    states = Colours
    kernels = MappingProxyType(
        {"heat_bath": ColourHeatBath, "metropolis": ColourMetropolis, **_CLUSTERS}
    )
    detour = Detour(height=0.8, stages_per_site=3, most_moves=12_000_000)
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
    def site_values(self) -> NDArray[np.uint8]:  # type: ignore[override]
        """The colours, from 0 to q - 1."""
        return np.arange(self.q).astype(np.uint8)

    def _energy(self, draws: NDArray[Any]) -> Floats:
        x = np.asarray(draws).reshape(len(draws), self.n_dim)
        like = _like_bonds(x, self.geometry.forward)
        return -self.coupling * like

    def constant_data(self) -> dict[str, NDArray[Any]]:
        """Return the coupling, and the log of the number of states."""
        return {
            "coupling": np.array(self.coupling),
            "log_n_states": np.array(self.log_n_states),
        }

    def ground_states(self, n: int, rng: np.random.Generator) -> NDArray[np.uint8]:
        """Return ``n`` states of one colour each, or of uniform colours if neighbours repel."""
        size = (n, *self.sizes) if self.coupling < 0.0 else (n, *(1 for _ in self.sizes))
        colours = rng.integers(self.q, size=size, dtype=np.uint8)
        return np.broadcast_to(colours, (n, *self.sizes)).copy()
