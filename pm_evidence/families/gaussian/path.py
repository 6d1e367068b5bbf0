"""Paths of Gaussians between two Gaussians."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.random import fill_normal, streams
from pm_evidence.targets.points import Points

__all__ = ["GeometricGaussian", "MomentAveragedGaussian", "MovingGaussian"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MovingGaussian:
    """``log f_beta(x) = -(x - mean(beta))**2 / (2 sd(beta)**2)``, where both are linear in beta.

    Parameters
    ----------
    target : Gaussian
        Defines the Gaussians at both ends.
    """

    target: Any

    def mean_at(self, beta: float) -> float:
        """Return the mean at an inverse temperature."""
        mean: float = self.target.mean_at(beta)
        return mean

    def sd_at(self, beta: float) -> float:
        """Return the standard deviation at an inverse temperature."""
        sd: float = self.target.sd_at(beta)
        return sd

    def slopes(self, beta: float) -> tuple[float, float]:
        """Return the derivatives of mean and standard deviation by beta."""
        return self.target.mean - self.target.start_mean, self.target.sd - self.target.start_sd

    def draw(self, n: int, seed: np.random.SeedSequence) -> Points:
        """Return ``n`` independent draws from the reference."""
        x = np.empty(n)
        fill_normal(streams(seed, 1)[0], x)
        return Points(self.mean_at(0.0) + self.sd_at(0.0) * x[:, None])

    def at(self, draws: Floats) -> Points:
        """Return the population at some points, shape ``(n, 1)``."""
        return Points(np.array(draws, dtype=float))

    def log_ratio(self, state: Points, start: float, stop: float) -> Floats:
        """Return the change of the log density between two inverse temperatures."""
        return self._log_density(state, stop) - self._log_density(state, start)

    def energy(self, state: Points, beta: float) -> Floats:
        """Return minus the derivative of the log density by beta, shape ``(n,)``, in nats."""
        sd, (mean_slope, sd_slope) = self.sd_at(beta), self.slopes(beta)
        residual = state.x[:, 0] - self.mean_at(beta)
        energy: Floats = -residual * (mean_slope + residual * sd_slope / sd) / sd**2
        return energy

    def _log_density(self, state: Points, beta: float) -> Floats:
        scaled = (state.x[:, 0] - self.mean_at(beta)) / self.sd_at(beta)
        log_density: Floats = -0.5 * scaled**2
        return log_density

    def order(self, state: Points) -> NDArray[np.int64]:
        """Return the order of the points on the line."""
        return np.argsort(state.x[:, 0])


@dataclass(frozen=True, slots=True)
class GeometricGaussian(MovingGaussian):
    """Gaussians whose log densities are linear in beta."""

    def _natural(self, beta: float) -> tuple[float, float, float, float]:
        """Return precision, precision times mean, and the derivatives of both."""
        first, last = self.target.start_sd**-2, self.target.sd**-2
        start, stop = first * self.target.start_mean, last * self.target.mean
        slopes = last - first, stop - start
        return first + beta * slopes[0], start + beta * slopes[1], *slopes

    def mean_at(self, beta: float) -> float:
        """Return the mean at an inverse temperature."""
        precision, product, _, _ = self._natural(beta)
        return product / precision

    def sd_at(self, beta: float) -> float:
        """Return the standard deviation at an inverse temperature."""
        return float(self._natural(beta)[0] ** -0.5)

    def slopes(self, beta: float) -> tuple[float, float]:
        """Return the derivatives of mean and standard deviation by beta."""
        precision, product, slope, product_slope = self._natural(beta)
        mean_slope = (product_slope - product / precision * slope) / precision
        return mean_slope, -0.5 * slope * precision**-1.5

    def energy(self, state: Points, beta: float) -> Floats:
        """Return minus the derivative of the log density by beta, shape ``(n,)``, in nats."""
        # the density at beta is not that of `MovingGaussian`, but a constant times it
        energy: Floats = self._log_density(state, 0.0) - self._log_density(state, 1.0)
        return energy

    def log_ratio(self, state: Points, start: float, stop: float) -> Floats:
        """Return the change of the log density between two inverse temperatures."""
        ratio: Floats = (start - stop) * self.energy(state, start)
        return ratio


@dataclass(frozen=True, slots=True)
class MomentAveragedGaussian(MovingGaussian):
    """Gaussians whose first and second moments are linear in beta.

    Grosse, Maddison and Salakhutdinov (2013). Between distant ends they are wide, so that they
    overlap with both.
    """

    def _variance(self, beta: float) -> tuple[float, float]:
        """Return the variance, and its derivative."""
        first, last = self.target.start_sd**2, self.target.sd**2
        distance = (self.target.mean - self.target.start_mean) ** 2
        variance = first + beta * (last - first) + beta * (1.0 - beta) * distance
        return variance, last - first + (1.0 - 2.0 * beta) * distance

    def sd_at(self, beta: float) -> float:
        """Return the standard deviation at an inverse temperature."""
        return float(self._variance(beta)[0] ** 0.5)

    def slopes(self, beta: float) -> tuple[float, float]:
        """Return the derivatives of mean and standard deviation by beta."""
        variance, slope = self._variance(beta)
        return self.target.mean - self.target.start_mean, 0.5 * slope * variance**-0.5
