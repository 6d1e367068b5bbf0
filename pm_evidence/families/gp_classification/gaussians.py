"""The Gaussians between the prior and expectation propagation's approximation."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pm_evidence.families.gp_classification.propagation import ExpectationPropagation

__all__ = ["Gaussians", "gaussians"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Gaussians:
    """``N(x; 0, K)`` times a power of the factors of expectation propagation.

    In the coordinates ``u``, ``x = basis u``, the prior is standard normal and all these Gaussians
    have independent coordinates.

    Parameters
    ----------
    basis : ndarray, shape (n, n)
        From coordinates to latent values.
    inverse : ndarray, shape (n, n)
        From latent values to coordinates.
    strength : ndarray, shape (n,)
        What the factors add to the precisions of the coordinates.
    pull : ndarray, shape (n,)
        What they add to precision times mean.
    precisions, shifts : ndarray, shape (n,)
        The factors are ``exp(shift x - precision x**2 / 2)``.
    log_normaliser : float
        Log of the integral of the prior times all factors, in nats.
    """

    basis: Floats
    inverse: Floats
    strength: Floats
    pull: Floats
    precisions: Floats
    shifts: Floats
    log_normaliser: float

    def moments(self, power: float) -> tuple[Floats, Floats]:
        """Return means and standard deviations of the coordinates, each of shape ``(n,)``."""
        precision = 1.0 + power * self.strength
        return power * self.pull / precision, precision**-0.5

    def log_factors(self, x: Floats) -> Floats:
        """Return the log of the product of the factors at latent values, in nats."""
        found: Floats = (x * (self.shifts - 0.5 * self.precisions * x)).sum(axis=-1)
        return found


def gaussians(factor: Floats, found: ExpectationPropagation) -> Gaussians:
    """Return the Gaussians of a prior and the factors that were found for it.

    Parameters
    ----------
    factor : ndarray, shape (n, n)
        Lower Cholesky factor of the prior covariance.
    found : ExpectationPropagation
        The factors.
    """
    strength, rotation = np.linalg.eigh(factor.T @ (found.precisions[:, None] * factor))
    basis = np.ascontiguousarray(factor @ rotation)
    return Gaussians(
        basis,
        rotation.T @ np.linalg.solve(factor, np.eye(len(factor))),
        np.maximum(strength, 0.0),
        basis.T @ found.shifts,
        found.precisions,
        found.shifts,
        found.log_normaliser,
    )
