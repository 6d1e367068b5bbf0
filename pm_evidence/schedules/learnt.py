"""Schedules from the variance of the energy along a trial run."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["even_steps"]

Floats = NDArray[np.float64]

# If every MCMC move drew independently, the best steps would be inversely proportional to the
# standard deviation of the energy, a power of 0.5 of its variance. Where the variance is large,
# relaxation is slow as well, so that steps have to be smaller still.
_POWER = 0.75
_SMOOTHED = 0.025  # share of the stages whose variances are averaged
# Least density of steps, as a share of the mean one, where the energy hardly varies.
_FLOOR = 0.1


def even_steps(beta: Floats, energy_var: Floats, n_stages: int) -> Floats:
    """Return a schedule whose steps contribute about equally to the variance of the work.

    Parameters
    ----------
    beta : ndarray, shape (n_trial + 1,)
        Schedule of the trial run.
    energy_var : ndarray, shape (n_trial,)
        Variance of the energy at the beginning of its stages, in square nats.
    n_stages : int
        Number of stages wanted.

    Returns
    -------
    ndarray, shape (n_stages + 1,)

    Notes
    -----
    If the kernel draws independently, the variance of the work of K stages is ``integral beta'(t)^2
    V(beta(t)) dt / K`` with ``V`` the variance of the energy. It is smallest if ``beta' sqrt(V)``
    is constant (Kiwaki 2015). On Ising and Potts lattices the power 0.75 of V instead of 0.5 gave a
    variance that was 0 to 10 % smaller, and half of that with equal steps.
    """
    width = max(int(_SMOOTHED * len(energy_var)), 1)
    density = np.maximum(energy_var, 0.0) ** _POWER
    padded = np.pad(density, (width // 2, width - 1 - width // 2), mode="edge")
    density = np.convolve(padded, np.full(width, 1.0 / width), mode="valid")
    mean = np.average(density, weights=np.diff(beta))
    if not mean > 0.0:
        return np.linspace(0.0, 1.0, n_stages + 1)
    density = (1.0 - _FLOOR) * density + _FLOOR * mean
    length = np.append(0.0, np.cumsum(density * np.diff(beta)))
    return np.interp(np.linspace(0.0, 1.0, n_stages + 1), length / length[-1], beta)
