"""The path of a mixture along which data points are added one by one."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.random import streams as streams_of
from pm_evidence.families.mixture.gibbs import (
    ABSENT,
    ROOM,
    MixtureStates,
    fill_parameters,
    pick,
    predict,
    states_of,
)
from pm_evidence.paths.growing import GrowingPath

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DataAnnealingPath(GrowingPath):
    """Densities of the first ``n`` points, for ``n`` from 0 to the number of all points.

    ``f_n`` is the joint density of the variances, of the components ``z_i`` of the first ``n``
    points and of these points, from which means and weights are integrated out. The weight of a new
    point is its density given variances and components, and its component is then drawn.

    Habeck (2017), section 6.4, where means and weights belong to the state, and the work has a
    larger variance; Chopin (2002), "A sequential particle filter method for static
    models".
    """

    target: Any  # data, prior, and the order of the points

    @property
    def n_steps(self) -> int:
        """Number of points."""
        return len(self.target.y)

    def draw(self, n: int, seed: np.random.SeedSequence) -> MixtureStates:
        """Return ``n`` independent draws from the prior, without points."""
        target, k = self.target, self.target.n_components
        mean, weight = np.empty((n, k)), np.empty((n, k))
        variance = np.empty((n, target.n_variances))
        fill_parameters(target.prior, mean, variance, weight, streams_of(seed, n))
        component = np.full((n, len(target.y)), ABSENT, np.int8)
        return MixtureStates(0, mean, variance, weight, component)

    def at(self, draws: NDArray[Any]) -> MixtureStates:
        """Return the population of some draws; see ``GaussianMixture.check``."""
        return states_of(draws, self.target.n_components, self.target.n_variances)

    def smoothed(self, state: MixtureStates) -> Floats:
        """Return the log density of the next point, shape ``(n,)``, in nats."""
        nowhere, unused = np.empty((0, 0), np.int8), np.empty((0, 4), np.uint64)
        return self._next(state, nowhere, unused)

    def extended(self, state: MixtureStates, streams: NDArray[np.uint64]) -> MixtureStates:
        """Return the states with the next point, whose component is drawn given the rest."""
        component = state.component.copy()
        self._next(state, component, streams)
        return replace(state, step=state.step + 1, component=component)

    def shrunk(self, state: MixtureStates) -> MixtureStates:
        """Return the states without the point that was added last."""
        component = state.component.copy()
        component[:, self.target.point_order[state.step - 1]] = ABSENT
        return replace(state, step=state.step - 1, component=component)

    def _next(
        self, state: MixtureStates, out: NDArray[np.int8], streams: NDArray[np.uint64]
    ) -> Floats:
        """Return log densities of the next point; draw its components if there is room for them."""
        target, log_density = self.target, np.empty(len(state))
        point = int(target.point_order[state.step])
        _next_point(
            point, target.y, target.prior, state.variance, state.component,
            target.n_components, out, streams, log_density,
        )  # fmt: skip
        return log_density


@njit
def _next_point(point, y, prior, variance, component, k, out, streams, log_density):
    """Compute the log density of a point for every member, and draw its component into ``out``."""
    room = np.empty((ROOM, k))
    for m in range(log_density.size):
        log_density[m] = predict(y[point], y, component[m], prior, variance[m], k, room)
        if len(out):
            out[m, point] = pick(room, k, streams[m])
