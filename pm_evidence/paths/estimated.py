"""The geometric path of an estimated posterior: prior times estimate to the power beta."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pm_evidence.paths.geometric import TemperedLikelihood
from pm_evidence.references.fitted import StudentFit
from pm_evidence.targets.estimated.target import EstimatedParticles, EstimatedTarget

__all__ = ["EstimatedPath"]

Floats = NDArray[np.float64]

# If the likelihood is noisy, draws from a fitted density are more useful than moves, and this many
# times as many draws as particles cost less than a few stages.
_FITTED_DRAWS = 4


@dataclass(frozen=True)
class EstimatedPath(TemperedLikelihood):
    """``log f_beta(x, u) = log prior(x) + log p(u) + beta * log estimate(x, u)``.

    A state keeps its estimate until a move replaces it.

    Parameters
    ----------
    target : EstimatedTarget
        Defines the prior and the estimates.

    Notes
    -----
    Tran et al., Eq. 6, on the space of section 3.1.
    """

    target: EstimatedTarget

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
        """Return the work from a fitted density to the target, in nats.

        Parameters
        ----------
        fit : StudentFit
            A density of the parameters, independent of ``state``.
        state : EstimatedParticles
            Draws from the target.
        n : int
            A quarter of the number of draws to make from ``fit``.
        rng : numpy.random.Generator
            Source of these draws.

        Returns
        -------
        forward : ndarray, shape (4 * n,)
            ``log fit(x) - log f_1(x, u)``, where the prior is normalised, at draws from ``fit``
            with new estimates of their likelihood; ``inf`` outside the support.
        reverse : ndarray, shape (n_members,)
            The same at the members of ``state``.
        """
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
