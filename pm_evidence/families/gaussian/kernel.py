"""The exact kernel of a Gaussian, with any correlation between states."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import normals
from pm_evidence.targets.points import Points

__all__ = ["Autoregression"]


@dataclass(frozen=True)
class Autoregression:
    """``x -> mean + tau (x - mean) + sqrt(1 - tau**2) sd noise``, which satisfies detailed balance.

    Habeck (2017), section 4. The path defines mean and standard deviation, the target ``tau``.
    """

    def advance(
        self, path: Any, state: Points, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Points, MoveInfo]:
        """Move every member once; see ``contracts.Kernel``."""
        tau, mean = path.target.tau_at(beta), path.mean_at(beta)
        noise = normals(streams, 1)
        x = mean + tau * (state.x - mean) + np.sqrt(1.0 - tau**2) * path.sd_at(beta) * noise
        return Points(x), MoveInfo(1.0, len(state))

    def reversed(self) -> Self:
        """Return the kernel itself: it is reversible."""
        return self

    def settings(self) -> dict[str, float]:
        """Return no settings: ``tau`` is a parameter of the target."""
        return {}
