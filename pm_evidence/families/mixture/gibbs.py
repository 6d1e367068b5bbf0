"""Gibbs sampling of a mixture: parameters given components, and components given parameters."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen.numba import njit
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

__all__ = ["MixtureGibbs", "fill_parameters"]


@dataclass(frozen=True)
class MixtureGibbs(SweepSettings):
    """Draws means and weights, then the components of all points, and then the variances.

    Parameters
    ----------
    n_sweeps : int
        Number of times that all of them are drawn in a move.
    backwards : bool
        Whether they are drawn in the opposite order, which is the time reversal.

    Notes
    -----
    Where means and weights are integrated out of the densities of the path, they do not belong to
    the state: each sweep draws them first and leaves them behind. Its reversal draws them first as
    well, and then the variances and the components.
    """

    def advance(
        self, path: Any, state: MixtureStates, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[MixtureStates, MoveInfo]:
        """Move every member, with the points that it has; see ``contracts.Kernel``."""
        target = path.target
        moved = state.with_arrays({name: rows.copy() for name, rows in state.arrays.items()})
        order = (path.collapsed, self.backwards)
        _sweep(target.y, target.prior, self.n_sweeps, order, *moved.arrays.values(), streams)
        return moved, MoveInfo(1.0, len(state) * self.n_sweeps)


@njit
def _sweep(y, prior, n_sweeps, order, mean, variance, weight, component, streams):
    collapsed, backwards = order
    room = np.empty((ROOM, mean.shape[1]))
    for m in range(len(mean)):
        stream, z = streams[m], component[m]
        for _ in range(n_sweeps):
            if collapsed or not backwards:
                draw_means(y, z, prior, mean[m], variance[m], room, stream)
                draw_weights(z, prior, weight[m], room, stream)
            if backwards:
                draw_variances(y, z, prior, mean[m], variance[m], room, stream)
            log_terms(variance[m], weight[m], room)
            for i in range(y.size):
                if z[i] >= 0:
                    z[i], _ = draw_component(y[i], mean[m], variance[m], room, stream)
            if not backwards:
                draw_variances(y, z, prior, mean[m], variance[m], room, stream)
            elif not collapsed:
                draw_weights(z, prior, weight[m], room, stream)
                draw_means(y, z, prior, mean[m], variance[m], room, stream)


@njit
def fill_parameters(prior, mean, variance, weight, streams):
    """Fill the parameters of every member with draws from the prior."""
    nothing, nowhere = np.empty(0), np.empty(0, np.int8)
    room = np.empty((ROOM, mean.shape[1]))
    for m in range(len(mean)):
        draw_weights(nowhere, prior, weight[m], room, streams[m])
        draw_variances(nothing, nowhere, prior, mean[m], variance[m], room, streams[m])
        draw_means(nothing, nowhere, prior, mean[m], variance[m], room, streams[m])
