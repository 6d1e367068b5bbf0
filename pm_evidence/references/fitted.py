"""A density fitted to a population: exact draws, and its own log density."""

from dataclasses import dataclass
from math import lgamma, log, pi
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape, learn_shape

__all__ = ["StudentFit", "student_dof"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StudentFit:
    """A multivariate Student-t density.

    Parameters
    ----------
    shape : Shape
        Location and scale.
    dof : int
        Degrees of freedom.
    """

    shape: Shape
    dof: int

    @classmethod
    def to(cls, x: Floats) -> Self:
        """Fit a population ``x`` of shape ``(n, d)``."""
        return cls(learn_shape(x), student_dof(x.shape[1]))

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Return ``n`` independent draws, shape ``(n, d)``."""
        noise = rng.standard_normal((n, self.shape.mean.size))
        noise *= np.sqrt(self.dof / rng.chisquare(self.dof, n))[:, None]
        draws: Floats = self.shape.mean + self.shape.scaled(noise)
        return draws

    def log_density(self, x: Floats) -> Floats:
        """Return the normalised log density of every row of ``x`` in nats."""
        d, dof = self.shape.mean.size, self.dof
        scaled = self.shape.whitened(x)
        constant = lgamma(0.5 * (dof + d)) - lgamma(0.5 * dof) - 0.5 * d * log(dof * pi)
        tails: Floats = -0.5 * (dof + d) * np.log1p((scaled * scaled).sum(axis=1) / dof)
        return constant - self.shape.log_volume + tails


def student_dof(d: int) -> int:
    """Return the degrees of freedom of a density in ``d`` dimensions that others are drawn from."""
    # tails heavier than Gaussian ones, yet nearly all draws at the radius where a Gaussian
    # population of this dimension has its members
    return 5 + 2 * d
