"""Elliptical slice sampling of latent values around a Gaussian close to their distribution."""

from dataclasses import dataclass
from math import cos, log, pi, sin
from typing import Any, Self

import numba as nb
import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count
from pm_evidence.core.codegen.singles import aligned
from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import fill_normal, uniform
from pm_evidence.families.gp_classification.latent_state import LatentValues
from pm_evidence.families.gp_classification.probit import log_ndtr_and_slope
from pm_evidence.families.gp_classification.product import BLOCK, times, width_of

__all__ = ["EllipticalSlice"]

_MOST_MOVES = 1_000_000
_SMALLEST = 1e-14  # interval of angles


@dataclass(frozen=True)
class EllipticalSlice:
    """Moves all latent values along an ellipse through them and a draw from a Gaussian; reversible.

    Parameters
    ----------
    n_moves : int
        Number of ellipses at every inverse temperature.

    Raises
    ------
    ValueError
        If ``n_moves`` is out of range.

    Notes
    -----
    Murray, Adams and MacKay (2010), with the Gaussian of Nishihara, Murray and Adams (2014): the
    prior times powers of the factors of expectation propagation. The slices are those of the ratio
    to this Gaussian, which is nearly constant, so that one ellipse leads to a nearly independent
    state. There is nothing to tune. That the Gaussian is an approximation has no influence on the
    distribution that the moves leave invariant.
    """

    n_moves: int = 1

    def __post_init__(self) -> None:
        check_count("n_moves", self.n_moves, 1, _MOST_MOVES)

    def advance(
        self, path: Any, state: LatentValues, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[LatentValues, MoveInfo]:
        """Move every member; see ``contracts.Kernel``."""
        parts, (n, k) = path.target.gaussians, state.x.shape
        mean, deviation = parts.moments(path.power(beta))
        moved = LatentValues(
            state.x.copy(), state.log_likelihood.copy(), state.log_factors.copy()
        )
        width = width_of(n)
        room = (
            aligned((k, width), np.float64),
            aligned((k, width), np.float64),
            aligned((BLOCK, width), np.float64),
            np.empty((3, k)),
        )
        evaluations = np.zeros(n, np.int64)
        for _ in range(self.n_moves):
            _ellipses(
                moved.x,
                (moved.log_likelihood, moved.log_factors),
                path.target.signs.astype(np.float64),
                (parts.precisions, parts.shifts),
                (parts.basis, mean, deviation),
                beta,
                streams,
                room,
                evaluations,
            )
        return moved, MoveInfo(1.0, int(evaluations.sum()))

    def reversed(self) -> Self:
        """Return the kernel itself: it is reversible."""
        return self

    def settings(self) -> dict[str, float]:
        """Return the number of moves."""
        return {"n_moves": float(self.n_moves)}


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _ellipses(x, logs, signs, factors, gaussian, beta, streams, room, evaluations):
    """Move every row of ``x`` once, in place.

    Parameters
    ----------
    x : float64 array, shape (n, k)
    logs : tuple of two float64 arrays, each of shape (n,)
        Log likelihood and log factors; they are overwritten.
    signs : float64 array, shape (k,)
    factors : tuple of two float64 arrays, each of shape (k,)
        Precisions and shifts.
    gaussian : tuple of arrays
        Basis, shape (k, k), means and standard deviations of the coordinates.
    beta : float64
    streams : uint64 array, shape (n, 4)
    room : tuple of arrays
        Two of shape (k, width), one of shape (BLOCK, width), and three rows.
    evaluations : int64 array, shape (n,)
        Counts the evaluations of the likelihood.
    """
    coordinates, directions, products, rows = room
    basis, mean, deviation = gaussian
    k, width = coordinates.shape
    centre, direction, proposal = rows[0], rows[1], rows[2]
    for c in range(width):
        coordinates[:, c] = mean
    times(basis, coordinates, directions, products)
    centre[:] = directions[:, 0]
    for first in range(0, x.shape[0], width):
        here = min(width, x.shape[0] - first)
        for c in range(here):
            fill_normal(streams[first + c], direction)
            for i in range(k):
                coordinates[i, c] = deviation[i] * direction[i]
        times(basis, coordinates, directions, products)
        for c in range(here):
            m = first + c
            direction[:] = directions[:, c]
            found = logs[0][m], logs[1][m]
            logs[0][m], logs[1][m], count = _move(
                x[m], found, (centre, direction, proposal), signs, factors, beta, streams[m]
            )
            evaluations[m] += count


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _move(x, logs, rows, signs, factors, beta, stream):
    """Move one state along an ellipse in place.

    Returns
    -------
    likelihood, approximate : float64
        Its log likelihood, and the log of the product of its factors.
    count : int64
        How often they were evaluated.
    """
    centre, direction, proposal = rows
    least = beta * (logs[0] - logs[1]) + log(uniform(stream))
    angle = 2.0 * pi * uniform(stream)
    low, high, count = angle - 2.0 * pi, angle, 0
    # an interval that has shrunk to the state itself ends the search, also where densities are NaN
    while high - low > _SMALLEST:
        a, b = cos(angle), sin(angle)
        for i in range(x.size):
            proposal[i] = centre[i] + a * (x[i] - centre[i]) + b * direction[i]
        likelihood, approximate = _logs(proposal, signs, factors)
        count += 1
        if beta * (likelihood - approximate) > least:
            x[:] = proposal
            return likelihood, approximate, count
        if angle < 0.0:
            low = angle
        else:
            high = angle
        angle = low + (high - low) * uniform(stream)
    return logs[0], logs[1], count


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _logs(x, signs, factors):
    """Return the log likelihood of latent values, and the log of the product of their factors."""
    precisions, shifts = factors
    likelihood, approximate = 0.0, 0.0
    for i in range(x.size):
        likelihood += log_ndtr_and_slope(signs[i] * x[i])[0]
        approximate += x[i] * (shifts[i] - 0.5 * precisions[i] * x[i])
    return likelihood, approximate
