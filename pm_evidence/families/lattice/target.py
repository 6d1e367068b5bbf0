"""Ising and Potts lattices, of any size, in two and three dimensions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_count, described
from pm_evidence.core.contracts import AnnealingSetup, Kernel, Path
from pm_evidence.families.lattice.cluster_kernels import SwendsenWang, Wolff
from pm_evidence.families.lattice.ising import (
    SpinHeatBath,
    SpinMetropolis,
    Spins,
    draw_spins,
    pack,
    spins_of,
    unpack,
)
from pm_evidence.families.lattice.lattice import Lattice, VisitKernel, check_strength, like_bonds
from pm_evidence.families.lattice.path import (
    DetouredPath,
    LatticePath,
    favour_colours,
    favour_spins,
)
from pm_evidence.families.lattice.potts import ColourHeatBath, Colours, colours_of, draw_colours
from pm_evidence.families.native import checked_path
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


def lattice_setup(
    target: Lattice,
    kernel: str | Kernel,
    kernels: Mapping[str, Callable[..., Any]],
    detour: Detour,
) -> AnnealingSetup:
    """Return path, kernel and number of stages of a lattice."""
    if isinstance(kernel, str):
        check_choice("kernel", kernel, ("auto", *kernels))
        chosen = kernels["heat_bath" if kernel == "auto" else kernel]()
        # a periodic checkerboard of odd size has neighbours of the same colour at its seam
        odd = target.periodic and any(size % 2 for size in target.sizes)
        if isinstance(chosen, VisitKernel) and odd:
            chosen = replace(chosen, order="sequential")
    elif type(kernel) in kernels.values():
        chosen = kernel
    else:
        raise ValueError(
            f"kernel must be one of auto, {', '.join(kernels)} or such a kernel object, got "
            f"{described(kernel)}."
        )
    check_moves(chosen, target)
    # only attractive lattices without a field have a transition, and cluster moves need no field
    straight = target.field or target.coupling <= 0.0 or not isinstance(chosen, VisitKernel)
    affordable = detour.most_moves // target.n_dim
    return AnnealingSetup(
        LatticePath(target) if straight else DetouredPath(target, detour.height),
        chosen,
        n_stages=max(min(detour.stages_per_site * target.n_dim, affordable), _LEAST_STAGES),
        starts=target.ground_states,
        n_paths=_PATHS,
    )


def lattice_along(
    target: Lattice, setup: AnnealingSetup, path: str | Path, detour: Detour
) -> AnnealingSetup:
    """Return the setup along another path."""
    found = path
    if isinstance(path, str):
        check_choice("path", path, ("auto", "geometric", "detour"))
        if path == "auto":
            return setup
        bent = path == "detour"
        found = DetouredPath(target, detour.height) if bent else LatticePath(target)
    if isinstance(found, DetouredPath) and not isinstance(setup.kernel, VisitKernel):
        raise ValueError(
            f"path must be 'geometric' for the kernel {type(setup.kernel).__name__}, which has no "
            "moves in a field, got a detour; use the heat bath."
        )
    return replace(setup, path=checked_path(found, target))


_LARGEST_Q = 250  # colours are bytes, and some bytes mean "no neighbour"
_CLUSTERS = {"swendsen_wang": SwendsenWang, "wolff": Wolff}
_SPIN_KERNELS = {"heat_bath": SpinHeatBath, "metropolis": SpinMetropolis, **_CLUSTERS}
_COLOUR_KERNELS = {"heat_bath": ColourHeatBath, **_CLUSTERS}
_SPIN_DETOUR = Detour(height=0.5, stages_per_site=64, most_moves=67_000_000)
_COLOUR_DETOUR = Detour(height=0.8, stages_per_site=3, most_moves=12_000_000)


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
    gap = 2.0  # a bond has the energies -coupling and coupling
    shape: int | tuple[int, ...] = 32
    coupling: float = 1.0
    field: float = 0.0
    periodic: bool = True

    def __post_init__(self) -> None:
        self._check_lattice()
        check_strength("field", self.field, 0.0)

    @property
    def n_colours(self) -> int:
        """Number of values that a site can take: 2."""
        return 2

    def _energy(self, draws: NDArray[Any]) -> Floats:
        x = np.asarray(draws).reshape(len(draws), self.n_dim).astype(np.int8)
        bonds = like_bonds(x, self.geometry.forward)
        aligned = 2.0 * bonds - self.n_bonds
        up = x.sum(axis=1, dtype=np.int64)
        return -self.coupling * aligned - self.field * up

    def check(self, draws: NDArray[Any], name: str = "draws") -> NDArray[Any]:
        """Return states as an array; see ``check_draws``."""
        return self.check_draws(draws, np.array([-1, 1], np.int8), name)

    def constant_data(self) -> dict[str, NDArray[Any]]:
        """Return coupling and field, and the log of the number of states."""
        return {
            "coupling": np.array(self.coupling),
            "field": np.array(self.field),
            "log_n_states": np.array(self.log_n_states),
        }

    def draw_uniform(self, n: int, seed: np.random.SeedSequence) -> Spins:
        """Return ``n`` independent states in which all spins are uniform and independent."""
        return draw_spins(self, n, seed)

    def population(self, rows: NDArray[Any]) -> Spins:
        """Return the population of states of -1 and 1, shape ``(n, n_sites)``."""
        return spins_of(pack(rows), len(rows), self)

    def to_colours(self, state: Spins) -> NDArray[np.uint8]:
        """Return 0 for spins -1 and 1 for spins 1, shape ``(n, n_sites)``."""
        return (unpack(state.planes, len(state)) > 0).astype(np.uint8)

    def from_colours(self, rows: NDArray[np.uint8]) -> Spins:
        """Return the population whose ``to_colours`` is ``rows``."""
        return self.population(2 * rows.astype(np.int8) - 1)

    def ground_states(self, n: int, rng: np.random.Generator) -> NDArray[np.int8]:
        """Return ``n`` ordered states: all spins alike, or alternating if neighbours repel."""
        # a field prefers one of the two ordered states
        up = 1.0 / (1.0 + np.exp(-np.clip(2.0 * self.field * self.n_dim, -700.0, 700.0)))
        sign = np.where(rng.random(n) < up, 1, -1).astype(np.int8)
        parity = np.indices(self.sizes).sum(axis=0) % 2
        pattern = np.ones(self.sizes, np.int8) if self.coupling >= 0.0 else 1 - 2 * parity
        return (sign.reshape(n, *(1 for _ in self.sizes)) * pattern).astype(np.int8)

    def favour(
        self, visited: Any, fields: Floats, slope: Floats, energy: Floats, ratio: Floats
    ) -> None:
        """Add the contributions of fields in favour of either spin; see ``detour.favour_spins``."""
        up = visited.n_up().reshape(energy.shape)
        favour_spins(self.n_dim, up, fields, slope, energy, ratio)

    def annealing_setup(self, kernel: str | Kernel) -> AnnealingSetup:
        """Return how spins are annealed: with the bit-sliced heat bath by default."""
        return lattice_setup(self, kernel, _SPIN_KERNELS, _SPIN_DETOUR)

    def with_path(self, setup: AnnealingSetup, path: str | Path) -> AnnealingSetup:
        """Return the setup along the path that the user asks for; see ``lattice_along``."""
        return lattice_along(self, setup, path, _SPIN_DETOUR)


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
    def n_colours(self) -> int:
        """Number of values that a site can take: q."""
        return self.q

    def _energy(self, draws: NDArray[Any]) -> Floats:
        x = np.asarray(draws).reshape(len(draws), self.n_dim)
        like = like_bonds(x, self.geometry.forward)
        return -self.coupling * like

    def check(self, draws: NDArray[Any], name: str = "draws") -> NDArray[Any]:
        """Return states as an array; see ``check_draws``."""
        return self.check_draws(draws, np.arange(self.q).astype(np.uint8), name)

    def constant_data(self) -> dict[str, NDArray[Any]]:
        """Return the coupling, and the log of the number of states."""
        return {
            "coupling": np.array(self.coupling),
            "log_n_states": np.array(self.log_n_states),
        }

    def draw_uniform(self, n: int, seed: np.random.SeedSequence) -> Colours:
        """Return ``n`` independent states in which all colours are uniform and independent."""
        return draw_colours(self, n, seed)

    def population(self, rows: NDArray[Any]) -> Colours:
        """Return the population of states of colours, shape ``(n, n_sites)``."""
        return colours_of(rows, self)

    def to_colours(self, state: Colours) -> NDArray[np.uint8]:
        """Return a copy of the colours, shape ``(n, n_sites)``."""
        return np.array(state.rows(), order="C")

    def from_colours(self, rows: NDArray[np.uint8]) -> Colours:
        """Return the population whose ``to_colours`` is ``rows``."""
        return self.population(rows)

    def ground_states(self, n: int, rng: np.random.Generator) -> NDArray[np.uint8]:
        """Return ``n`` states of one colour each, or of uniform colours if neighbours repel."""
        size = (n, *self.sizes) if self.coupling < 0.0 else (n, *(1 for _ in self.sizes))
        colours = rng.integers(self.q, size=size, dtype=np.uint8)
        return np.broadcast_to(colours, (n, *self.sizes)).copy()

    def favour(
        self, visited: Any, fields: Floats, slope: Floats, energy: Floats, ratio: Floats
    ) -> None:
        """Add the contributions of fields in favour of every colour; see ``favour_colours``."""
        counts = np.moveaxis(visited.counts(self), 0, -2)
        counts = np.ascontiguousarray(counts).reshape(len(slope), self.q, -1)
        favour_colours(counts, fields, slope, energy, ratio)

    def annealing_setup(self, kernel: str | Kernel) -> AnnealingSetup:
        """Return how colours are annealed: with the heat bath by default."""
        return lattice_setup(self, kernel, _COLOUR_KERNELS, _COLOUR_DETOUR)

    def with_path(self, setup: AnnealingSetup, path: str | Path) -> AnnealingSetup:
        """Return the setup along the path that the user asks for; see ``lattice_along``."""
        return lattice_along(self, setup, path, _COLOUR_DETOUR)
