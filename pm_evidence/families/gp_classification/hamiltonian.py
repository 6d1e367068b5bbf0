"""Hamiltonian Monte Carlo of latent values."""

from dataclasses import dataclass
from math import cos, log, sin
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_count, check_positive
from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.codegen.singles import aligned
from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import fill_normal, uniform
from pm_evidence.families.gp_classification.elliptical import residual
from pm_evidence.families.gp_classification.latent_state import LatentValues
from pm_evidence.families.gp_classification.probit import log_ndtr_and_slope
from pm_evidence.families.gp_classification.product import BLOCK, times, width_of
from pm_evidence.kernels.metropolis import acceptance_probability

__all__ = ["METRICS", "LatentHMC"]

Floats = NDArray[np.float64]

METRICS = ("gaussian", "prior", "identity")
_MOST_LEAPFROGS = 100_000


@dataclass(frozen=True)
class LatentHMC:
    """Hamiltonian trajectories of all latent values, with fresh momenta; reversible.

    Parameters
    ----------
    step_size : float
        Mean step. Each trajectory draws its own step within 20 % of it, which avoids periodic
        trajectories.
    n_leapfrogs : int
        Number of steps of a trajectory.
    metric : {"gaussian", "prior", "identity"}
        In which coordinates momenta are standard normal: those in which a Gaussian near the
        density is, those in which the prior is, or the latent values themselves. The last is plain
        HMC with leapfrog steps, the baseline of Fraccaro, Paquet and Winther (2016), which mixes
        slowly where latent values are highly correlated; they used steps of 0.02, 200 for a
        trajectory.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    With the first two metrics, trajectories of the Gaussian are exact rotations, and momenta are
    changed by the force of the rest of the density between them (Shahbaba, Lan, Johnson and Neal
    2014). That the Gaussian is an approximation has no influence on the distribution that the
    moves leave invariant. Four rotations by 0.4 make a quarter of a turn, after which
    positions would be independent of their start if the density were the Gaussian. Energies change
    more in one trajectory than on many ellipses of ``EllipticalSlice``, on which they move by
    about one nat.
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

    def reversed(self) -> Self:
        """Return the kernel itself: fresh momenta make it reversible."""
        return self

    def settings(self) -> dict[str, float]:
        """Return step size and number of steps."""
        return {"step_size": self.step_size, "n_leapfrogs": float(self.n_leapfrogs)}


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
    factors: Floats  # shape (4, k): see ``elliptical.residual``
    beta: float


def _density(path: Any, beta: float, metric: str) -> _Density:
    """Return the density at an inverse temperature in the coordinates of a metric."""
    near = path.gaussian(beta) if metric == "gaussian" else path.target.gaussians[0.0]
    rest = near.mean, path.target.signs.astype(np.float64), residual(path, beta, near), float(beta)
    if metric == "identity":
        precision = np.ascontiguousarray(near.inverse.T @ near.inverse)
        return _Density(False, precision, precision, precision, *rest)
    transposed = np.ascontiguousarray(near.root.T)
    return _Density(True, near.root, transposed, near.inverse, *rest)


@njit
def _trajectories(x, logs, density, path, streams, room, acceptance):
    """Move at most ``width`` rows of ``x`` in place.

    Parameters
    ----------
    x : float64 array, shape (n, k)
    logs : tuple of two float64 arrays, each of shape (n,)
        Log likelihood and log factors; they are overwritten.
    density : _Density
    path : tuple
        Mean step and number of steps.
    streams : uint64 array, shape (n, 4)
    room : tuple of arrays
        Four of shape (k, width), one of shape (3, width), one of shape (BLOCK, width).
    acceptance : float64 array, shape (n,)
        Receives the acceptance probabilities.
    """
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
        force[:] = slopes
    if not density.maps:
        force -= gaussian
