"""The geometric path from a reference other than the prior."""

from dataclasses import dataclass

from pm_evidence.paths.geometric import GeometricPath
from pm_evidence.paths.posterior import Posterior
from pm_evidence.references.mixture import StudentMixture

__all__ = ["ReferencedPath"]

_MOST_DIMENSIONS = 60


@dataclass(frozen=True)
class ReferencedPath(GeometricPath):
    """``log f_beta(x) = (1 - beta) log q(x) + beta (log prior(x) + log likelihood(x))``.

    Parameters
    ----------
    target : ReferencedTarget
        Defines the reference ``q``, the prior and the likelihood.
    """

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
