"""The geometric path: prior times likelihood to the power beta."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.targets.particles import Particles

__all__ = ["GeometricPath"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GeometricPath:
    """``log f_beta(x) = log prior(x) + beta * log likelihood(x)``.

    Parameters
    ----------
    target : object
        A target that draws exactly from its prior and whose states carry both log densities.
    """

    target: Any

    def draw(self, n: int, seed: np.random.SeedSequence) -> Particles:
        """Return ``n`` independent prior draws."""
        particles: Particles = self.target.draw(n, seed)
        return particles

    def log_ratio(self, state: Particles, start: float, stop: float) -> Floats:
        """Return ``(stop - start) * log likelihood``, shape ``(n,)``, in nats."""
        ratio: Floats = (stop - start) * state.log_density[:, 1]
        return ratio

    def energy(self, state: Particles, beta: float) -> Floats:
        """Return minus the log likelihood, shape ``(n,)``, in nats."""
        return -state.log_density[:, 1]
