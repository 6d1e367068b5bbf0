"""Normal approximations of a posterior at fixed values of a few hyperparameters."""

from dataclasses import dataclass
from math import log, pi

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape
from pm_evidence.kernels.ascent import climb
from pm_evidence.paths.posterior import Posterior

__all__ = ["ConditionalFit", "ConditionalFits"]

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

# Largest number of gradients of one ascent.
_MOST = 600
# Step of the finite differences of gradients, in units of the scale of the curvature, and how often
# this scale is corrected by more than the factor e, before the differences are right.
_STEP, _CORRECTIONS, _CORRECTED = 1e-3, 4, 1.0
# Step of second differences, in standard deviations.
_LONG_STEP = 0.5
# Largest number of gradients that are computed at once: it bounds the memory.
_MOST_ROWS = 256


@dataclass(frozen=True, slots=True)
class ConditionalFit:
    """The normal approximation at some values of the hyperparameters.

    Parameters
    ----------
    peak : ndarray, shape (d,)
        Peak of the density given the hyperparameters, and their values.
    factor : ndarray, shape (d, d)
        Lower factor of the covariance given the hyperparameters; rows and columns of these are 0.
    slope : ndarray, shape (d, k)
        Change of the peak with each hyperparameter, which is 1 for the hyperparameter itself.
    log_mass : float
        Log of the posterior density of the hyperparameters, up to a constant, in nats.
    """

    peak: Floats
    factor: Floats
    slope: Floats
    log_mass: float


class ConditionalFits:
    """Makes normal approximations at values of the hyperparameters.

    Parameters
    ----------
    posterior : Posterior
        The density.
    given : ndarray of int64, shape (k,)
        Positions of the hyperparameters.
    prior : Shape
        Location and scales of the prior.

    Attributes
    ----------
    n_evaluations : int
        Evaluations of the density and its gradient so far.
    """

    def __init__(self, posterior: Posterior, given: Positions, prior: Shape) -> None:
        self.posterior, self.given, self.prior = posterior, given, prior
        self.rest = np.setdiff1d(np.arange(prior.mean.size), given)
        self.n_evaluations = 0

    @property
    def scale(self) -> Floats:
        """Prior standard deviations of the hyperparameters, shape ``(k,)``."""
        scale: Floats = self.prior.factor[self.given, 0]
        return scale

    def first(self, point: Floats) -> ConditionalFit | None:
        """Return the approximation at the hyperparameters of a point, found by an ascent."""
        factor = self.prior.factor.copy()
        factor[self.given] = 0.0
        return self._at(point, factor)

    def near(self, other: ConditionalFit, values: Floats) -> ConditionalFit | None:
        """Return the approximation at other values of the hyperparameters."""
        moved = other.peak + other.slope @ (values - other.peak[self.given])
        unmoved = other.peak.copy()
        unmoved[self.given] = values
        return self._at(moved, other.factor) or self._at(unmoved, other.factor)

    def _at(self, start: Floats, factor: Floats) -> ConditionalFit | None:
        """Climb from a point with fixed hyperparameters; None if that fails."""
        # hyperparameters stay where they are, because the factor moves them by zero
        shape = Shape(self.prior.mean, factor)
        found = climb(self.posterior.target, start[None], shape, _MOST)
        self.n_evaluations += found.n_evaluations
        if not found.settled[0]:
            return None
        return self._fitted(found.x[0], float(found.log_density[0]), factor)

    def _fitted(self, peak: Floats, height: float, factor: Floats) -> ConditionalFit | None:
        """Return the approximation at a peak, whose scales are about those of a factor."""
        d, m = peak.size, self.rest.size
        gradient = self.posterior.gradient(peak[None])[0]
        self.n_evaluations += 1
        directions = np.diag(factor[:, 0]) if factor.shape[1] == 1 else factor
        directions = directions[:, self.rest]
        for _ in range(_CORRECTIONS):
            curvature = -self._change(peak, gradient, _STEP * directions) @ directions / _STEP
            scales = _scales(0.5 * (curvature + curvature.T))
            if scales is None:
                return None
            directions = directions @ scales
            if np.abs(np.log(np.diag(scales))).max(initial=0.0) < _CORRECTED:
                break
        covariance = directions @ directions.T
        lower = np.zeros((d, d))
        inner = np.ix_(self.rest, self.rest)
        try:
            lower[inner] = np.linalg.cholesky(covariance[inner])
        except np.linalg.LinAlgError:
            return None
        steps = np.zeros((d, self.given.size))
        steps[self.given, np.arange(self.given.size)] = _STEP * self.scale
        pull = self._change(peak, gradient, steps).T / (_STEP * self.scale)
        slope = covariance @ pull
        slope[self.given] = np.eye(self.given.size)
        volume = float(np.log(np.diag(lower)[self.rest]).sum())
        log_mass = height - self.posterior.target.log_order_mass + 0.5 * m * log(2.0 * pi) + volume
        return ConditionalFit(peak, lower, slope, log_mass) if np.isfinite(slope).all() else None

    def divergence(self, at: ConditionalFit, predicting: ConditionalFit) -> float:
        """Return the divergence of a conditional density from another's prediction, in nats."""
        inner = np.ix_(self.rest, self.rest)
        moved = predicting.slope @ (at.peak - predicting.peak)[self.given]
        apart = (at.peak - predicting.peak - moved)[self.rest]
        both = np.column_stack([at.factor[inner], apart])
        ratio = np.linalg.solve(predicting.factor[inner], both)
        log_volume = float(np.log(np.abs(np.diag(ratio))).sum())
        return 0.5 * (float((ratio * ratio).sum()) - self.rest.size) - log_volume

    def skewness(self, fit: ConditionalFit) -> tuple[Floats, float]:
        """Return how far the mean is from the peak, to first order, and how much this matters.

        Returns
        -------
        shift : ndarray, shape (d,)
            Mean minus peak.
        divergence : float
            Half of the squared shift in standard deviations, in nats: what a normal density gains
            by it.
        """
        gradient = self.posterior.gradient(fit.peak[None])[0]
        self.n_evaluations += 1
        steps = _LONG_STEP * fit.factor[:, self.rest]
        change = sum(self._change(fit.peak, gradient, sign * steps) for sign in (1.0, -1.0))
        pull = fit.factor.T @ np.sum(change, axis=0) / (2.0 * _LONG_STEP**2)
        return fit.factor @ pull, 0.5 * float(pull @ pull)

    def _change(self, x: Floats, gradient: Floats, steps: Floats) -> Floats:
        """Return how the gradient changes along each column of ``steps``, one in each row."""
        found = np.empty(steps.T.shape)
        for start in range(0, len(found), _MOST_ROWS):
            rows = slice(start, start + _MOST_ROWS)
            found[rows] = self.posterior.gradient(x + steps[:, rows].T) - gradient
        self.n_evaluations += len(found)
        return found


def _scales(curvature: Floats) -> Floats | None:
    """Return a factor of the inverse of a matrix, or of its diagonal if it has none; or None."""
    if not np.isfinite(curvature).all():
        return None
    try:
        scales: Floats = np.linalg.inv(np.linalg.cholesky(curvature)).T
    except np.linalg.LinAlgError:
        diagonal = np.diag(curvature)
        return np.diag(1.0 / np.sqrt(diagonal)) if (diagonal > 0.0).all() else None
    return scales
