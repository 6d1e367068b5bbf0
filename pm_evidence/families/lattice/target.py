"""Ising and Potts lattices, of any size, in two and three dimensions."""

from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count, described
from pm_evidence.families.lattice.clusters import SwendsenWang, Wolff
from pm_evidence.families.lattice.ising import SpinHeatBath, SpinMetropolis, Spins
from pm_evidence.families.lattice.lattice import Lattice, check_strength
from pm_evidence.families.lattice.potts import ColourHeatBath, ColourMetropolis, Colours

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
