"""The schedule of Grosse, Maddison and Salakhutdinov (2013): linear between a few knots."""

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count, described, float_array

__all__ = ["divergences_from_energies", "divergences_from_variance", "gms13"]

Floats = NDArray[np.float64]

# Smallest share of the largest divergence that counts: an interval without any needs a stage too.
_LEAST = 1e-12


def gms13(knots: Floats, divergence: Floats, n_stages: int) -> Floats:
    """Return a schedule with equal steps between knots, and more stages where more changes.

    Parameters
    ----------
    knots : ndarray, shape (n_knots,)
        Inverse temperatures, strictly rising from 0 to 1.
    divergence : ndarray, shape (n_knots - 1,)
        ``(eta[j + 1] - eta[j]) . (s[j + 1] - s[j])`` of the natural parameters and the mean
        statistics at both ends of every interval, in nats: the sum of the Kullback-Leibler
        divergences in both directions. Values below zero, which only noise gives, count as zero.
    n_stages : int
        Number of stages.

    Returns
    -------
    ndarray, shape (n_stages + 1,)
        Strictly rising from 0 to 1.

    Raises
    ------
    ValueError
        If the knots do not rise from 0 to 1, or there is not one finite divergence per interval.

    Notes
    -----
    Grosse, Maddison and Salakhutdinov (2013): an interval of K_j linear stages adds
    ``divergence[j] / K_j`` to the variance of the work, so that stages are best divided in
    proportion to the square root of the divergence. Stages need not end at a knot here: the
    schedule is the linear interpolation, so that any number of stages is divided exactly.

    Examples
    --------
    >>> import numpy as np
    >>> from pm_evidence.schedules.gms13 import gms13
    >>> gms13(np.array([0.0, 0.5, 1.0]), np.array([9.0, 1.0]), 4)
    array([0.        , 0.16666667, 0.33333333, 0.5       , 1.        ])
    """
    check_count("n_stages", n_stages, 1)
    knots, divergence = float_array("knots", knots), float_array("divergence", divergence)
    ends = knots.ndim == 1 and knots.size > 1 and knots[0] == 0.0 and knots[-1] == 1.0
    if not ends or not (np.diff(knots) > 0.0).all():
        raise ValueError(
            f"knots must rise strictly from 0 to 1, got {described(knots)}; sort them and add the "
            "missing end."
        )
    if divergence.shape != (knots.size - 1,) or not np.isfinite(divergence).all():
        raise ValueError(
            f"divergence must be one finite number for each of {knots.size - 1} intervals, got "
            f"shape {divergence.shape}; look for NaN."
        )
    largest = float(divergence.max())
    share = np.sqrt(np.maximum(divergence, _LEAST * largest)) if largest > 0.0 else np.diff(knots)
    reached = np.append(0.0, np.cumsum(share))
    return np.interp(np.linspace(0.0, 1.0, n_stages + 1), reached / reached[-1], knots)


def divergences_from_energies(knots: Floats, energy: Floats) -> Floats:
    """Return the divergences of intervals of a path whose log density is linear in beta.

    Parameters
    ----------
    knots : ndarray, shape (n_knots,)
        Inverse temperatures.
    energy : ndarray, shape (n_knots,)
        Mean energy at each of them, in nats.

    Returns
    -------
    ndarray, shape (n_knots - 1,)
        ``(beta[j + 1] - beta[j]) (energy[j] - energy[j + 1])`` in nats.
    """
    return -np.diff(knots) * np.diff(energy)


def divergences_from_variance(knots: Floats, beta: Floats, variance: Floats) -> Floats:
    """Return the divergences of intervals from the variance of the energy along the path.

    Parameters
    ----------
    knots : ndarray, shape (n_knots,)
        Inverse temperatures, from 0 to 1.
    beta : ndarray, shape (m + 1,)
        Ends of the pieces on which the variance is known, from 0 to 1.
    variance : ndarray, shape (m,)
        Variance of the energy in each piece, in square nats.

    Returns
    -------
    ndarray, shape (n_knots - 1,)
        Length of each interval times the integral of the variance over it, in nats.

    Notes
    -----
    On a path whose log density is linear in beta, the derivative of the mean energy is minus its
    variance, so that this equals `divergences_from_energies`. It is never negative, also for noisy
    variances, and on other paths it still is what an interval of equal steps adds to the variance
    of the work, times the number of steps.
    """
    integral = np.append(0.0, np.cumsum(np.diff(beta) * np.maximum(variance, 0.0)))
    return np.diff(knots) * np.diff(np.interp(knots, beta, integral))
