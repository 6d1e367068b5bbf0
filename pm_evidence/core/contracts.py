"""The nouns of the package, one tiny contract each.

A *state* is a whole population in whatever form its target likes best: rows of
floats for a PyMC model, bit planes for a lattice. Only targets and kernels look
inside one; samplers count, take and join.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "NOISY_VARIANCE",
    "AnnealingSetup",
    "BatchedKernel",
    "Bridgeable",
    "HasPosterior",
    "Kernel",
    "LikelihoodEstimator",
    "MoveInfo",
    "Path",
    "Plan",
    "StageBatch",
    "State",
    "Target",
    "Tunable",
]

Floats = NDArray[np.float64]
Streams = NDArray[np.uint64]

# Variance of an estimated log likelihood in square nats beyond which no run is to be trusted.
NOISY_VARIANCE = 8.0


class State(Protocol):
    """A population of states."""

    def __len__(self) -> int:
        """Return the number of members."""
        ...

    def take(self, index: NDArray[np.int64]) -> Self:
        """Return the members at ``index`` (repeats allowed) as a new population."""
        ...

    def join(self, others: Sequence[Self]) -> Self:
        """Return this population followed by ``others``."""
        ...

    def to_draws(self) -> NDArray[Any]:
        """Return the members in the target's own coordinates, shape ``(n, ...)``."""
        ...


class Path(Protocol):
    """The family of unnormalised densities between the reference (0) and the target (1)."""

    def draw(self, n: int, seed: np.random.SeedSequence) -> Any:
        """Return ``n`` independent exact draws at ``beta = 0``."""
        ...

    def at(self, draws: NDArray[Any]) -> Any:
        """Return the population whose ``to_draws`` is ``draws``, shape ``(n, ...)``."""
        ...

    def log_ratio(self, state: Any, start: float, stop: float) -> Floats:
        """Return ``log f_stop(x) - log f_start(x)`` for every member, shape ``(n,)``, in nats."""
        ...

    def energy(self, state: Any, beta: float) -> Floats:
        """Return ``-d log f_beta(x) / d beta`` for every member, shape ``(n,)``, in nats."""
        ...

    def order(self, state: Any) -> NDArray[np.int64]:
        """Return an order in which neighbours are alike, for resampling; shape ``(n,)``."""
        ...


@runtime_checkable
class Bridgeable(Protocol):
    """A path to whose target a density is fitted by the pilot, as one end of a bridge."""

    def fit(self, state: Any) -> Any:
        """Return a density fitted to a population, or None where there is none."""
        ...

    def bridge_work(
        self, fit: Any, state: Any, n: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Return ``log fit - log f_1`` at ``n`` draws from ``fit`` and at ``state``, in nats."""
        ...


@runtime_checkable
class HasPosterior(Protocol):
    """A path whose target is a density that can be evaluated at any point of R^d."""

    def posterior(self) -> Any:
        """Return the density (see ``paths.posterior``); None where it is not of that kind."""
        ...


@dataclass(frozen=True, slots=True)
class MoveInfo:
    """What a kernel reports of one advance of the whole population.

    Parameters
    ----------
    acceptance : float
        Mean acceptance probability, from 0 to 1.
    n_evaluations : int
        Density (or gradient) evaluations made.
    n_nan : int
        Proposals refused because their density was NaN.
    reach : float
        1 if longer moves would mix more per evaluation, -1 if shorter ones would, 0 if not known.
    parts : tuple of MoveInfo
        Reports of the parts of a composite kernel, in the kernel's own order.
    """

    acceptance: float
    n_evaluations: int
    n_nan: int = 0
    reach: float = 0.0
    parts: tuple["MoveInfo", ...] = ()


class Kernel(Protocol):
    """Moves a whole population at fixed beta and leaves that density invariant.

    A kernel never changes: its settings are its fields, and tuning returns another kernel. One that
    moves many members in one machine word may share streams among ``n_together`` neighbouring
    members, and says so in a class attribute of this name; 1 if left out.
    """

    def advance(self, path: Any, state: Any, beta: float, streams: Streams) -> tuple[Any, MoveInfo]:
        """Move every member once; member ``i`` draws from ``streams[i]`` only, which advances."""
        ...

    def reversed(self) -> Self:
        """Return the time reversal with respect to the invariant density."""
        ...

    def settings(self) -> dict[str, float]:
        """Return the scalar settings, for the record."""
        ...


@runtime_checkable
class Tunable(Protocol):
    """A kernel whose settings a pilot learns, stage by stage."""

    def learn(self, path: Any, state: Any) -> Any:
        """Return the kernel with its shape learnt from a population."""
        ...

    def adjust(self, info: MoveInfo) -> Any:
        """Return the kernel with its scales moved towards their best."""
        ...

    def without_exploration(self) -> Any:
        """Return the kernel as it is used after the pilot: it no longer tries settings out."""
        ...


@dataclass(frozen=True, slots=True)
class StageBatch:
    """What a kernel leaves behind that advanced a population through ``m`` stages.

    Parameters
    ----------
    state : State
        The population after the last stage.
    before, after : object
        What the path's ``log_ratio`` and ``energy`` need of the populations before and after each
        stage; from these and inverse temperatures of shape ``(m, 1)`` the path's ``weigh`` returns
        both, of shape ``(m, n)``.
    acceptance : ndarray, shape (m,)
        Mean acceptance probability of each stage.
    n_evaluations, n_nan : int
        See ``MoveInfo``.
    """

    state: Any
    before: Any
    after: Any
    acceptance: Floats
    n_evaluations: int
    n_nan: int = 0


@runtime_checkable
class BatchedKernel(Protocol):
    """A kernel that advances through many stages in one call of compiled code.

    This pays where a stage takes microseconds. Such a kernel is not tunable: a plan holds the same
    object for all of its stages.
    """

    def advance_many(self, path: Any, state: Any, beta: Floats, streams: Streams) -> StageBatch:
        """Advance at every inverse temperature in turn; the same numbers as ``advance`` gives.

        The state is given away: the kernel may move it in place.
        """
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule and the frozen kernel of each stage, as a pilot leaves them.

    Parameters
    ----------
    beta : ndarray, shape (n_stages + 1,)
        Inverse temperatures, strictly rising from 0 to 1.
    kernels : tuple of Kernel, length n_stages
        ``kernels[k]`` moves the population at ``beta[k + 1]``.
    fit : object, optional
        A density fitted to the pilot's last population, for a bridge to the target.
    n_evaluations : int
        Density (or gradient) evaluations that the plan cost.
    population : State, optional
        The pilot's last population, at beta 1.
    """

    beta: Floats
    kernels: tuple[Kernel, ...]
    fit: Any = None
    population: Any = None
    n_evaluations: int = 0

    @property
    def n_stages(self) -> int:
        """Number of stages."""
        return len(self.kernels)


class LikelihoodEstimator(Protocol):
    """An unbiased estimate of a likelihood, as a function of parameters and seeds.

    Attributes
    ----------
    name : str
        Name of the model's variable.
    n_particles : int
        Particles of an estimate.
    auto : bool
        Whether that number is left to the sampler.
    n_seeds : int
        Seeds that an estimate is a function of: each makes a part of its random numbers.
    """

    name: str
    n_particles: int
    auto: bool
    n_seeds: int

    def estimate(self, x: Floats, seeds: Streams) -> Floats:
        """Return the log of an estimate for each row of ``x``, shape ``(n,)``, in nats.

        Parameters
        ----------
        x : ndarray, shape (n, n_dim)
            Points on the unconstrained scale.
        seeds : ndarray of uint64, shape (n, n_seeds)
            Seeds; the same seeds give the same estimate.
        """
        ...

    def latent(
        self, x: Floats, seeds: Streams
    ) -> tuple[dict[str, tuple[tuple[str, ...], NDArray[Any]]], dict[str, Any]]:
        """Draw what the likelihood is an integral over, by the weights that an estimate gives.

        Returns
        -------
        variables : dict
            By name, dimensions and values, one for each row of ``x``.
        coords : dict
            Labels of some of these dimensions.
        """
        ...

    def why_impossible(self, x: Floats, seeds: Streams, parameters: str) -> str:
        """Return why the estimate at one point is 0 or not a number; empty if it is neither.

        Parameters
        ----------
        x : ndarray, shape (n_dim,)
            The point.
        seeds : ndarray of uint64, shape (n_seeds,)
            Seeds.
        parameters : str
            How to name the point.
        """
        ...

    def with_particles(self, n_particles: int) -> Self:
        """Return the estimator with another number of particles."""
        ...

    def with_seeds(self, n_seeds: int) -> Self:
        """Return the estimator with its random numbers cut into so many parts."""
        ...

    def cost(self) -> tuple[float, float]:
        """Return the cost of an estimate without particles, and per particle, counted alike."""
        ...


@dataclass(frozen=True, slots=True)
class AnnealingSetup:
    """How a target is annealed unless the user says otherwise.

    Parameters
    ----------
    path : Path
        The family of densities.
    kernel : Kernel
        What moves populations, untuned.
    n_pilot : int
        Least number of particles of a pilot.
    n_stages : int, optional
        Number of stages for independent paths whose kernels are not tunable: there is no pilot
        then, and a trial run finds the schedule. None where a pilot finds it.
    starts : callable, optional
        Returns ``n`` states near the target for reverse paths to relax from, given ``n`` and a
        generator. None where islands of sequential Monte Carlo make them.
    n_paths : int
        Number of paths that a block of annealing moves together.
    facts : mapping
        Facts of the target that estimators ask the record for: ``estimated_likelihood`` is true
        where the likelihood is estimated.
    """

    path: Path
    kernel: Kernel
    n_pilot: int = 0
    n_stages: int | None = None
    starts: Callable[[int, np.random.Generator], NDArray[Any]] | None = None
    n_paths: int = 128
    facts: Mapping[str, Any] = field(default_factory=dict)


class Target(Protocol):
    """What a run needs of a target besides its ``AnnealingSetup``.

    Attributes
    ----------
    n_dim : int
        Number of coordinates of a state.
    log_prior_mass : float
        Log of the prior mass inside of constraints, in nats; see ``targets.model``.
    """

    n_dim: int

    @property
    def log_prior_mass(self) -> float:
        """Log of the prior mass inside of constraints, in nats."""
        ...

    def posterior(self, draws: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return variables by name, each of shape ``(n, ...)``, at draws of shape ``(n, ...)``."""
        ...

    def sample_stats(self, draws: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return facts about each draw by name, each of shape ``(n,)``."""
        ...

    def observed_data(self) -> dict[str, NDArray[Any]]:
        """Return observed data by name."""
        ...

    def constant_data(self) -> dict[str, NDArray[Any]]:
        """Return constants of the target by name."""
        ...

    def coords_and_dims(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return coordinates, and the names of each variable's dimensions."""
        ...
