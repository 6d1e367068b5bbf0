"""The geometric path: prior times likelihood to the power beta."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pm_evidence.paths.posterior import Posterior
from pm_evidence.references.fitted import StudentFit
from pm_evidence.targets.points import Particles

__all__ = ["GeometricPath"]

Floats = NDArray[np.float64]
_MEMBERS_PER_BAND = 10
_POWER_ITERATIONS = 10


@dataclass(frozen=True, slots=True)
class GeometricPath:
    """``log f_beta(x) = log prior(x) + beta * log likelihood(x)``.

    Parameters
    ----------
    target : object
        A target that draws exactly from its prior and whose states carry both log densities.
    """

    target: Any
    refines: ClassVar[bool] = True  # whether islands are bridged with a density fitted to them

    def draw(self, n: int, seed: np.random.SeedSequence) -> Particles:
        """Return ``n`` independent prior draws."""
        particles: Particles = self.target.draw(n, seed)
        return particles

    def at(self, draws: Floats) -> Particles:
        """Return the population at some points, shape ``(n, n_dim)``."""
        particles: Particles = self.target.evaluate(np.array(draws, dtype=float, order="C"))
        return particles

    def log_ratio(self, state: Particles, start: float, stop: float) -> Floats:
        """Return ``(stop - start) * log likelihood``, shape ``(n,)``, in nats."""
        ratio: Floats = (stop - start) * state.log_density[:, 1]
        return ratio

    def energy(self, state: Particles, beta: float) -> Floats:
        """Return minus the log likelihood, shape ``(n,)``, in nats."""
        return -state.log_density[:, 1]

    def fit(self, state: Particles) -> StudentFit | None:
        """Return a density fitted to a population.

        None where there are discrete coordinates, or a prior whose mass is not known exactly.
        """
        return None if self.posterior() is None else StudentFit.to(state.x)

    def posterior(self) -> Posterior | None:
        """Return the density at ``beta = 1`` as a function of points in R^d.

        None where there are discrete coordinates, or a prior whose mass is not known exactly.
        """
        target = self.target
        if target.discrete.size or target.prior_acceptance != 1.0:
            return None
        return Posterior(target)

    def bridge_work(
        self, fit: Any, state: Particles, n: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Return the work from a fitted density to the target, in nats.

        Parameters
        ----------
        fit : StudentFit or StudentMixture
            A fitted density, independent of ``state``.
        state : Particles
            Draws from the target.
        n : int
            Number of draws to make from ``fit``.
        rng : numpy.random.Generator
            Source of these draws.

        Returns
        -------
        forward : ndarray, shape (n,)
            ``log fit(x) - log f_1(x)``, over the normalised prior, at draws from ``fit``; ``inf``
            outside the support.
        reverse : ndarray, shape (n_members,)
            The same at the members of ``state``.
        """
        x = fit.draw(n, rng)
        log_mass = self.target.log_order_mass
        log_target = self.log_target(x, rng) - log_mass
        # a density that is not a number has no mass there, and circular ones have one period
        outside = np.isnan(log_target) | self.target.outside(x)
        forward = np.where(outside, np.inf, fit.log_density(x) - log_target)
        reverse = fit.log_density(state.x) - state.log_density.sum(axis=1) + log_mass
        return forward, reverse

    def log_target(self, x: Floats, rng: np.random.Generator) -> Floats:
        """Return the log target density at some points, shape ``(n,)``, in nats."""
        log_target: Floats = self.target.evaluate(x).log_density.sum(axis=1)
        return log_target

    def order(self, state: Particles) -> NDArray[np.int64]:
        """Return an order along the main direction of the population and, within it, by energy.

        Modes lie apart in the main direction, and the weights to come depend on the energy alone:
        systematic resampling in this order keeps the shares of both.
        """
        n = len(state)
        scale = state.x.std(axis=0)
        standard = (state.x - state.x.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
        main = standard @ _main_direction(standard)
        band = np.argsort(np.argsort(main)) * int(np.sqrt(n / _MEMBERS_PER_BAND)) // n
        # there and back again: the ends of neighbouring bands are alike too
        energy = np.where(band % 2 == 0, 1.0, -1.0) * state.log_density[:, 1]
        return np.lexsort((energy, band))


def _main_direction(standard: Floats) -> Floats:
    """Return about the direction of largest variance, by power iteration from the outermost row."""
    direction = standard[np.argmax(np.einsum("ij,ij->i", standard, standard))]
    for _ in range(_POWER_ITERATIONS):
        direction = (standard @ direction) @ standard
        length = np.linalg.norm(direction)
        if length == 0.0:  # all members coincide
            break
        direction = direction / length
    return direction
