"""Gibbs sampling of a mixture: components given parameters, and parameters given components."""

from dataclasses import dataclass, replace
from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import MoveInfo
from pm_evidence.families.mixture.draws import (
    ROOM,
    draw_component,
    draw_means,
    draw_variances,
    draw_weights,
    log_terms,
)
from pm_evidence.families.mixture.state import MixtureStates
from pm_evidence.families.sweep_settings import SweepSettings

__all__ = ["MixtureGibbs", "add_point", "fill_parameters", "log_densities"]


@dataclass(frozen=True)
class MixtureGibbs(SweepSettings):
    """Draws the components of all points, then weights, means and variances given these.

    Parameters
    ----------
    n_sweeps : int
        Number of times that all of them are drawn in a move.
    backwards : bool
        Whether they are drawn in the opposite order, which is the time reversal.
    """

    def advance(
        self, path: Any, state: MixtureStates, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[MixtureStates, MoveInfo]:
        """Move every member, with the points that it has; see ``contracts.Kernel``."""
        target = path.target
        moved = replace(state, **{name: rows.copy() for name, rows in state.arrays.items()})
        _sweep(target.y, target.prior, self.n_sweeps, self.backwards, *moved.arrays.values(), streams)
        return moved, MoveInfo(1.0, len(state) * self.n_sweeps)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _sweep(y, prior, n_sweeps, backwards, mean, variance, weight, component, streams):
    room = np.empty((ROOM, mean.shape[1]))
    for m in range(len(mean)):
        stream, z = streams[m], component[m]
        for _ in range(n_sweeps):
            if backwards:
                draw_variances(y, z, prior, mean[m], variance[m], room, stream)
                draw_means(y, z, prior, mean[m], variance[m], room, stream)
                draw_weights(z, prior, weight[m], room, stream)
            log_terms(variance[m], weight[m], room)
            for i in range(y.size):
                if z[i] >= 0:
                    z[i], _ = draw_component(y[i], mean[m], variance[m], room, stream)
            if not backwards:
                draw_weights(z, prior, weight[m], room, stream)
                draw_means(y, z, prior, mean[m], variance[m], room, stream)
                draw_variances(y, z, prior, mean[m], variance[m], room, stream)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def fill_parameters(prior, mean, variance, weight, streams):
    """Fill the parameters of every member with draws from the prior."""
    nothing, nowhere = np.empty(0), np.empty(0, np.int8)
    room = np.empty((ROOM, mean.shape[1]))
    for m in range(len(mean)):
        draw_weights(nowhere, prior, weight[m], room, streams[m])
        draw_variances(nothing, nowhere, prior, mean[m], variance[m], room, streams[m])
        draw_means(nothing, nowhere, prior, mean[m], variance[m], room, streams[m])


@nb.njit(cache=True, nogil=True, error_model="numpy")
def add_point(y, point, mean, variance, weight, component, streams):
    """Draw the component of the point with index ``point`` given the parameters."""
    room = np.empty((ROOM, mean.shape[1]))
    for m in range(len(mean)):
        log_terms(variance[m], weight[m], room)
        drawn = draw_component(y[point], mean[m], variance[m], room, streams[m])
        component[m, point] = drawn[0]


@nb.njit(cache=True, nogil=True, error_model="numpy")
def log_densities(y, mean, variance, weight, out):
    """Compute the log of the mixture's density at ``y`` for the parameters of every member."""
    room = np.empty((ROOM, mean.shape[1]))
    unused = np.ones(4, np.uint64)
    for m in range(len(mean)):
        log_terms(variance[m], weight[m], room)
        out[m] = draw_component(y, mean[m], variance[m], room, unused)[1]
