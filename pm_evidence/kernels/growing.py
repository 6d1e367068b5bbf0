"""Kernels of paths whose states grow, by variables or by data."""

from collections.abc import Callable
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
    backwards : bool
        Whether it is the time reversal: moves states backwards, then leaves out what came last.
    """

    moves: Any
    backwards: bool = False

    def advance(
        self, path: Any, state: Any, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Any, MoveInfo]:
        """Extend every member if it is one step behind, and move it; see ``contracts.Kernel``."""
        if self.backwards:
            state, info = self.moves.reversed().advance(path, state, beta, streams)
            return path.shrunk(state), info
        state = path.reached(state, beta, streams)
        moved: tuple[Any, MoveInfo] = self.moves.advance(path, state, beta, streams)
        return moved

    def reversed(self) -> Self:
        """Return the time reversal."""
        return replace(self, backwards=not self.backwards)

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
        place = path.at_place(state.beta)
        return self._tuned(lambda kernel: kernel.learn(place, state.particles))

    def adjust(self, info: MoveInfo) -> Self:
        """Return the kernel with its scales adapted to a report."""
        return self._tuned(lambda kernel: kernel.adjust(info))

    def without_exploration(self) -> Self:
        """Return the kernel as it is used after the pilot."""
        return self._tuned(lambda kernel: kernel.without_exploration())

    def _tuned(self, change: Callable[[Tunable], Any]) -> Self:
        is_tunable = isinstance(self.kernel, Tunable)
        return replace(self, kernel=change(self.kernel)) if is_tunable else self

    def reversed(self) -> Self:
        """Return the time reversal."""
        return replace(self, kernel=self.kernel.reversed())

    def settings(self) -> dict[str, float]:
        """Return the settings of the kernel."""
        found: dict[str, float] = self.kernel.settings()
        return found
