"""Expectation propagation, and the Gaussians that it fits to latent values."""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, exp, log2, pi, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.exceptions import NumericalError
from pm_evidence.families.gp_classification.arithmetic import log_ndtr_and_slope

Floats = NDArray[np.float64]


_MOST_SWEEPS = 200
# The sweeps end when log Z and all precisions of the factors change by less than this, relatively.
_TOLERANCE = 1e-9
# Visits to all factors, and nodes and weights of Gauss-Hermite quadrature, for powers of the
# likelihood: these approximations serve kernels only, which are right for any Gaussian.
_SWEEPS_OF_POWER, _DAMPING_OF_POWER = 4, 0.8
_NODES = np.array(np.polynomial.hermite_e.hermegauss(48))
_TAIL = -20.0
_TINY = np.finfo(float).tiny
# A new factor is mixed with the old one if sweeps do not come closer to a fixed point.
_DAMPINGS = (1.0, 0.5, 0.1)


@dataclass(frozen=True, eq=False)
class ExpectationPropagation:
    """A Gaussian approximation to the posterior of latent values.

    The likelihood of each data point is replaced by a factor
    ``exp(log_scale + shift x - precision x**2 / 2)``.
    """

    mean: Floats  # shape (n,): mean of the approximation
    covariance: Floats  # shape (n, n): its covariance
    log_evidence: float  # its log evidence in nats; not exact, and without an error estimate
    # Whether a fixed point was found. If not, the numbers should not be used.
    converged: bool
    precisions: Floats  # shape (n,): factors of the data points
    shifts: Floats
    # Log of the integral of the prior times ``exp(shift x - precision x**2 / 2)`` of all points
    log_normaliser: float
    n_sweeps: int  # number of visits to all factors
    signs: Floats  # shape (n,): labels, -1 and 1

    @cached_property
    def second_order(self) -> float:
        """Log evidence with the second-order correction, in nats; it has no error estimate either.

        Opper, Paquet and Winther (2013): the first order vanishes at the fixed point, and the
        second one sums, over pairs of data points, products of the cumulants that the factors
        leave out. The third and the fourth are taken. It takes O(n**2) operations.
        """
        variance = self.covariance.diagonal()
        with np.errstate(invalid="ignore", divide="ignore"):  # NaN if a factor cannot be left out
            rest = 1.0 / (1.0 / variance - self.precisions)
            bound = self.signs * rest * (self.mean / variance - self.shifts) / np.sqrt(1.0 + rest)
            unit = self.signs * rest / np.sqrt((1.0 + rest) * variance)
            third, fourth = _higher_derivatives(bound)
        sd = np.sqrt(variance)
        r = self.covariance / np.outer(sd, sd)
        np.fill_diagonal(r, 0.0)
        skewness, kurtosis = unit**3 * third, unit**4 * fourth
        cubes = r**2 * r
        pairs = (
            float(skewness @ cubes @ skewness) / 6.0
            + float(kurtosis @ (cubes * r) @ kurtosis) / 24.0
        )
        return self.log_evidence + 0.5 * pairs

    def __repr__(self) -> str:
        return (
            f"ExpectationPropagation({len(self.mean)} points, log_evidence={self.log_evidence:.6g},"
            f" converged={self.converged})"
        )


def expectation_propagation(covariance: Floats, signs: NDArray[np.int8]) -> ExpectationPropagation:
    """Return a fixed point of expectation propagation with the probit likelihood.

    Rasmussen and Williams (2006), Algorithm 3.5 and Eq. 3.65: factors are updated one after the
    other, and the covariance is computed anew from the factors after every sweep. The probit is
    log-concave, so that all factors have positive precisions.
    """
    y = signs.astype(np.float64)
    for damping in _DAMPINGS:
        found = _sweeps(covariance, y, damping)
        if found.converged:
            return found
    return found


def _sweeps(covariance: Floats, y: Floats, damping: float) -> ExpectationPropagation:
    n = len(y)
    precisions, shifts = np.zeros(n), np.zeros(n)
    approximation, log_normaliser = covariance.copy(), 0.0
    mean, before, converged, n_sweeps = np.zeros(n), -np.inf, False, 0
    while n_sweeps < _MOST_SWEEPS and not converged:
        old = precisions.copy()
        _update_all(approximation, mean, y, (precisions, shifts), damping, 1.0, _NODES)
        mean, approximation, log_normaliser = _combined(covariance, precisions, shifts)
        log_evidence = log_normaliser + _log_scales(
            mean, approximation.diagonal(), y, precisions, shifts
        )
        if not np.isfinite(log_evidence):
            raise NumericalError(
                "expectation propagation needs a covariance whose entries and eigenvalues doubles "
                "can hold, got an approximation that is not finite; use a smaller amplitude, or "
                "name a jitter."
            )
        moved = np.abs(precisions - old).max() / max(precisions.max(), _TINY)
        n_sweeps += 1
        converged = moved < _TOLERANCE and abs(log_evidence - before) < _TOLERANCE * max(
            1.0, abs(log_evidence)
        )
        before = log_evidence
    return ExpectationPropagation(
        mean, approximation, log_evidence, bool(converged), precisions, shifts, log_normaliser,
        n_sweeps, y,
    )  # fmt: skip


def approximate_power(
    covariance: Floats, signs: NDArray[np.int8], power: float, start: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Return Gaussian factors for a power of the likelihood, near a fixed point only."""
    precisions, shifts = power * start[0], power * start[1]
    y = signs.astype(np.float64)
    for _ in range(_SWEEPS_OF_POWER):
        mean, approximation, _ = _combined(covariance, precisions, shifts)
        _update_all(approximation, mean, y, (precisions, shifts), _DAMPING_OF_POWER, power, _NODES)
    return precisions, shifts


def _combined(
    covariance: Floats, precisions: Floats, shifts: Floats
) -> tuple[Floats, Floats, float]:
    """Return mean, covariance and log normaliser of the prior times all factors."""
    roots = np.sqrt(precisions)
    factor = np.linalg.cholesky(np.eye(len(roots)) + roots[:, None] * covariance * roots)
    reduced = np.linalg.solve(factor, roots[:, None] * covariance)
    approximation = covariance - reduced.T @ reduced
    mean = approximation @ shifts
    log_normaliser = 0.5 * float(shifts @ mean) - float(np.log(factor.diagonal()).sum())
    return mean, approximation, log_normaliser


def _log_scales(
    mean: Floats, variance: Floats, y: Floats, precisions: Floats, shifts: Floats
) -> float:
    """Return the sum of the logs of the scales with which factors have the likelihood's integrals.

    These integrals are over the approximation without the factor.
    """
    rest, rest_shift = 1.0 / variance - precisions, mean / variance - shifts
    log_integrals = 0.5 * (mean * mean / variance + np.log(variance))
    log_integrals -= 0.5 * (rest_shift * rest_shift / rest - np.log(rest))
    bounds = y * rest_shift / rest / np.sqrt(1.0 + 1.0 / rest)
    return float((log_ndtr(bounds) - log_integrals).sum())


def _higher_derivatives(bound: Floats) -> tuple[Floats, Floats]:
    """Return the third and the fourth derivative of the log of the normal distribution function."""
    slope = np.exp(-0.5 * bound**2 - log_ndtr(bound)) / sqrt(2.0 * pi)
    above = bound + slope
    second = -slope * above
    third = -second * above - slope * (1.0 + second)
    fourth = -third * (above + slope) - 2.0 * second * (1.0 + second)
    # far in the tail these are small differences of large numbers, and the first terms of a series
    # in 1 / bound**2 are good to 1e-4
    tail = bound < _TAIL
    b = np.where(tail, bound, _TAIL)
    third = np.where(tail, (-2.0 + (24.0 - 300.0 / b**2) / b**2) / b**3, third)
    fourth = np.where(tail, (6.0 + (-120.0 + 2100.0 / b**2) / b**2) / b**4, fourth)
    return third, fourth


@njit
def _update_all(covariance, mean, y, factors, damping, power, nodes):
    """Update the factors one after the other, with the approximation, in place."""
    n = y.size
    column = np.empty(n)
    precisions, shifts = factors
    for i in range(n):
        variance = covariance[i, i]
        rest = 1.0 / variance - precisions[i]
        rest_shift = mean[i] / variance - shifts[i]
        if not rest > 0.0:
            continue
        rest_variance, rest_mean = 1.0 / rest, rest_shift / rest
        spread = sqrt(1.0 + rest_variance)
        if power == 1.0:
            bound = y[i] * rest_mean / spread
            _, slope = log_ndtr_and_slope(bound)
            # Eq. 3.58: moments of the approximation without the factor times the likelihood
            new_mean = rest_mean + y[i] * rest_variance * slope / spread
            curvature = slope * (bound + slope) / (1.0 + rest_variance)
            new_variance = rest_variance - rest_variance * rest_variance * curvature
        else:
            new_mean, new_variance = _moments(rest_mean, rest_variance, y[i], power, nodes)
        # rounding may make the precision negative where the likelihood is 1 everywhere
        change = damping * (max(1.0 / new_variance - rest, 0.0) - precisions[i])
        shift = damping * (new_mean / new_variance - rest_shift - shifts[i])
        precisions[i] += change
        shifts[i] += shift
        for j in range(n):
            column[j] = covariance[i, j]
        share = change / (1.0 + change * variance)
        move = (shift - change * mean[i]) / (1.0 + change * variance)
        for j in range(n):
            mean[j] += move * column[j]
            part = share * column[j]
            for m in range(n):
                covariance[j, m] -= part * column[m]


@njit
def _moments(centre, variance, y, power, nodes):
    """Return mean and variance of a normal times a power of the likelihood, by quadrature."""
    deviation = sqrt(variance)
    top = log_ndtr_and_slope(y * centre + deviation * nodes[0, -1])[0]
    total, first, second = 0.0, 0.0, 0.0
    for t, weight in zip(nodes[0], nodes[1]):  # noqa: B905
        share = weight * exp(power * (log_ndtr_and_slope(y * (centre + deviation * t))[0] - top))
        total += share
        first += share * t
        second += share * t * t
    mean = first / total
    return centre + deviation * mean, variance * (second / total - mean * mean)


@dataclass(frozen=True, eq=False)
class GaussianApproximation:
    """``N(x; 0, K)`` times a Gaussian factor for each latent value."""

    mean: Floats  # shape (n,): its mean
    root: Floats  # shape (n, n): a matrix whose product with its transpose is the covariance
    precisions: Floats  # shape (n,): the factors are ``exp(shift x - precision x**2 / 2)``
    shifts: Floats

    @cached_property
    def inverse(self) -> Floats:
        """Inverse of the root."""
        return np.ascontiguousarray(np.linalg.inv(self.root))

    def log_factors(self, x: Floats) -> Floats:
        """Return the log of the product of the factors at latent values, in nats."""
        found: Floats = (x * (self.shifts - 0.5 * self.precisions * x)).sum(axis=-1)
        return found


def gaussian_of(factor: Floats, precisions: Floats, shifts: Floats) -> GaussianApproximation:
    """Return the Gaussian of a prior and some factors."""
    n = len(factor)
    inner = np.linalg.cholesky(np.eye(n) + factor.T @ (precisions[:, None] * factor))
    root = np.ascontiguousarray(np.linalg.solve(inner, factor.T).T)
    return GaussianApproximation(root @ (root.T @ shifts), root, precisions, shifts)


def tempered_gaussians(
    covariance: Floats,
    factor: Floats,
    signs: NDArray[np.int8],
    found: ExpectationPropagation,
    between: bool,
) -> dict[float, GaussianApproximation]:
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


def nearest(made: dict[float, GaussianApproximation], power: float) -> GaussianApproximation:
    """Return the Gaussian of the power that is nearest, by its logarithm."""
    least = min(key for key in made if key > 0.0)
    if power < 0.5 * least:
        return made[0.0]
    return made[0.5 ** max(round(-log2(max(power, least))), 0)]
