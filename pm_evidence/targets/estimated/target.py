"""A PyMC model with an estimated likelihood, or a part of one: the target on the extended space."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pm_evidence.core.exceptions import ModelError, NumericalError
from pm_evidence.core.rows import over_rows
from pm_evidence.targets.estimated.particle_filter import ParticleFilter
from pm_evidence.targets.estimated.variable import (
    LikelihoodEstimator,
    estimated_variables,
    estimators_of,
)
from pm_evidence.targets.layout import Rows
from pm_evidence.targets.model.target import PyMCTarget

Floats = NDArray[np.float64]
Seeds = NDArray[np.uint64]
SEED_BITS = 53  # so that a double holds a seed exactly
# What the target of the model without its estimated likelihoods has, and this one as well.
_OF_EVALUATED = (
    *("model", "n_dim", "continuous", "discrete", "lower", "upper", "period"),
    *("log_prior_mass", "wrap", "outside", "rows_of", "observed_data", "constant_data", "describe"),
)
# The same of what annealing starts from. Its density has the log prior, or the log reference, and
# the log of what takes it to the posterior but for the estimated likelihoods.
_OF_START = "density", "log_order_mass", "prior_acceptance"
WORDS = "estimate_words"  # name of the seeds in ``sample_stats``


@dataclass(frozen=True, slots=True)
class EstimatedParticles(Rows):
    """Points with their log prior, their estimated log likelihood and the seeds of the estimate."""

    x: Floats  # shape (n, n_dim): points on the unconstrained scale
    # shape (n, 2): log prior (with Jacobian) and estimated log likelihood, in nats
    log_density: Floats
    seeds: Seeds  # shape (n, n_seeds): seeds of the estimates, of 53 bits
    rows: ClassVar[tuple[str, ...]] = ("x", "log_density", "seeds")

    def to_draws(self) -> Floats:
        """Return points, estimates and seeds, shape ``(n, n_dim + 1 + n_seeds)``."""
        return np.hstack([self.x, self.log_density[:, 1:], self.seeds.astype(float)])


class EstimatedTarget:
    """The estimated posterior of a PyMC model over parameters and seeds.

    Annealing starts from ``start``: the model without its estimated likelihoods, and thus from the
    prior, or this model from another reference.
    """

    differentiable = None

    def __init__(self, evaluated: PyMCTarget, estimators: Sequence[LikelihoodEstimator]) -> None:
        self.evaluated, self.start = evaluated, evaluated
        self.estimators = tuple(estimators)

    @classmethod
    def of_model(cls, model: pm.Model, compile_kwargs: Mapping[str, Any] | None = None) -> Self:
        """Return the target of a model with likelihoods that are estimated."""
        left_out = estimated_variables(model)
        evaluated = PyMCTarget(model, compile_kwargs=compile_kwargs, left_out=left_out)
        return cls(evaluated, estimators_of(model))

    def __getattr__(self, name: str) -> Any:
        """Return what the targets have that evaluate all but the estimated likelihoods."""
        if name in _OF_START:
            return getattr(self.start, name)
        if name in _OF_EVALUATED:
            return getattr(self.evaluated, name)
        raise AttributeError(name)

    # estimators -----------------------------------------------------------------------------

    @property
    def n_seeds(self) -> int:
        """Number of seeds of a state."""
        return sum(estimator.n_seeds for estimator in self.estimators)

    def settings(self) -> tuple[tuple[int, int], ...]:
        """Return the numbers of particles and of blocks of every estimator."""
        return tuple((estimator.n_particles, estimator.n_seeds) for estimator in self.estimators)

    def with_settings(self, settings: Sequence[tuple[int, int]]) -> Self:
        """Return the target with other numbers of particles and blocks."""
        if tuple(settings) == self.settings():
            return self
        return self.changed(
            estimators=tuple(
                estimator.with_particles(n_particles).with_seeds(n_seeds)
                for estimator, (n_particles, n_seeds) in zip(self.estimators, settings, strict=True)
            )
        )

    def changed(self, **attributes: Any) -> Self:
        """Return the target with other attributes; `copy.copy` would return the one in memory."""
        made = object.__new__(type(self))
        vars(made).update(vars(self) | attributes)
        return made

    def draw_seeds(self, n: int, rng: np.random.Generator) -> Seeds:
        """Return seeds for ``n`` states, shape ``(n, n_seeds)``."""
        return rng.integers(2**SEED_BITS, size=(n, self.n_seeds), dtype=np.uint64)

    def split_seeds(self, seeds: Seeds) -> list[Seeds]:
        """Return the seeds of every estimator, of shape ``(..., n_seeds)`` each."""
        ends = np.cumsum([estimator.n_seeds for estimator in self.estimators])
        return [np.ascontiguousarray(own) for own in np.split(seeds, ends[:-1], axis=-1)]

    # densities and draws --------------------------------------------------------------------

    def estimated(self, x: Floats, seeds: Seeds) -> EstimatedParticles:
        """Return points with their log prior and estimated log likelihood.

        The likelihood is not estimated where the rest of the density is already 0 or NaN.
        """
        log_density = np.empty((len(x), 2))
        over_rows(_Estimates(self), (x, seeds), (log_density,))
        return EstimatedParticles(x, log_density, seeds)

    def at(self, draws: Floats) -> EstimatedParticles:
        """Return the population whose ``to_draws`` is ``draws``; its estimates are kept."""
        x = np.ascontiguousarray(draws[:, : self.n_dim])
        log_density = self.density.evaluate(x)[0]
        log_density[:, 1] = draws[:, self.n_dim]
        return EstimatedParticles(x, log_density, draws[:, self.n_dim + 1 :].astype(np.uint64))

    def draw(self, n: int, seed: np.random.SeedSequence) -> EstimatedParticles:
        """Return ``n`` draws from the normalised prior or the reference, with their estimates."""
        own_seed, seed_of_seeds = seed.spawn(2)
        x = self.start.draw(n, own_seed).x
        particles = self.estimated(x, self.draw_seeds(n, np.random.default_rng(seed_of_seeds)))
        estimates = particles.log_density[:, 1]
        if np.isnan(estimates).any() or (estimates == -np.inf).all():
            raise NumericalError(self._why(particles, ~np.isfinite(estimates)))
        return particles

    def _why(self, particles: EstimatedParticles, bad: NDArray[np.bool_]) -> str:
        """Return a message on the first of the members that ``bad`` marks."""
        rows = np.flatnonzero(bad)
        first = int(rows[np.argmax(np.isnan(particles.log_density[rows, 1]))])
        x, where = particles.x[first], self.evaluated.describe(particles.x[first])
        kind = "prior draws" if self.start is self.evaluated else "draws from the reference"
        count = f"the log likelihood is not finite at {rows.size} of {len(particles)} {kind}"
        seeds = self.split_seeds(particles.seeds[first])
        for estimator, own in zip(self.estimators, seeds, strict=True):
            reason = estimator.why_impossible(x, own, where)
            if reason:
                return f"{count}. At the first, {reason}"
        return (
            f"{count}, first at {where}, because of the part that is not estimated; "
            "model.point_logps() at this point names the variable."
        )

    # results --------------------------------------------------------------------------------

    def posterior(self, draws: Floats) -> dict[str, NDArray[Any]]:
        """Return free variables and deterministics by name, each of shape ``(n, ...)``."""
        return self.evaluated.posterior(draws[:, : self.n_dim])

    def sample_stats(self, draws: Floats) -> dict[str, NDArray[Any]]:
        """Return ``lp``, the estimated log likelihood and the seeds of the estimate."""
        state = self.at(draws)
        return {
            "lp": state.log_density.sum(axis=1),
            "log_likelihood_estimate": state.log_density[:, 1],
            WORDS: state.seeds.astype(np.int64),
        }

    def coords_and_dims(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the model's coordinates and the dimensions of its variables."""
        coords, dims = self.evaluated.coords_and_dims()
        return coords, {**dims, WORDS: ["estimate_word"]}


@dataclass(frozen=True)
class _Estimates:
    """Work on rows: log prior and estimated log likelihood."""

    target: EstimatedTarget

    def __call__(self, *rows: NDArray[Any]) -> None:
        x, seeds, log_density = rows
        target = self.target
        target.density.write(np.ascontiguousarray(x), log_density)
        alive = np.flatnonzero(np.isfinite(log_density.sum(axis=1)))
        own_seeds = target.split_seeds(seeds[alive])
        for estimator, own in zip(target.estimators, own_seeds, strict=True):
            log_density[alive, 1] += estimator.estimate(x[alive], own)


# the targets that a PyMC model is compiled to
CompiledTarget = PyMCTarget | EstimatedTarget


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
