"""A density fitted to a population: exact draws, and its own log density."""

from dataclasses import dataclass
from math import inf, lgamma, log, pi
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape, learn_shape
from pm_evidence.core.sparse_shape import SparseShape

__all__ = ["StudentFit", "student_dof"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StudentFit:
    """A multivariate Student-t density.

    Parameters
    ----------
    shape : Shape or SparseShape
        Location and scale.
    dof : float
        Degrees of freedom; infinite for a normal density.
    """

    shape: Shape | SparseShape
    dof: float

    @classmethod
    def to(cls, x: Floats) -> Self:
        """Fit a population ``x`` of shape ``(n, d)``."""
        return cls(learn_shape(x), student_dof(x.shape[1]))

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Return ``n`` independent draws, shape ``(n, d)``."""
        noise = rng.standard_normal((n, self.shape.mean.size))
        if self.dof < inf:
            noise *= np.sqrt(self.dof / rng.chisquare(self.dof, n))[:, None]
        draws: Floats = self.shape.mean + self.shape.scaled(noise)
        return draws

    def log_density(self, x: Floats) -> Floats:
        """Return the normalised log density of every row of ``x`` in nats."""
        return self.at_distances(self.shape.squared_distances(x))

    def at_distances(self, squares: Floats) -> Floats:
        """Return the log density in nats at squared Mahalanobis distances from the location."""
        d, dof = self.shape.mean.size, self.dof
        if dof == inf:
            return self.log_constant - 0.5 * squares
        return self.log_constant - 0.5 * (dof + d) * np.log1p(squares / dof)

    @property
    def log_constant(self) -> float:
        """The log density at the location, in nats."""
        dof, d = self.dof, self.shape.mean.size
        if dof == inf:
            return -0.5 * d * log(2.0 * pi) - self.shape.log_volume
        constant = lgamma(0.5 * (dof + d)) - lgamma(0.5 * dof) - 0.5 * d * log(dof * pi)
        return constant - self.shape.log_volume


def student_dof(d: int) -> int:
    """Return the degrees of freedom of a density in ``d`` dimensions that others are drawn from."""
    # tails heavier than Gaussian ones, yet nearly all draws at the radius where a Gaussian
    # population of this dimension has its members
    return 5 + 2 * d
