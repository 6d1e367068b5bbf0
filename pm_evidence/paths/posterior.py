"""The unnormalised posterior density as a function of points in R^d."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.targets.compile.density import densities_with_gradients

__all__ = ["Posterior"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Posterior:
    """Prior times likelihood of a target all of whose coordinates are continuous.

    Parameters
    ----------
    target : PyMCTarget
        The target.
    """

    target: Any

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
