"""The variance of the work that a schedule leads to if every move draws independently."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["predicted_variance", "predicted_variance_of_many"]

Floats = NDArray[np.float64]


def predicted_variance(schedule: Floats, beta: Floats, variance: Floats) -> float:
    """Return the variance of the work of a schedule, to second order in its steps.

    Parameters
    ----------
    schedule : ndarray, shape (n_stages + 1,)
        Inverse temperatures from 0 to 1.
    beta : ndarray, shape (m + 1,)
        Ends of the pieces of [0, 1] on which the variance of the energy is known.
    variance : ndarray, shape (m,)
        Variance of the energy in each piece, in square nats.

    Returns
    -------
    float
        The sum over stages of ``(schedule[k + 1] - schedule[k])**2 V(schedule[k])``, in square
        nats.

    Notes
    -----
    Kiwaki (2015), Eq. 6 and 7, where moves draw independently from the density at each inverse
    temperature. It is exact on paths whose log density is linear in beta, such as
    ``prior * likelihood**beta``. Moves that leave states correlated increase the variance, so that
    the ratio of the variance of a run to this one shows how far its moves are from perfect.
    """
    piece = np.searchsorted(beta, schedule[:-1], side="right") - 1
    return float(np.sum(np.diff(schedule) ** 2 * variance[piece]))


def predicted_variance_of_many(schedule: Floats, beta: Floats, variance: Floats) -> float:
    """Return the limit of `predicted_variance` for many stages, in square nats.

    It is ``integral beta'(t)**2 V(beta(t)) dt / n_stages`` of the schedule that interpolates the
    given one linearly: the sum over stages of their length times the integral of ``V`` over them.
    Parameters are those of `predicted_variance`.

    Notes
    -----
    Kiwaki (2015), Theorem 1. The smallest value that any schedule of K stages has is
    ``(integral sqrt(V) d beta)**2 / K``, which that of `varopt` reaches.
    """
    integral = np.append(0.0, np.cumsum(np.diff(beta) * variance))
    return float(np.sum(np.diff(schedule) * np.diff(np.interp(schedule, beta, integral))))
