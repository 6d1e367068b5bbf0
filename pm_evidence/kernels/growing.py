"""Kernels of paths whose states grow, by variables or by data."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import MoveInfo, Tunable
from pm_evidence.paths.data_points import DataPointsPath, Placed


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
    """The time reversal of `Grows`: moves states backwards, then leaves out what came last."""

    moves: Any  # the moves of `Grows`

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


@dataclass(frozen=True)
class OnDataPoints:
    """A kernel of a PyMC model, applied to the posterior of a part of the data."""

    kernel: Any  # the kernel for prior times likelihood

    def advance(
        self, path: DataPointsPath, state: Placed, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Placed, MoveInfo]:
        """Move every member once at ``beta``; see ``contracts.Kernel``."""
        new = path.cost_of_place(state, beta)
        state = path.placed(state, beta)
        particles, info = self.kernel.advance(path.at_place(beta), state.particles, 1.0, streams)
        return Placed(particles, beta), replace(info, n_evaluations=info.n_evaluations + new)

    def learn(self, path: DataPointsPath, state: Placed) -> Self:
        """Return the kernel with its shape learnt from a population."""
        if not isinstance(self.kernel, Tunable):
            return self
        return replace(self, kernel=self.kernel.learn(path.at_place(state.beta), state.particles))

    def adjust(self, info: MoveInfo) -> Self:
        """Return the kernel with its scales adapted to a report."""
        if not isinstance(self.kernel, Tunable):
            return self
        return replace(self, kernel=self.kernel.adjust(info))

    def without_exploration(self) -> Self:
        """Return the kernel as it is used after the pilot."""
        if not isinstance(self.kernel, Tunable):
            return self
        return replace(self, kernel=self.kernel.without_exploration())

    def reversed(self) -> Self:
        """Return the time reversal."""
        return replace(self, kernel=self.kernel.reversed())

    def settings(self) -> dict[str, float]:
        """Return the settings of the kernel."""
        found: dict[str, float] = self.kernel.settings()
        return found
