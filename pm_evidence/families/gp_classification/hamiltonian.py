"""Hamiltonian Monte Carlo of latent values."""

from dataclasses import dataclass
from math import log
from typing import Any, NamedTuple, Self

import numba as nb
import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_count, check_positive
from pm_evidence.core.codegen.singles import aligned
from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import fill_normal, uniform
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
    """Leapfrog trajectories of all latent values, with fresh momenta; reversible.

    Parameters
    ----------
    step_size : float
        Mean leapfrog step. Each trajectory draws its own step within 20 % of it, which avoids
        periodic trajectories.
    n_leapfrogs : int
        Number of steps of a trajectory.
    metric : {"gaussian", "prior", "identity"}
        In which coordinates momenta are standard normal: those in which the Gaussian of expectation
        propagation is, those in which the prior is, or the latent values themselves. The last is
        plain HMC, the baseline of Fraccaro, Paquet and Winther (2016), which mixes slowly where
        latent values are highly correlated; they used steps of 0.02, 200 for a trajectory.

    Raises
    ------
    ValueError
        If an argument is out of range.
    """

    step_size: float = 0.2
    n_leapfrogs: int = 8
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
        sums = aligned((4, width), np.float64), aligned((BLOCK, width), np.float64)
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

    In coordinates ``t`` it is ``b't - t'At / 2`` plus a function of each latent value, times beta.
    If ``maps`` is true, ``A`` is diagonal and ``x = matrix t``, up to a constant; otherwise the
    coordinates are the latent values, and ``A`` is the matrix.
    """

    maps: bool
    matrix: Floats  # shape (k, k)
    transposed: Floats  # shape (k, k)
    inverse: Floats  # shape (k, k): from latent values to coordinates
    diagonal: Floats  # shape (k,): of ``A``
    pull: Floats  # shape (k,): ``b``
    signs: Floats  # shape (k,)
    precisions: Floats  # shape (k,)
    shifts: Floats  # shape (k,)
    beta: float


def _density(path: Any, beta: float, metric: str) -> _Density:
    """Return the density at an inverse temperature in the coordinates of a metric."""
    parts, power = path.target.gaussians, path.power(beta)
    signs = path.target.signs.astype(np.float64)
    rest = signs, parts.precisions, parts.shifts, float(beta)
    if metric == "identity":
        matrix = parts.inverse.T @ parts.inverse + power * np.diag(parts.precisions)
        return _Density(
            False, matrix, matrix, matrix, np.ones(len(signs)), power * parts.shifts, *rest
        )
    precision = 1.0 + power * parts.strength
    scale = precision**-0.5 if metric == "gaussian" else np.ones(len(signs))
    matrix = np.ascontiguousarray(parts.basis * scale)
    return _Density(
        True,
        matrix,
        np.ascontiguousarray(matrix.T),
        np.ascontiguousarray(parts.inverse / scale[:, None]),
        precision * scale**2,
        power * parts.pull * scale,
        *rest,
    )


@nb.njit(cache=True, nogil=True, error_model="numpy")
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
        Four of shape (k, width), one of shape (4, width), one of shape (BLOCK, width).
    acceptance : float64 array, shape (n,)
        Receives the acceptance probabilities.
    """
    position, momentum, latent, force, sums, products = room
    n, (k, width) = x.shape[0], position.shape
    sizes, start = np.zeros(width), np.empty(width)
    for c in range(width):
        latent[:, c] = x[min(c, n - 1)]
    if density.maps:
        times(density.inverse, latent, position, products)
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


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _kick(values, rates, sizes, share):
    for i in range(values.shape[0]):
        for c in range(sizes.size):
            values[i, c] += share * sizes[c] * rates[i, c]


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _total(sums, momentum, out):
    """Set ``out`` to the log density minus the kinetic energy."""
    for c in range(out.size):
        out[c] = sums[0, c] + sums[3, c] * (sums[1, c] - sums[2, c])
    for i in range(momentum.shape[0]):
        for c in range(out.size):
            out[c] -= 0.5 * momentum[i, c] ** 2


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _evaluate(density, position, latent, force, sums, products):
    """Set latent values, forces, and the parts of the log density at positions.

    ``sums`` receives the log of the Gaussian, the log likelihood and the log factors of each
    member, and beta.
    """
    k, width = position.shape
    sums[:3] = 0.0
    sums[3] = density.beta
    if density.maps:
        times(density.matrix, position, latent, products)
    else:
        latent[:] = position
        times(density.matrix, position, force, products)
    slopes = force if density.maps else np.zeros_like(force)
    for i in range(k):
        y, precision, shift = density.signs[i], density.precisions[i], density.shifts[i]
        for c in range(width):
            value, slope = log_ndtr_and_slope(y * latent[i, c])
            sums[1, c] += value
            sums[2, c] += latent[i, c] * (shift - 0.5 * precision * latent[i, c])
            slopes[i, c] = density.beta * (y * slope - shift + precision * latent[i, c])
    pulled = np.empty_like(force)
    if density.maps:
        times(density.transposed, slopes, pulled, products)
    else:
        pulled[:] = slopes
    for i in range(k):
        for c in range(width):
            product = density.diagonal[i] * position[i, c] if density.maps else force[i, c]
            gaussian = density.pull[i] - product
            sums[0, c] += 0.5 * position[i, c] * (gaussian + density.pull[i])
            force[i, c] = gaussian + pulled[i, c]
