"""The estimated posterior of a state-space model given the data up to a time."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.exceptions import ModelError
from pm_evidence.core.rows import over_rows
from pm_evidence.targets.estimated.state_space.filter import ParticleFilter
from pm_evidence.targets.estimated.target import EstimatedParticles, EstimatedTarget, Seeds

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FilteredParticles(EstimatedParticles):
    """Points whose estimated log likelihood is that of the data up to a time."""

    steps: Floats  # shape (n, n_times): log density of each observation given those before, in nats
    rows: ClassVar[tuple[str, ...]] = ("x", "log_density", "seeds", "steps")

    def between(self, first: float, last: float) -> Floats:
        """Return the estimated log density of some data given those before, shape ``(n,)``."""
        if first == last:
            return np.zeros(len(self.x))
        low, high = int(np.floor(first)), int(np.ceil(last))
        weight = np.ones(high - low)
        weight[0] -= first - low
        weight[-1] -= high - last
        found: Floats = (self.steps[:, low:high] * weight).sum(axis=1)
        return found


class TimesTarget(EstimatedTarget):
    """The estimated posterior of a state-space model for the data before a time.

    Every estimate is made for all times, so that data are added without another filter.
    """

    def __init__(self, target: EstimatedTarget, batches: tuple[int, ...] | None = None) -> None:
        super().__init__(target.evaluated, target.estimators)
        self.batches, self.time = batches, float(self.n_points)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (EstimatedTarget(self.evaluated, self.estimators), self.batches, self.time)

    @property
    def filter(self) -> ParticleFilter:
        """The only estimator."""
        (found,) = self.estimators
        assert isinstance(found, ParticleFilter)
        return found

    @property
    def n_points(self) -> int:
        """Number of times."""
        return len(self.filter.observed)

    @property
    def order(self) -> NDArray[np.int64]:
        """The order in which data are added: that of time."""
        return np.arange(self.n_points)

    def up_to(self, time: float) -> Self:
        """Return the target for the data before a time; a fraction is a power of the last one."""
        return self.changed(time=time)

    def name_of(self, point: int) -> str:
        """Return a data point as ``y[3]``."""
        return f"{self.filter.name}[{point}]"

    def estimated(self, x: Floats, seeds: Seeds) -> FilteredParticles:
        """Return points with their log prior and estimated log likelihood."""
        log_density, steps = np.empty((len(x), 2)), np.empty((len(x), self.n_points))
        over_rows(_Steps(self), (x, seeds), (log_density, steps))
        return self.known(FilteredParticles(x, log_density, seeds, steps))

    def known(self, particles: FilteredParticles) -> FilteredParticles:
        """Return points with the estimated log likelihood at this time, which they hold."""
        log_density = particles.log_density.copy()
        log_density[:, 1] = particles.between(0.0, self.time)
        return replace(particles, log_density=log_density)

    def at(self, draws: Floats) -> FilteredParticles:
        """Return the population whose ``to_draws`` is ``draws``; it is estimated again."""
        x = np.ascontiguousarray(draws[:, : self.n_dim])
        return self.estimated(x, draws[:, self.n_dim + 1 :].astype(np.uint64))


@dataclass(frozen=True)
class _Steps:
    """Work on rows: log prior, and the log of each factor of the estimated likelihood."""

    target: TimesTarget

    def __call__(self, *rows: NDArray[Any]) -> None:
        x, seeds, log_density, steps = rows
        self.target.density.write(np.ascontiguousarray(x), log_density)
        alive = np.flatnonzero(np.isfinite(log_density[:, 0]))
        steps[:] = -np.inf
        steps[alive] = self.target.filter.steps(x[alive], np.ascontiguousarray(seeds[alive]))


def _rebuilt(target: EstimatedTarget, batches: tuple[int, ...] | None, time: float) -> TimesTarget:
    return TimesTarget(target, batches).up_to(time)


def times_target(target: EstimatedTarget, batches: tuple[int, ...] | None) -> TimesTarget:
    """Return the target of a state-space model whose data are added in the order of time."""
    model, estimators = target.evaluated.model, target.estimators
    others = [rv.name for rv in model.observed_RVs if rv.name != estimators[0].name]
    others += [potential.name for potential in model.potentials]
    if len(estimators) > 1 or others or not isinstance(estimators[0], ParticleFilter):
        found = [estimator.name for estimator in estimators] + others
        raise ModelError(
            "path='data_points' needs log likelihoods of single data points, or one pe.StateSpace "
            f"and no other data or potentials, got {', '.join(map(repr, dict.fromkeys(found)))}; "
            "pass path='geometric'."
        )
    return TimesTarget(target, batches)
