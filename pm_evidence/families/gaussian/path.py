"""The path of Gaussians between two Gaussians."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.random import fill_normal, streams
from pm_evidence.targets.points import Points

__all__ = ["MovingGaussian"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MovingGaussian:
    """``log f_beta(x) = -(x - mean(beta))**2 / (2 sd(beta)**2)``.

    Parameters
    ----------
    target : Gaussian
        Its ``mean_at`` and ``sd_at`` give the Gaussian at every beta.
    """

    target: Any

    def draw(self, n: int, seed: np.random.SeedSequence) -> Points:
        """Return ``n`` independent draws from the reference."""
        x = np.empty(n)
        fill_normal(streams(seed, 1)[0], x)
        return Points(self.target.mean_at(0.0) + self.target.sd_at(0.0) * x[:, None])

    def at(self, draws: Floats) -> Points:
        """Return the population at some points, shape ``(n, 1)``."""
        return Points(np.array(draws, dtype=float))

    def log_ratio(self, state: Points, start: float, stop: float) -> Floats:
        """Return the change of the log density between two inverse temperatures."""
        return self._log_density(state, stop) - self._log_density(state, start)

    def energy(self, state: Points, beta: float) -> Floats:
        """Return minus the derivative of the log density by beta, shape ``(n,)``, in nats."""
        target, sd = self.target, self.target.sd_at(beta)
        residual = state.x[:, 0] - target.mean_at(beta)
        mean_slope, sd_slope = target.mean - target.start_mean, target.sd - target.start_sd
        energy: Floats = -residual * (mean_slope + residual * sd_slope / sd) / sd**2
        return energy

    def _log_density(self, state: Points, beta: float) -> Floats:
        scaled = (state.x[:, 0] - self.target.mean_at(beta)) / self.target.sd_at(beta)
        log_density: Floats = -0.5 * scaled**2
        return log_density

    def order(self, state: Points) -> NDArray[np.int64]:
        """Return the order of the points on the line."""
        return np.argsort(state.x[:, 0])
