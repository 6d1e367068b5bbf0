"""Importance sampling from a Student-t density at the mode, in NumPy and SciPy alone."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp

from .case import Reference

__all__ = ["evidence_at_mode", "reference_from_weights"]

Floats = NDArray[np.float64]
LogDensity = Callable[[Floats], Floats]

# Points are evaluated in blocks of so many, for memory.
_BLOCK = 500
# Steps of the differences, in units of parameters of size one: errors of 1e-9 in a gradient, and
# of 1e-7 in a second derivative.
_STEP, _SECOND_STEP = 1e-5, 1e-3


def evidence_at_mode(
    log_density: LogDensity,
    start: Floats,
    *,
    draws: int = 20_000,
    dof: float = 30.0,
    adapt: bool = False,
) -> Reference:
    """Return the log integral of a density with one peak.

    Parameters
    ----------
    log_density : callable
        From points, shape ``(n, d)``, to unnormalised log densities in nats, shape ``(n,)``.
        Parameters are unconstrained and of size about one.
    start : ndarray of float64, shape ``(d,)``
        Where the search for the peak starts.
    draws : int
        Number of draws, in pairs that lie opposite to each other about the centre.
    dof : float
        Degrees of freedom of the proposal.
    adapt : bool
        Whether to take the mean and the covariance of weighted draws in the place of the peak and
        its curvature. Where the posterior is near a normal density their noise does harm.

    Returns
    -------
    Reference

    Notes
    -----
    The draws of the result are always fresh. Pairs cancel the effect of skewness to first order;
    the standard error is computed from their means.
    """
    rng = np.random.default_rng(20_260_731)
    centre = _peak(log_density, start)
    factor = np.linalg.cholesky(np.linalg.inv(-_hessian(log_density, centre)))
    if adapt:
        points, log_weight = _weighted(log_density, centre, factor, dof, draws // 2, rng)
        centre, factor = _moments(points, log_weight)
    _, log_weight = _weighted(log_density, centre, factor, dof, draws, rng)
    return reference_from_weights(log_weight.reshape(2, -1))


def reference_from_weights(log_weight: Floats) -> Reference:
    """Return the log mean of weights, shape ``(pairs, n)`` or ``(n,)``, whose columns are free."""
    from arviz_stats.base import array_stats

    log_weight = np.atleast_2d(log_weight)
    of_pair = logsumexp(log_weight, axis=0) - np.log(len(log_weight))
    n = of_pair.size
    value = float(logsumexp(of_pair) - np.log(n))
    error = np.exp(of_pair - value).std(ddof=1) / n**0.5
    shape = array_stats.psislw(-log_weight.ravel())[1]  # it takes minus log weights
    return Reference(value, float(error), float(shape))


def _in_blocks(log_density: LogDensity, points: Floats) -> Floats:
    parts = [points[i : i + _BLOCK] for i in range(0, len(points), _BLOCK)]
    return np.concatenate([log_density(part) for part in parts])


def _peak(log_density: LogDensity, start: Floats) -> Floats:
    steps = _STEP * np.eye(start.size)

    def gradient(x: Floats) -> Floats:
        values = _in_blocks(log_density, np.concatenate([x + steps, x - steps]))
        return (values[: x.size] - values[x.size :]) / (2 * _STEP)

    found = minimize(
        lambda x: -log_density(x[None])[0], start, jac=lambda x: -gradient(x), method="BFGS"
    )
    return np.asarray(found.x)


def _hessian(log_density: LogDensity, x: Floats) -> Floats:
    d, steps = x.size, _SECOND_STEP * np.eye(x.size)
    one, other = np.triu_indices(d)
    points = [x + a * steps[one] + b * steps[other] for a in (1, -1) for b in (1, -1)]
    plus, up, down, minus = np.split(_in_blocks(log_density, np.concatenate(points)), 4)
    hessian = np.zeros((d, d))
    hessian[one, other] = (plus - up - down + minus) / (4 * _SECOND_STEP**2)
    return hessian + np.triu(hessian, 1).T


def _weighted(
    log_density: LogDensity,
    centre: Floats,
    factor: Floats,
    dof: float,
    draws: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Return points, the second half opposite to the first, and their log weights."""
    d, half = centre.size, draws // 2
    stretch = np.sqrt(dof / rng.chisquare(dof, size=half))
    z = rng.standard_normal((half, d)) * stretch[:, None]
    log_q = gammaln((dof + d) / 2) - gammaln(dof / 2) - 0.5 * d * np.log(dof * np.pi)
    log_q = log_q - 0.5 * (dof + d) * np.log1p((z**2).sum(axis=1) / dof)
    log_q = np.tile(log_q - np.log(np.diag(factor)).sum(), 2)
    points = centre + np.concatenate([z, -z]) @ factor.T
    return points, _in_blocks(log_density, points) - log_q


def _moments(points: Floats, log_weight: Floats) -> tuple[Floats, Floats]:
    # no weight above the ten-thousandth part of all: where weights are bad, the moments are not
    weight = np.exp(log_weight - logsumexp(log_weight))
    weight = np.minimum(weight, max(1e-4, 5 / weight.size))
    weight /= weight.sum()
    mean = weight @ points
    deviation = points - mean
    return mean, np.linalg.cholesky((weight[:, None] * deviation).T @ deviation)
