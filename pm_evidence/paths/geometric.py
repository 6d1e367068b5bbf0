"""The geometric path: prior times likelihood to the power beta."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.paths.posterior import Posterior
from pm_evidence.targets.points import Particles

__all__ = ["GeometricPath", "TemperedLikelihood"]

Floats = NDArray[np.float64]
_MEMBERS_PER_BAND = 10
_POWER_ITERATIONS = 10


@dataclass(frozen=True)
class TemperedLikelihood:
    """The base of paths whose states hold their log prior and their log likelihood.

    Parameters
    ----------
    target : object
        A target that draws exactly from its prior.
    """

    target: Any

    def draw(self, n: int, seed: np.random.SeedSequence) -> Particles:
        """Return ``n`` independent prior draws."""
        particles: Particles = self.target.draw(n, seed)
        return particles

    @property
    def has_density(self) -> bool:
        """Whether all coordinates are continuous and the mass of the prior is known exactly."""
        return not self.target.discrete.size and self.target.prior_acceptance == 1.0

    def log_ratio(self, state: Particles, start: float, stop: float) -> Floats:
        """Return ``(stop - start) * log likelihood``, shape ``(n,)``, in nats."""
        ratio: Floats = (stop - start) * state.log_density[:, 1]
        return ratio

    def energy(self, state: Particles, beta: float) -> Floats:
        """Return minus the log likelihood, shape ``(n,)``, in nats."""
        return -state.log_density[:, 1]

    def order(self, state: Particles) -> NDArray[np.int64]:
        """Return an order along the main direction of the population and, within it, by energy.

        Modes are separated along the main direction, and later weights depend on the energy alone.
        Systematic resampling in this order therefore preserves the distribution of both.
        """
        n = len(state)
        scale = state.x.std(axis=0)
        standard = (state.x - state.x.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
        main = standard @ _main_direction(standard)
        band = np.argsort(np.argsort(main)) * int(np.sqrt(n / _MEMBERS_PER_BAND)) // n
        # in alternating directions, so that energies are also similar where two bands meet
        energy = np.where(band % 2 == 0, 1.0, -1.0) * state.log_density[:, 1]
        return np.lexsort((energy, band))


@dataclass(frozen=True)
class GeometricPath(TemperedLikelihood):
    """``log f_beta(x) = log prior(x) + beta * log likelihood(x)``.

    Parameters
    ----------
    target : PyMCTarget
        Defines the prior and the likelihood.
    """

    def at(self, draws: Floats) -> Particles:
        """Return the population at some points, shape ``(n, n_dim)``."""
        particles: Particles = self.target.evaluate(np.array(draws, dtype=float, order="C"))
        return particles

    def posterior(self) -> Posterior | None:
        """Return the density at ``beta = 1`` as a function of points in R^d.

        None if there are discrete coordinates, or if the mass of the prior is not known exactly.
        """
        return Posterior(self.target) if self.has_density else None

    def log_posterior(self, state: Particles) -> Floats:
        """Return the log density of `posterior` at states, shape ``(n,)``, in nats."""
        found: Floats = state.log_density.sum(axis=1) - self.target.log_order_mass
        return found


def _main_direction(standard: Floats) -> Floats:
    """Return approximately the direction of largest variance, by power iteration."""
    direction = standard[np.argmax(np.einsum("ij,ij->i", standard, standard))]
    for _ in range(_POWER_ITERATIONS):
        direction = (standard @ direction) @ standard
        length = np.linalg.norm(direction)
        if length == 0.0:  # all members coincide
            break
        direction = direction / length
    return direction
