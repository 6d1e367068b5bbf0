"""The number of particles at each stage for which the variance of log Z is least."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_positive, float_array

__all__ = ["Allocation", "optimal_allocation"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Allocation:
    """Numbers of particles, and the variance of log Z that they lead to.

    Parameters
    ----------
    particles : ndarray, shape (n_stages,)
        Number of particles at each stage; not rounded.
    variance : float
        Variance of log Z in square nats if the particles were independent.
    """

    particles: Floats
    variance: float


def optimal_allocation(variance: ArrayLike, n_particles: float) -> Allocation:
    """Return how many particles each stage should have.

    Parameters
    ----------
    variance : array_like, shape (n_stages,)
        Variance of the weights of each stage divided by their squared mean: ``1 / ess - 1``, with
        ``ess`` the effective sample size as a share of the particles.
    n_particles : float
        Number of particles of all stages together.

    Returns
    -------
    Allocation
        The particles of a stage are proportional to the square root of its variance.

    Raises
    ------
    ValueError
        If a variance is negative or not finite, or ``n_particles`` is not positive.

    Notes
    -----
    Fraccaro, Paquet and Winther (2016), Theorem 1, Eq. 6 and 7.

    Examples
    --------
    >>> from pm_evidence.estimators import optimal_allocation
    >>> best = optimal_allocation([0.04, 0.36], 1000)
    >>> best.particles, round(best.variance, 5)
    (array([250., 750.]), 0.00064)
    """
    values = float_array("variance", variance)
    if values.ndim != 1 or not values.size or not (np.isfinite(values) & (values >= 0.0)).all():
        raise ValueError(
            "variance must be one number of at least 0 for each stage, got "
            f"{values.tolist() if values.size < 10 else values.shape}; look for stages whose "
            "weights are all zero."
        )
    check_positive("n_particles", n_particles)
    root = np.sqrt(values)
    total = float(root.sum())
    if total == 0.0:
        return Allocation(np.full(len(root), n_particles / len(root)), 0.0)
    return Allocation(n_particles * root / total, total**2 / n_particles)
