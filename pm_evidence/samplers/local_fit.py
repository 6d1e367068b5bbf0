"""A density fitted to the curvature of a log density at one point."""

from dataclasses import dataclass
from math import log, pi

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape
from pm_evidence.paths.posterior import Posterior
from pm_evidence.references.fitted import StudentFit, student_dof

__all__ = ["Local", "fit_locally"]

Floats = NDArray[np.float64]

# Step of the finite differences of gradients, relative to the length scale of the curvature. Three
# rounds find this scale even if it is far below that of the population.
_STEP, _ROUNDS = 1e-3, 3
# A peak is narrower than this step if the log density falls by more than so many nats, instead of
# 1/2, within one standard deviation. The scale is then looked for from this share of the first one.
_STEEP, _NARROW = 5.0, 1e-3
# Largest number of gradients on either side that are computed at once: it bounds the memory.
_MOST_ROWS = 256
# Two peaks count as one if they are closer than this, in standard deviations of the first.
_SAME = 0.5


@dataclass(frozen=True, slots=True)
class Local:
    """A Student-t density about a point.

    Parameters
    ----------
    fit : StudentFit
        The density.
    height : float
        Log density of the posterior at the point, in nats.
    log_mass : float
        Log of the integral of the Gaussian of the same height and curvature, in nats.
    """

    fit: StudentFit
    height: float
    log_mass: float

    @property
    def shape(self) -> Shape:
        """Location and scale, with the lower Cholesky factor of the covariance."""
        assert isinstance(self.fit.shape, Shape)
        return self.fit.shape

    def predicted(self, x: Floats) -> Floats:
        """Return the log density that the curvature predicts at every row of ``x``."""
        squares = self.fit.shape.squared_distances(x)
        return self.height - 0.5 * squares

    def covers(self, points: Floats, heights: Floats) -> NDArray[np.bool_]:
        """Return which of the peaks at ``points``, shape ``(n, d)``, coincide with this one."""
        squares = self.fit.shape.squared_distances(points)
        near: NDArray[np.bool_] = squares < _SAME**2
        return near & (heights <= self.height + _SAME)


def fit_locally(
    posterior: Posterior, x: Floats, shape: Shape, longest: float = 1.0
) -> Local | None:
    """Fit a density to the curvature at a point (Laplace).

    Directions in which the density rises, or falls off much more slowly than the population's own
    scale, get that scale.

    Parameters
    ----------
    posterior : Posterior
        The density, with a gradient.
    x : ndarray, shape (d,)
        The point.
    shape : Shape
        Location and scale of the population.
    longest : float
        Largest standard deviation in any direction, in units of the population's.

    Returns
    -------
    Local or None
        None if gradients are not finite, or curvatures differ too much for float64.
    """
    d = x.size
    height = float(posterior.log_density(x[None])[0])
    basis = shape.factor if shape.is_dense else shape.factor[:, :1]
    for start in (1.0, _NARROW):
        # columns of ``local`` are directions in the population's coordinates, each as long as one
        # standard deviation of the density along it
        local = start * np.eye(d)
        for _ in range(_ROUNDS):
            curvature = _curvature(posterior, x, _scaled(basis, local))
            if not (np.isfinite(curvature).all() and np.isfinite(height)):
                return None
            inverse = np.linalg.inv(local)
            curvature = inverse.T @ (0.5 * (curvature + curvature.T)) @ inverse
            value, vector = np.linalg.eigh(0.5 * (curvature + curvature.T))
            local = vector / np.sqrt(np.where(value < longest**-2, 1.0, value))
        factor = _scaled(basis, local)
        beside = posterior.log_density(np.concatenate([x + factor.T, x - factor.T]))
        if not (np.isfinite(beside) & (beside < height - _STEEP)).any():
            break
    covariance = factor @ factor.T
    try:
        lower = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return None
    log_mass = height + 0.5 * d * log(2.0 * pi) + float(np.log(np.diag(lower)).sum())
    return Local(StudentFit(Shape(x, lower), student_dof(d)), height, log_mass)


def _scaled(basis: Floats, local: Floats) -> Floats:
    """Return directions, which are columns in units of the population, in those of the density."""
    scaled: Floats = basis @ local if basis.shape[1] == len(local) else basis * local
    return scaled


def _curvature(posterior: Posterior, x: Floats, directions: Floats) -> Floats:
    """Return minus the second derivatives of the log density along some directions, its columns."""
    found = np.empty((x.size, x.size))
    for start in range(0, x.size, _MOST_ROWS):
        rows = slice(start, start + _MOST_ROWS)
        steps = _STEP * directions[:, rows].T
        with np.errstate(over="ignore", invalid="ignore"):  # gradients may be infinite
            change = posterior.gradient(x - steps) - posterior.gradient(x + steps)
            found[rows] = change @ directions / (2.0 * _STEP)
    return found
