"""Gaussians that approximate the densities of latent values between prior and posterior."""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2

import numpy as np
from numpy.typing import NDArray

from pm_evidence.families.gp_classification.propagation import (
    ExpectationPropagation,
    approximate_power,
)

__all__ = ["Gaussian", "gaussian_of", "nearest", "tempered_gaussians"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Gaussian:
    """``N(x; 0, K)`` times a Gaussian factor for each latent value.

    Parameters
    ----------
    mean : ndarray, shape (n,)
        Its mean.
    root : ndarray, shape (n, n)
        A matrix whose product with its transpose is the covariance.
    precisions, shifts : ndarray, shape (n,)
        The factors are ``exp(shift x - precision x**2 / 2)``.
    """

    mean: Floats
    root: Floats
    precisions: Floats
    shifts: Floats

    @cached_property
    def inverse(self) -> Floats:
        """Inverse of the root."""
        return np.ascontiguousarray(np.linalg.inv(self.root))

    def log_factors(self, x: Floats) -> Floats:
        """Return the log of the product of the factors at latent values, in nats."""
        found: Floats = (x * (self.shifts - 0.5 * self.precisions * x)).sum(axis=-1)
        return found


def gaussian_of(factor: Floats, precisions: Floats, shifts: Floats) -> Gaussian:
    """Return the Gaussian of a prior and some factors.

    Parameters
    ----------
    factor : ndarray, shape (n, n)
        Lower Cholesky factor ``L`` of the prior covariance. The covariance is
        ``L inv(I + L' diag(precisions) L) L'``, which needs no inverse of ``K``.
    precisions, shifts : ndarray, shape (n,)
        The factors.
    """
    n = len(factor)
    inner = np.linalg.cholesky(np.eye(n) + factor.T @ (precisions[:, None] * factor))
    root = np.ascontiguousarray(np.linalg.solve(inner, factor.T).T)
    return Gaussian(root @ (root.T @ shifts), root, precisions, shifts)


def tempered_gaussians(
    covariance: Floats,
    factor: Floats,
    signs: NDArray[np.int8],
    found: ExpectationPropagation,
    between: bool,
) -> dict[float, Gaussian]:
    """Return Gaussians close to the prior times powers of the likelihood, by the power.

    The powers are 1, of which the Gaussian is known, and 0, the prior itself. If ``between`` is
    true, they are also 1/2, 1/4 and so on, down to one at which the likelihood hardly matters.
    """
    n = len(signs)
    least = 1.0 / max(float(np.trace(covariance)), 1.0)
    made = {1.0: gaussian_of(factor, found.precisions, found.shifts)}
    factors = found.precisions, found.shifts
    for k in range(1, ceil(-log2(least)) + 1 if between else 1):
        factors = approximate_power(covariance, signs, 0.5**k, factors)
        made[0.5**k] = gaussian_of(factor, *factors)
    made[0.0] = gaussian_of(factor, np.zeros(n), np.zeros(n))
    return made


def nearest(made: dict[float, Gaussian], power: float) -> Gaussian:
    """Return the Gaussian of the power that is nearest, by its logarithm."""
    least = min(key for key in made if key > 0.0)
    if power < 0.5 * least:
        return made[0.0]
    return made[0.5 ** max(round(-log2(max(power, least))), 0)]
