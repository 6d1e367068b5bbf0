"""The path of a mixture along which data points are added one by one."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.random import streams as streams_of
from pm_evidence.families.mixture.gibbs import add_point, fill_parameters, log_densities
from pm_evidence.families.mixture.state import ABSENT, MixtureStates, states_of
from pm_evidence.paths.growing import GrowingPath

__all__ = ["DataAnnealingPath"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DataAnnealingPath(GrowingPath):
    """``f_n(x) = p(parameters) prod_(i <= n) p(y_i, z_i | parameters)`` for the first n points.

    Habeck (2017), section 6.4; Chopin (2002). The state consists of the parameters and of the
    components ``z`` of the points so far. The component of a new point is summed out of its weight,
    which is the density of the mixture at the point, and is then drawn given the parameters.

    Parameters
    ----------
    target : GaussianMixture
        Data, prior, and the order of the points.
    """

    target: Any

    @property
    def n_steps(self) -> int:  # type: ignore[override]
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
        """Return the log of the mixture's density at the next point, shape ``(n,)``, in nats."""
        out = np.empty(len(state))
        y = self.target.y[self.target.point_order[state.step]]
        log_densities(y, state.mean, state.variance, state.weight, out)
        return out

    def extended(self, state: MixtureStates, streams: NDArray[np.uint64]) -> MixtureStates:
        """Return the states with the next point, whose component is drawn given the parameters."""
        component = state.component.copy()
        point = self.target.point_order[state.step]
        add_point(
            self.target.y, point, state.mean, state.variance, state.weight, component, streams
        )
        return replace(state, step=state.step + 1, component=component)

    def shrunk(self, state: MixtureStates) -> MixtureStates:
        """Return the states without the point that was added last."""
        component = state.component.copy()
        component[:, self.target.point_order[state.step - 1]] = ABSENT
        return replace(state, step=state.step - 1, component=component)
