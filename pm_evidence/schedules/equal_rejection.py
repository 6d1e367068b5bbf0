"""Temperatures between which exchanges are rejected equally often."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["equalised", "rejection_rates"]

Floats = NDArray[np.float64]

# Rejection rate that every pair counts with at least, so that no step becomes endless where
# hardly any exchange was rejected.
_LEAST_RATE = 1e-3


def rejection_rates(beta: Floats, energy: Floats, rung: NDArray[np.int16]) -> Floats:
    """Return the mean probability that an exchange is rejected, for each pair of neighbours.

    Parameters
    ----------
    beta : ndarray, shape (n_temperatures,)
        Inverse temperatures from 0 to 1.
    energy, rung : ndarray, shape (n,)
        Energies of states in nats, and the index of the temperature of each.

    Returns
    -------
    ndarray, shape (n_temperatures - 1,)
        From pairs of states in the order in which they are given; NaN if one of two temperatures
        has no states.

    Notes
    -----
    Their sum is an estimate of the communication barrier (Syed et al. 2022, Eq. 16).
    """
    found = [energy[rung == k] for k in range(len(beta))]
    rates = np.full(len(beta) - 1, np.nan)
    for k, (hotter, colder) in enumerate(pairwise(found)):
        n = min(len(hotter), len(colder))
        if n:
            log_ratio = (beta[k + 1] - beta[k]) * (colder[:n] - hotter[:n])
            rates[k] = -np.mean(np.expm1(np.minimum(log_ratio, 0.0)))
    return rates


def equalised(beta: Floats, rates: Floats, n_temperatures: int) -> Floats:
    """Return temperatures whose exchanges would be rejected equally often.

    Parameters
    ----------
    beta : ndarray, shape (n,)
        Inverse temperatures from 0 to 1.
    rates : ndarray, shape (n - 1,)
        Rejection rates between neighbours.
    n_temperatures : int
        Number of temperatures wanted.

    Returns
    -------
    ndarray, shape (n_temperatures,)
        Strictly rising from 0 to 1.

    Notes
    -----
    Syed et al. (2022), Algorithm 4: equal steps of the cumulative rejection rate, which is
    interpolated linearly in beta.

    Examples
    --------
    >>> equalised(np.array([0.0, 0.1, 1.0]), np.array([0.6, 0.2]), 5).round(3)
    array([0.   , 0.033, 0.067, 0.1  , 1.   ])
    """
    length = np.append(0.0, np.cumsum(np.maximum(rates, _LEAST_RATE)))
    out: Floats = np.interp(np.linspace(0.0, length[-1], n_temperatures), length, beta)
    out[-1] = 1.0
    return out
