"""The base of the kernels of lattices, which have no settings to learn and visit sites in order."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_count, check_flag
from pm_evidence.families.lattice.lattice import Lattice

__all__ = ["SweepKernel", "VisitKernel"]

_MOST_SWEEPS = 1_000_000
_NAMES = {"spins": "pe.Ising", "colours": "pe.Potts"}


@dataclass(frozen=True)
class SweepKernel:
    """A kernel that repeats a move ``n_sweeps`` times, and satisfies detailed balance."""

    n_sweeps: int = 1
    values: ClassVar[tuple[str, ...]] = tuple(_NAMES)

    def __post_init__(self) -> None:
        check_count("n_sweeps", self.n_sweeps, 1, _MOST_SWEEPS)

    def check(self, target: Any) -> NDArray[np.int64]:
        """Return the sites that it moves: all.

        Raises
        ------
        ValueError
            If the target is not a lattice that it can move.
        """
        n_sites: int = getattr(target, "n_dim", 0)
        if not isinstance(target, Lattice) or target.values not in self.values:
            names = " or ".join(_NAMES[values] for values in self.values)
            raise ValueError(
                f"kernel {type(self).__name__} must move a {names}, got a target of type "
                f"{type(target).__name__}; pass kernel='auto'."
            )
        return np.arange(n_sites)

    def reversed(self) -> Self:
        """Return the kernel itself."""
        return self

    def settings(self) -> dict[str, float]:
        """Return the number of sweeps."""
        return {"n_sweeps": float(self.n_sweeps)}


@dataclass(frozen=True)
class VisitKernel(SweepKernel):
    """A kernel that visits sites one after the other, and is reversed by the opposite order."""

    order: str = "checkerboard"
    backwards: bool = False
    orders: ClassVar[tuple[str, ...]] = ("checkerboard", "sequential")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("order", self.order, self.orders)
        check_flag("backwards", self.backwards)

    def check(self, target: Any) -> NDArray[np.int64]:
        """Return the sites that it moves: all; see ``SweepKernel`` and ``sites``."""
        moved = super().check(target)
        self.sites(target)
        return moved

    def reversed(self) -> Self:
        """Return the kernel that visits sites in the opposite order."""
        return replace(self, backwards=not self.backwards)

    def sites(self, target: Any) -> NDArray[np.int64]:
        """Return the sites of a lattice in the order of visits; none if they are drawn at random.

        Raises
        ------
        ValueError
            If the order is ``"checkerboard"`` on a periodic lattice of odd sizes.
        """
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
