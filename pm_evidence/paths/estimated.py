"""The geometric path of an estimated posterior: prior times estimate to the power beta."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pm_evidence.paths.geometric import GeometricPath
from pm_evidence.references.fitted import StudentFit
from pm_evidence.targets.estimated.target import EstimatedParticles, EstimatedTarget

__all__ = ["EstimatedPath"]

Floats = NDArray[np.float64]

# Draws from a fitted density are worth more than moves where the likelihood is noisy, and as many
# as this many populations cost less than a few stages do.
_FITTED_DRAWS = 4


@dataclass(frozen=True, slots=True)
class EstimatedPath(GeometricPath):
    """``log f_beta(x, u) = log prior(x) + log p(u) + beta * log estimate(x, u)``.

    A state keeps its estimate until a move replaces it.

    Parameters
    ----------
    target : EstimatedTarget
        Says what the prior and the estimates are.

    Notes
    -----
    Tran et al., Eq. 6, on the space of section 3.1.
    """

    target: EstimatedTarget
    refines: ClassVar[bool] = False  # a fitted density is drawn with estimates of its own

    def at(self, draws: Floats) -> EstimatedParticles:  # type: ignore[override]
        """Return the population of states, shape ``(n, n_dim + 1 + n_seeds)``."""
        return self.target.at(draws)

    def bridge_work(  # type: ignore[override]
        self, fit: StudentFit, state: EstimatedParticles, n: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Return the work from a fitted density to the target; see ``GeometricPath``.

        There are four times ``n`` draws from the fitted density.
        """
        # slots: a dataclass with them is another class than the one that super() would look up
        return GeometricPath.bridge_work(self, fit, state, _FITTED_DRAWS * n, rng)  # type: ignore[arg-type]

    def log_target(self, x: Floats, rng: np.random.Generator) -> Floats:
        """Return log prior plus a new estimate of the log likelihood, shape ``(n,)``, in nats."""
        seeds = self.target.draw_seeds(len(x), rng)
        return self.target.estimated(x, seeds).log_density.sum(axis=1)
