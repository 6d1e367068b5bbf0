"""Kernels of paths whose states grow."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import MoveInfo

__all__ = ["Grows", "Shrinks"]


@dataclass(frozen=True)
class Grows:
    """Extends states by one step where the density at ``beta`` needs it, then moves them.

    Parameters
    ----------
    moves : Kernel
        Moves states of a fixed step, and leaves the density of that step invariant.
    """

    moves: Any

    def advance(
        self, path: Any, state: Any, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Any, MoveInfo]:
        """Extend every member if it is one step behind, and move it; see ``contracts.Kernel``."""
        state = path.reached(state, beta, streams)
        moved: tuple[Any, MoveInfo] = self.moves.advance(path, state, beta, streams)
        return moved

    def reversed(self) -> "Shrinks":
        """Return the time reversal: moves, then states of one step earlier."""
        return Shrinks(self.moves)

    def settings(self) -> dict[str, float]:
        """Return the settings of the moves."""
        found: dict[str, float] = self.moves.settings()
        return found


@dataclass(frozen=True)
class Shrinks:
    """The time reversal of `Grows`: moves states backwards, then leaves out what came last.

    Parameters
    ----------
    moves : Kernel
        The moves of `Grows`.
    """

    moves: Any

    def advance(
        self, path: Any, state: Any, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Any, MoveInfo]:
        """Move every member backwards and take it one step back; see ``contracts.Kernel``."""
        state, info = self.moves.reversed().advance(path, state, beta, streams)
        return path.shrunk(state), info

    def reversed(self) -> Grows:
        """Return the kernel that this one is the time reversal of."""
        return Grows(self.moves)

    def settings(self) -> dict[str, float]:
        """Return the settings of the moves."""
        found: dict[str, float] = self.moves.settings()
        return found
