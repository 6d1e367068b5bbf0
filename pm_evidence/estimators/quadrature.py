"""Rules for the integral of the mean energy over inverse temperature."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["RULES", "correction", "riemann", "trapezoid", "weights"]

Floats = NDArray[np.float64]

RULES = ("riemann", "trapezoid", "corrected")


def riemann(beta: Floats) -> Floats:
    """Return the weights of function values in a right Riemann sum, shape of ``beta``."""
    return np.append(0.0, np.diff(beta))


def trapezoid(beta: Floats) -> Floats:
    """Return the weights of function values in the trapezoidal rule, shape of ``beta``."""
    step = np.diff(beta)
    sides: Floats = 0.5 * (np.append(step, 0.0) + np.append(0.0, step))
    return sides


def correction(beta: Floats) -> Floats:
    """Return the weights of variances of the energy in the correction of the trapezoidal rule.

    The slope of minus the mean energy is the variance of the energy, so that the trapezoidal rule
    for minus the mean energy lacks ``-sum_k (beta[k + 1] - beta[k])**2 (V[k + 1] - V[k]) / 12``
    in nats, with variances ``V`` in square nats (Friel, Hurn and Wyse 2014, Eq. 6).
    """
    square = np.diff(beta) ** 2 / 12.0
    terms: Floats = np.append(square, 0.0) - np.append(0.0, square)
    return terms


def weights(rule: str, beta: Floats) -> tuple[Floats, Floats]:
    """Return the weights of minus the mean energies and of the variances under a rule.

    Parameters
    ----------
    rule : str
        One of ``RULES``.
    beta : ndarray, shape (n,)
        Rising inverse temperatures.
    """
    means = riemann(beta) if rule == "riemann" else trapezoid(beta)
    return means, correction(beta) if rule == "corrected" else np.zeros(len(beta))
