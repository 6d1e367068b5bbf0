"""Elliptical slice sampling of latent values around a Gaussian close to their distribution."""

from dataclasses import dataclass
from math import cos, log, pi, sin
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count
from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.codegen.singles import aligned
from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import fill_normal, uniform
from pm_evidence.families.gp_classification.gaussians import Gaussian
from pm_evidence.families.gp_classification.latent_state import LatentValues
from pm_evidence.families.gp_classification.probit import log_ndtr_and_slope
from pm_evidence.families.gp_classification.product import BLOCK, times, width_of

__all__ = ["EllipticalSlice", "residual"]

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
    prior times Gaussian factors found by expectation propagation. The slices are those of the ratio
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
        near, (n, k) = path.gaussian(beta), state.x.shape
        factors = residual(path, beta, near)
        moved = LatentValues(state.x.copy(), state.log_likelihood.copy(), state.log_factors.copy())
        width = width_of(n)
        room = (
            aligned((k, width), np.float64),
            aligned((k, width), np.float64),
            aligned((BLOCK, width), np.float64),
            np.empty((2, k)),
        )
        evaluations = np.zeros(n, np.int64)
        for _ in range(self.n_moves):
            _ellipses(
                moved.x,
                (moved.log_likelihood, moved.log_factors),
                path.target.signs.astype(np.float64),
                factors,
                (near.mean, near.root),
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


def residual(path: Any, beta: float, near: Gaussian) -> NDArray[np.float64]:
    """Return what the density at ``beta`` is made of beside a Gaussian near it, shape ``(4, k)``.

    Rows are precisions and shifts of expectation propagation's factors, and those of the factors
    that the density has besides the Gaussian and the likelihood to the power beta.
    """
    last, rest = path.target.gaussians[1.0], path.rest(beta)
    return np.array(
        [
            last.precisions,
            last.shifts,
            rest * last.precisions - near.precisions,
            rest * last.shifts - near.shifts,
        ]
    )


@njit
def _ellipses(x, logs, signs, factors, gaussian, beta, streams, room, evaluations):
    """Move every row of ``x`` once, in place.

    Parameters
    ----------
    x : float64 array, shape (n, k)
    logs : tuple of two float64 arrays, each of shape (n,)
        Log likelihood and log factors; they are overwritten.
    signs : float64 array, shape (k,)
    factors : float64 array, shape (4, k)
        See ``residual``.
    gaussian : tuple of arrays
        Mean, shape (k,), and root of the covariance, shape (k, k).
    beta : float64
    streams : uint64 array, shape (n, 4)
    room : tuple of arrays
        Two of shape (k, width), one of shape (BLOCK, width), and two rows.
    evaluations : int64 array, shape (n,)
        Counts the evaluations of the likelihood.
    """
    coordinates, directions, products, rows = room
    centre, root = gaussian
    width = coordinates.shape[1]
    direction, proposal = rows[0], rows[1]
    for first in range(0, x.shape[0], width):
        here = min(width, x.shape[0] - first)
        for c in range(here):
            fill_normal(streams[first + c], direction)
            coordinates[:, c] = direction
        times(root, coordinates, directions, products)
        for c in range(here):
            m = first + c
            direction[:] = directions[:, c]
            logs[0][m], logs[1][m], count = _move(
                x[m], (centre, direction, proposal), signs, factors, beta, streams[m]
            )
            evaluations[m] += count


@njit
def _move(x, rows, signs, factors, beta, stream):
    """Move one state along an ellipse in place.

    Returns
    -------
    likelihood, approximate : float64
        Its log likelihood, and the log of the product of its factors.
    count : int64
        How often they were evaluated.
    """
    centre, direction, proposal = rows
    likelihood, approximate, rest = _logs(x, signs, factors)
    least = beta * likelihood + rest + log(uniform(stream))
    angle = 2.0 * pi * uniform(stream)
    low, high, count = angle - 2.0 * pi, angle, 0
    # an interval that has shrunk to the state itself ends the search, also where densities are NaN
    while high - low > _SMALLEST:
        a, b = cos(angle), sin(angle)
        for i in range(x.size):
            proposal[i] = centre[i] + a * (x[i] - centre[i]) + b * direction[i]
        found = _logs(proposal, signs, factors)
        count += 1
        if beta * found[0] + found[2] > least:
            x[:] = proposal
            return found[0], found[1], count
        if angle < 0.0:
            low = angle
        else:
            high = angle
        angle = low + (high - low) * uniform(stream)
    return likelihood, approximate, count


@njit
def _logs(x, signs, factors):
    """Return log likelihood, log factors of the reference, and the rest of the log density."""
    likelihood, approximate, rest = 0.0, 0.0, 0.0
    for i in range(x.size):
        likelihood += log_ndtr_and_slope(signs[i] * x[i])[0]
        approximate += x[i] * (factors[1, i] - 0.5 * factors[0, i] * x[i])
        rest += x[i] * (factors[3, i] - 0.5 * factors[2, i] * x[i])
    return likelihood, approximate, rest
