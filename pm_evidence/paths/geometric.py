"""Geometric paths: from prior or reference, with an estimate, and between two models."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.references.mixture import StudentFit, StudentMixture
from pm_evidence.targets.compile.numba_density import densities_with_gradients
from pm_evidence.targets.estimated.target import EstimatedParticles, EstimatedTarget
from pm_evidence.targets.layout import Particles

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Posterior:
    """Prior times likelihood of a target all of whose coordinates are continuous."""

    target: Any  # the target

    @property
    def has_gradient(self) -> bool:
        """Whether the density has a gradient."""
        return self.target.differentiable is not None

    @property
    def is_log_concave(self) -> bool:
        """Whether the density is known to be log-concave, so that it has a single mode."""
        known: bool = self.target.is_log_concave
        return known

    def log_density(self, x: Floats) -> Floats:
        """Return the log density of every row of ``x``, with the prior normalised, in nats.

        It is ``-inf`` where the density is NaN, and outside the one period of circular coordinates.
        """
        log_density = self.target.evaluate(x).log_density.sum(axis=1) - self.target.log_order_mass
        outside = np.isnan(log_density) | self.target.outside(x)
        return np.where(outside, -np.inf, log_density)

    def draw_prior(self, n: int, rng: np.random.Generator) -> Floats:
        """Return ``n`` independent draws from the prior, or a few less, shape ``(n, d)``."""
        seed = np.random.SeedSequence(int(rng.integers(2**63)))
        # those of a model need no evaluation of its density
        points = getattr(self.target, "finite_prior_points", None)
        draws: Floats = self.target.draw(n, seed).x if points is None else points(n, seed)
        return draws

    def gradient(self, x: Floats) -> Floats:
        """Return the gradient of the log density at every row of ``x``, shape ``(n, d)``."""
        return self.with_gradient(x)[1]

    def with_gradient(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the log density, with the prior as it is, and its gradient at every row of ``x``.

        Under ordered transforms the mass of the prior is not 1.
        """
        log_density, gradient = densities_with_gradients(self.target, x)
        return log_density.sum(axis=1), gradient.sum(axis=1)


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


_MOST_DIMENSIONS = 60


@dataclass(frozen=True)
class ReferencedPath(GeometricPath):
    """``log f_beta(x) = (1 - beta) log q(x) + beta (log prior(x) + log likelihood(x))``."""

    def posterior(self) -> Posterior | None:
        """Return the density at ``beta = 1`` as a function of points in R^d.

        It is that of the model, with prior draws to search for modes that the reference misses.
        """
        return Posterior(self.target.model) if self.has_density else None

    @property
    def known(self) -> StudentMixture | None:
        """A density fitted to a population that was annealed from the prior.

        None if it is not one of all coordinates, or in high dimension, where draws from it have
        next to no weight.
        """
        d = self.target.n_dim
        fits = len(self.target.positions) == d <= _MOST_DIMENSIONS
        return self.target.known if fits else None


# If the likelihood is noisy, draws from a fitted density are more useful than moves, and this many
# times as many draws as particles cost less than a few stages.
_FITTED_DRAWS = 4


@dataclass(frozen=True)
class EstimatedPath(TemperedLikelihood):
    """``log f_beta(x, u) = log prior(x) + log p(u) + beta * log estimate(x, u)``.

    A state keeps its estimate until a move replaces it.

    Tran et al., Eq. 6, on the space of section 3.1.
    """

    target: EstimatedTarget  # defines the prior and the estimates

    def at(self, draws: Floats) -> EstimatedParticles:
        """Return the population of states, shape ``(n, n_dim + 1 + n_seeds)``."""
        return self.target.at(draws)

    def fit(self, state: EstimatedParticles) -> StudentFit | None:
        """Return a density fitted to the parameters of a population.

        None if there are discrete coordinates, or if the mass of the prior is not known exactly.
        """
        return StudentFit.to(state.x) if self.has_density else None

    def bridge_work(
        self, fit: StudentFit, state: EstimatedParticles, n: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Return the work from a fitted density to the target, in nats."""
        target = self.target
        x = fit.draw(_FITTED_DRAWS * n, rng)
        log_mass = target.log_order_mass
        log_target = self.log_target(x, rng) - log_mass
        # no mass where the density is NaN, or outside the one period of circular coordinates
        outside = np.isnan(log_target) | target.outside(x)
        forward = np.where(outside, np.inf, fit.log_density(x) - log_target)
        reverse = fit.log_density(state.x) - state.log_density.sum(axis=1) + log_mass
        return forward, reverse

    def log_target(self, x: Floats, rng: np.random.Generator) -> Floats:
        """Return log prior plus a new estimate of the log likelihood, shape ``(n,)``, in nats."""
        seeds = self.target.draw_seeds(len(x), rng)
        return self.target.estimated(x, seeds).log_density.sum(axis=1)


@dataclass(frozen=True)
class PairPath(GeometricPath):
    """``log f_beta(x) = (1 - beta) log f_a(x) + beta log f_b(x)``."""

    starts: Floats  # shape (n, n_dim): draws from the posterior of the first model

    def draw(self, n: int, seed: np.random.SeedSequence) -> Particles:
        """Return ``n`` of the starts: all in their order, or some at random if ``n`` differs."""
        if n == len(self.starts):
            return self.at(self.starts)
        return self.at(self.starts[np.random.default_rng(seed).integers(len(self.starts), size=n)])
