"""What kernels share that visit the parts of a state in an order, several times."""

from dataclasses import dataclass, replace
from typing import Self

from pm_evidence.core.checks import check_count, check_flag

__all__ = ["SweepSettings"]

_MOST_SWEEPS = 1_000_000


@dataclass(frozen=True)
class SweepSettings:
    """The base of kernels that visit all parts in an order, and are reversed by the opposite one.

    Parameters
    ----------
    n_sweeps : int
        Number of times that all parts are visited in a move.
    backwards : bool
        Whether they are visited in the opposite order.
    """

    n_sweeps: int = 1
    backwards: bool = False

    def __post_init__(self) -> None:
        check_count("n_sweeps", self.n_sweeps, 1, _MOST_SWEEPS)
        check_flag("backwards", self.backwards)

    def reversed(self) -> Self:
        """Return the kernel that visits the parts in the opposite order."""
        return replace(self, backwards=not self.backwards)

    def settings(self) -> dict[str, float]:
        """Return the number of sweeps."""
        return {"n_sweeps": float(self.n_sweeps)}
