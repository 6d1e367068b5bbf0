"""Kernels along a path on which data are added."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import MoveInfo, Tunable
from pm_evidence.paths.data_points import DataPointsPath, Placed

__all__ = ["OnDataPoints"]


@dataclass(frozen=True)
class OnDataPoints:
    """A kernel of a PyMC model, applied to the posterior of a part of the data.

    Parameters
    ----------
    kernel : Kernel
        The kernel for prior times likelihood.
    """

    kernel: Any

    def advance(
        self, path: DataPointsPath, state: Placed, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Placed, MoveInfo]:
        """Move every member once at ``beta``; see ``contracts.Kernel``."""
        new = len(state) * (state.beta != beta)
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
