"""A density fitted to a population: exact draws, and its own log density."""

from collections.abc import Callable
from dataclasses import dataclass
from math import lgamma, log, pi
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape, learn_shape

__all__ = ["StudentFit"]

Floats = NDArray[np.float64]
Slope = Callable[[Floats], tuple[Floats, Floats]]

# The error of a difference of gradients is least about the cube root of the rounding error.
_CURVATURE_STEP = 6e-6


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
        return cls(learn_shape(x), _dof(x.shape[1]))

    @classmethod
    def to_peak(cls, slope: Slope, start: Floats) -> Self | None:
        """Fit the peak of a log density above a point, by its curvature (Laplace).

        Parameters
        ----------
        slope : callable
            Returns log density, shape ``(n,)``, and gradient, shape ``(n, d)``, of ``n`` points.
        start : ndarray, shape (d,)
            Where the ascent starts.

        Returns
        -------
        StudentFit or None
            None where no peak is found, or its curvature is not that of a peak.
        """
        # SciPy is imported where it is used: it takes as long as the rest of the package
        from scipy.optimize import minimize

        def descent(x: Floats) -> tuple[float, Floats]:
            log_density, gradient = slope(x[None])
            finite = np.isfinite(log_density[0]) and np.isfinite(gradient[0]).all()
            return (-log_density[0], -gradient[0]) if finite else (1e300, np.zeros_like(x))

        peak = minimize(descent, start, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x
        steps = _CURVATURE_STEP * np.maximum(1.0, np.abs(peak))
        sides = np.concatenate([peak + np.diag(steps), peak - np.diag(steps)])
        above, below = np.split(slope(sides)[1], 2)
        curvature = (below - above) / (2.0 * steps[:, None])
        try:
            inverse = np.linalg.inv(0.5 * (curvature + curvature.T))
            factor = np.linalg.cholesky(0.5 * (inverse + inverse.T))
        except np.linalg.LinAlgError:
            return None
        return cls(Shape(peak, factor), _dof(start.size))

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Return ``n`` independent draws, shape ``(n, d)``."""
        mean, factor = self.shape.mean, self.shape.factor
        noise = rng.standard_normal((n, mean.size))
        noise *= np.sqrt(self.dof / rng.chisquare(self.dof, n))[:, None]
        scaled = noise @ factor.T if self.shape.is_dense else noise * factor[:, 0]
        draws: Floats = mean + scaled
        return draws

    def log_density(self, x: Floats) -> Floats:
        """Return the normalised log density of every row of ``x`` in nats."""
        mean, factor = self.shape.mean, self.shape.factor
        d, dof = mean.size, self.dof
        if self.shape.is_dense:
            scaled = np.linalg.solve(factor, (x - mean).T).T
            log_volume = np.log(np.diag(factor)).sum()
        else:
            scaled = (x - mean) / factor[:, 0]
            log_volume = np.log(factor).sum()
        constant = lgamma(0.5 * (dof + d)) - lgamma(0.5 * dof) - 0.5 * d * log(dof * pi)
        tails: Floats = -0.5 * (dof + d) * np.log1p((scaled * scaled).sum(axis=1) / dof)
        return constant - log_volume + tails


def _dof(d: int) -> int:
    # tails heavier than Gaussian ones, yet nearly all draws at the radius where a Gaussian
    # population of this dimension has its members
    return 5 + 2 * d
