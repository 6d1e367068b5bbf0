"""Moves of latent values: Hamiltonian and Riemannian Monte Carlo."""

from dataclasses import dataclass
from functools import cached_property, partial
from math import cos, log, sin
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import log_ndtr

from pm_evidence.core.checks import check_choice, check_count, check_positive
from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.codegen.vectors import aligned
from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import fill_normal, normals, uniform, uniforms
from pm_evidence.families.common import NativeKernel
from pm_evidence.families.gp_classification.arithmetic import (
    BLOCK,
    hazards,
    log_ndtr_and_slope,
    times,
    width_of,
)
from pm_evidence.families.gp_classification.latent import LatentValues
from pm_evidence.kernels.random_walk import acceptance_probability

Floats = NDArray[np.float64]
_MOST_LEAPFROGS = 100_000
METRICS = ("gaussian", "identity")
# Iterations of the implicit steps end when momenta and positions move by less than this, relatively
# to the largest. A trajectory on which they do not is rejected.
_TOLERANCE, _MOST_ITERATIONS = 1e-8, 100


@dataclass(frozen=True)
class LatentHMC(NativeKernel):
    """Hamiltonian trajectories of all latent values, with fresh momenta; reversible.

    Parameters
    ----------
    step_size : float
        Mean step. Each trajectory draws its own step within 20 % of it, which avoids periodic
        trajectories.
    n_leapfrogs : int
        Number of steps of a trajectory.
    metric : {"gaussian", "identity"}
        In which coordinates momenta are standard normal: those in which a Gaussian near the density
        is, or the latent values themselves. The latter is plain HMC with leapfrog steps, the
        baseline of Fraccaro, Paquet and Winther (2016), which mixes slowly where latent values are
        highly correlated; they used 200 steps of 0.02.

    Notes
    -----
    With the metric "gaussian", trajectories of the Gaussian are exact rotations, and momenta are
    changed by the force of the rest of the density between them (Shahbaba, Lan, Johnson and Neal
    2014). That the Gaussian is an approximation has no influence on the distribution that the
    moves leave invariant. Four rotations by 0.4 make a quarter of a turn, after which
    positions would be independent of their start if the density were the Gaussian.
    """

    step_size: float = 0.4
    n_leapfrogs: int = 4
    metric: str = "gaussian"

    def __post_init__(self) -> None:
        check_positive("step_size", self.step_size)
        check_count("n_leapfrogs", self.n_leapfrogs, 1, _MOST_LEAPFROGS)
        check_choice("metric", self.metric, METRICS)

    def advance(
        self, path: Any, state: LatentValues, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[LatentValues, MoveInfo]:
        """Move every member along one trajectory; see ``contracts.Kernel``."""
        n, k = state.x.shape
        moved = LatentValues(state.x.copy(), state.log_likelihood.copy(), state.log_factors.copy())
        density = _density(path, beta, self.metric)
        width = width_of(n)
        room = tuple(aligned((k, width), np.float64) for _ in range(4))
        sums = aligned((3, width), np.float64), aligned((BLOCK, width), np.float64)
        acceptance = np.empty(n)
        for first in range(0, n, width):
            part = slice(first, min(first + width, n))
            _trajectories(
                moved.x[part],
                (moved.log_likelihood[part], moved.log_factors[part]),
                density,
                (self.step_size, self.n_leapfrogs),
                streams[part],
                (*room, *sums),
                acceptance[part],
            )
        return moved, MoveInfo(float(acceptance.mean()), n * (self.n_leapfrogs + 1))


class _Density(NamedTuple):
    """The log density at ``beta`` as compiled code reads it.

    It is that of a Gaussian, plus beta times the log likelihood, plus the log of Gaussian factors.
    If ``maps`` is true, positions are ``t`` with ``x = centre + matrix t``, and the Gaussian is
    ``exp(-t't / 2)``; otherwise they are the latent values, and it is ``exp(-x' matrix x / 2)``.
    """

    maps: bool
    matrix: Floats  # shape (k, k)
    transposed: Floats  # shape (k, k)
    inverse: Floats  # shape (k, k): from latent values to positions
    centre: Floats  # shape (k,)
    signs: Floats  # shape (k,)
    # shape (4, k): precisions and shifts of expectation propagation's factors, and those of the
    # factors that the density has besides the Gaussian and the likelihood to the power beta
    factors: Floats
    beta: float


def _density(path: Any, beta: float, metric: str) -> _Density:
    """Return the density at an inverse temperature in the coordinates of a metric."""
    near = path.gaussian(beta) if metric == "gaussian" else path.target.gaussians[0.0]
    last, power = path.target.gaussians[1.0], path.rest(beta)
    beside = power * last.precisions - near.precisions, power * last.shifts - near.shifts
    factors = np.array([last.precisions, last.shifts, *beside])
    rest = near.mean, path.target.signs.astype(np.float64), factors, float(beta)
    if metric == "identity":
        precision = np.ascontiguousarray(near.inverse.T @ near.inverse)
        return _Density(False, precision, precision, precision, *rest)
    transposed = np.ascontiguousarray(near.root.T)
    return _Density(True, near.root, transposed, near.inverse, *rest)


@njit
def _trajectories(x, logs, density, path, streams, room, acceptance):
    """Move at most ``width`` rows of ``x`` in place."""
    position, momentum, latent, force, sums, products = room
    n, (k, width) = x.shape[0], position.shape
    sizes, start = np.zeros(width), np.empty(width)
    for c in range(width):
        latent[:, c] = x[min(c, n - 1)]
    if density.maps:
        force[:] = latent - density.centre.reshape(-1, 1)
        times(density.inverse, force, position, products)
    else:
        position[:] = latent
    noise = np.empty(k)
    momentum[:] = 0.0
    for c in range(n):
        fill_normal(streams[c], noise)
        momentum[:, c] = noise
        sizes[c] = path[0] * (0.8 + 0.4 * uniform(streams[c]))
    _evaluate(density, position, latent, force, sums, products)
    _total(sums, momentum, start)
    for leap in range(path[1]):
        _kick(momentum, force, sizes, 0.5 if leap == 0 else 1.0)
        if density.maps:
            _rotate(position, momentum, sizes)
        else:
            _kick(position, momentum, sizes, 1.0)
        _evaluate(density, position, latent, force, sums, products)
    _kick(momentum, force, sizes, 0.5)
    _total(sums, momentum, sizes)
    for c in range(n):
        log_ratio = sizes[c] - start[c]
        # the draw is made in any case, so that a stream advances by the same number
        accepted = log(uniform(streams[c])) < log_ratio
        acceptance[c] = acceptance_probability(log_ratio)
        if accepted:
            x[c] = latent[:, c]
            logs[0][c], logs[1][c] = sums[1, c], sums[2, c]


@njit
def _kick(values, rates, sizes, share):
    for i in range(values.shape[0]):
        for c in range(sizes.size):
            values[i, c] += share * sizes[c] * rates[i, c]


@njit
def _rotate(position, momentum, angles):
    """Move along the exact trajectories of standard normal positions."""
    for c in range(angles.size):
        a, b = cos(angles[c]), sin(angles[c])
        for i in range(position.shape[0]):
            t, p = position[i, c], momentum[i, c]
            position[i, c] = a * t + b * p
            momentum[i, c] = a * p - b * t


@njit
def _total(sums, momentum, out):
    """Set ``out`` to the log density minus the kinetic energy."""
    for c in range(out.size):
        out[c] = sums[0, c]
    for i in range(momentum.shape[0]):
        for c in range(out.size):
            out[c] -= 0.5 * momentum[i, c] ** 2


@njit
def _evaluate(density, position, latent, force, sums, products):
    """Set latent values, forces, and the parts of the log density at positions.

    ``sums`` receives the log density, the log likelihood and the log factors of the reference.
    """
    k, width = position.shape
    factors, beta = density.factors, density.beta
    sums[:] = 0.0
    slopes, gaussian = np.empty((k, width)), np.empty((k, width))
    if density.maps:
        times(density.matrix, position, latent, products)
        latent += density.centre.reshape(-1, 1)
        gaussian[:] = position
    else:
        latent[:] = position
        times(density.matrix, position, gaussian, products)
    for i in range(k):
        y = density.signs[i]
        for c in range(width):
            x = latent[i, c]
            value, slope = log_ndtr_and_slope(y * x)
            sums[1, c] += value
            sums[2, c] += x * (factors[1, i] - 0.5 * factors[0, i] * x)
            sums[0, c] += beta * value + x * (factors[3, i] - 0.5 * factors[2, i] * x)
            sums[0, c] -= 0.5 * position[i, c] * gaussian[i, c]
            slopes[i, c] = beta * y * slope + factors[3, i] - factors[2, i] * x
    if density.maps:
        times(density.transposed, slopes, force, products)
    else:
        force[:] = slopes - gaussian


@dataclass(frozen=True)
class RiemannianHMC(NativeKernel):
    """Generalised leapfrog trajectories in a metric that depends on the state; reversible.

    Parameters
    ----------
    step_size : float
        Leapfrog step.
    n_leapfrogs : int
        Number of steps of a trajectory.

    Notes
    -----
    Girolami and Calderhead (2011), section 6, with the metric that Fraccaro, Paquet and Winther
    (2016) use for Gaussian processes: the inverse of ``K`` plus beta times the Fisher information
    of the labels (and plus ``1 - beta`` times the Gaussian factors if they are part of the
    reference). Each step factorises a matrix of all data points about ten times: this kernel is
    for comparisons.
    """

    step_size: float = 0.1
    n_leapfrogs: int = 10

    def __post_init__(self) -> None:
        check_positive("step_size", self.step_size)
        check_count("n_leapfrogs", self.n_leapfrogs, 1, _MOST_LEAPFROGS)

    def advance(
        self, path: Any, state: LatentValues, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[LatentValues, MoveInfo]:
        """Move every member along one trajectory; see ``contracts.Kernel``."""
        density, (n, k) = _curved_density(path, beta), state.x.shape
        noise, threshold = normals(streams, 2 * k), np.log(uniforms(streams, 1)[:, 0])
        x, acceptance = state.x.copy(), np.zeros(n)
        for m in range(n):
            with np.errstate(over="ignore", invalid="ignore"):  # implicit steps that diverge
                proposal, log_ratio = self._trajectory(density, x[m], noise[m])
            acceptance[m] = np.exp(min(log_ratio, 0.0))
            if threshold[m] < log_ratio:
                x[m] = proposal
        info = MoveInfo(float(acceptance.mean()), n * self.n_leapfrogs)
        return path.at(x), info

    def _trajectory(
        self, density: "_CurvedDensity", x: Floats, noise: Floats
    ) -> tuple[Floats, float]:
        """Return the end of a trajectory and the log of its acceptance ratio, in nats."""
        here = _point(density, x)
        momentum = here.momentum(noise)
        start, step = here.hamiltonian(momentum), self.step_size
        for _ in range(self.n_leapfrogs):
            half = _half_kicked(here, momentum, step)
            there = None if half is None else _moved(density, here, half, step)
            if half is None or there is None:
                return x, -np.inf
            here, momentum = there, half - 0.5 * step * there.slope(half)
        log_ratio = start - here.hamiltonian(momentum)
        return here.x, log_ratio if np.isfinite(log_ratio) else -np.inf


class _CurvedDensity(NamedTuple):
    """Prior times likelihood to the power beta and Gaussian factors to the power rest."""

    covariance: Floats  # shape (k, k): of the prior
    factor: Floats  # shape (k, k): its lower Cholesky factor
    signs: Floats  # shape (k,)
    precisions: Floats  # shape (k,): of the Gaussian factors, and their shifts
    shifts: Floats
    beta: float
    rest: float


def _curved_density(path: Any, beta: float) -> _CurvedDensity:
    target, parts = path.target, path.target.gaussians[1.0]
    signs, factors = target.signs.astype(np.float64), (parts.precisions, parts.shifts)
    return _CurvedDensity(
        target.prior_covariance, target.factor, signs, *factors, beta, path.rest(beta)
    )


_solve = partial(solve_triangular, lower=True, check_finite=False)


@dataclass(frozen=True, eq=False)
class _Point:
    """A state with its metric ``M = inv(K) + diag(d)``."""

    density: _CurvedDensity
    x: Floats  # shape (k,): latent values; what the likelihood adds to the metric
    d: Floats
    derivative: Floats  # shape (k,): derivative of ``d``
    lower: Floats  # shape (k, k): lower Cholesky factor of ``I + sqrt(d) K sqrt(d)``

    def velocity(self, momentum: Floats) -> Floats:
        """Return ``inv(M)`` times a momentum."""
        covariance, root = self.density.covariance, np.sqrt(self.d)
        product = covariance @ momentum
        inner = _solve(self.lower, root * product)
        outer = _solve(self.lower, inner, trans=1)
        velocity: Floats = product - covariance @ (root * outer)
        return velocity

    def momentum(self, noise: Floats) -> Floats:
        """Return a draw from ``N(0, M)`` made of twice as many standard normal draws."""
        first, second = np.split(noise, 2)
        factor = self.density.factor
        draw: Floats = _solve(factor, first, trans=1)
        return draw + np.sqrt(self.d) * second

    def hamiltonian(self, momentum: Floats) -> float:
        """Return minus the log density of state and momentum, up to a constant, in nats."""
        density, x = self.density, self.x
        white = _solve(density.factor, x)
        factors = x * (density.shifts - 0.5 * density.precisions * x)
        log_density = density.beta * log_ndtr(density.signs * x).sum() - 0.5 * white @ white
        log_density += density.rest * factors.sum()
        kinetic = 0.5 * momentum @ self.velocity(momentum)
        return float(kinetic + np.log(self.lower.diagonal()).sum() - log_density)

    @cached_property
    def _steady(self) -> tuple[Floats, Floats]:
        """The part of the slope that does not depend on momenta, and the diagonal of ``inv(M)``."""
        density, x = self.density, self.x
        white = _solve(density.factor, x)
        prior = _solve(density.factor, white, trans=1)
        likelihood = density.beta * density.signs * hazards(density.signs * x)
        rest = density.rest * (density.shifts - density.precisions * x)
        reduced = _solve(
            self.lower,
            np.sqrt(self.d)[:, None] * density.covariance,
        )
        diagonal = density.covariance.diagonal() - np.einsum("ij,ij->j", reduced, reduced)
        return prior - likelihood - rest + 0.5 * self.derivative * diagonal, diagonal

    def slope(self, momentum: Floats) -> Floats:
        """Return the gradient of the Hamiltonian by the latent values."""
        return self._steady[0] - 0.5 * self.derivative * self.velocity(momentum) ** 2


def _point(density: _CurvedDensity, x: Floats) -> _Point:
    above, below = hazards(x), hazards(-x)
    information = density.beta * above * below
    d = density.rest * density.precisions + information
    root = np.sqrt(d)
    matrix = root[:, None] * density.covariance * root
    matrix[np.diag_indices(len(x))] += 1.0
    derivative = information * (below - above - 2.0 * x)
    return _Point(density, x, d, derivative, np.linalg.cholesky(matrix))


def _half_kicked(here: _Point, momentum: Floats, step: float) -> Floats | None:
    """Return the momentum after half a step, which is given implicitly; None if it is not found."""
    half = momentum
    for _ in range(_MOST_ITERATIONS):
        before, half = half, momentum - 0.5 * step * here.slope(half)
        if _close(half - before, half):
            return half
    return None


def _moved(density: _CurvedDensity, here: _Point, momentum: Floats, step: float) -> _Point | None:
    """Return the state after a step, which is given implicitly; None if it is not found."""
    velocity = here.velocity(momentum)
    there = _point(density, here.x + step * velocity)
    for _ in range(_MOST_ITERATIONS):
        x = here.x + 0.5 * step * (velocity + there.velocity(momentum))
        if not np.isfinite(x).all():
            break
        done, there = _close(x - there.x, x), _point(density, x)
        if done:
            return there
    return None


def _close(change: Floats, value: Floats) -> bool:
    """Return whether a change of positions or momenta is small."""
    return bool(np.abs(change).max() <= _TOLERANCE * (1.0 + np.abs(value).max()))
