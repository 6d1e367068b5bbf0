"""The contracts of the package: small protocols and records that its parts share.

A *state* is a whole population, in the form that suits its target best: rows of
floats for a PyMC model, bit planes for a lattice. Only targets and kernels look
inside a state; samplers use its length and its methods.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.records import PathVariance, UsedSchedule

Floats = NDArray[np.float64]
Streams = NDArray[np.uint64]


# Largest variance of an estimated log likelihood, in square nats, at which a run can be trusted.
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
        """Return an order in which neighbours are similar, for resampling; shape ``(n,)``."""
        ...


@runtime_checkable
class Bridgeable(Protocol):
    """A path for which the pilot fits a density to the target, to use it for a bridge."""

    def fit(self, state: Any) -> Any:
        """Return a density fitted to a population, or None if none can be fitted."""
        ...

    def bridge_work(
        self, fit: Any, state: Any, n: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Return ``log fit - log f_1`` at draws from ``fit`` and at ``state``, in nats.

        The number of draws from ``fit`` is ``n`` or a multiple of it.
        """
        ...


@runtime_checkable
class HasPosterior(Protocol):
    """A path whose target is a density that can be evaluated at any point of R^d."""

    def posterior(self) -> Any:
        """Return the density, or None if it cannot be so; see ``paths.geometric.Posterior``."""
        ...


@dataclass(frozen=True, slots=True)
class MoveInfo:
    """The report of a kernel on one move of the whole population.

    Parameters
    ----------
    acceptance : float
        Mean acceptance probability, from 0 to 1.
    n_evaluations : int
        Density (or gradient) evaluations made.
    n_nan : int
        Proposals rejected because their density was NaN.
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


@runtime_checkable
class Reference(Protocol):
    """A normalised density that annealing may start from, over some coordinates of R^d."""

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Return ``n`` independent exact draws, shape ``(n, d)``."""
        ...

    def log_density(self, x: Floats) -> Floats:
        """Return the normalised log density of every row of ``x``, shape ``(n,)``, in nats."""
        ...


class Kernel(Protocol):
    """Moves a whole population at fixed beta and leaves the density at beta invariant.

    A kernel is immutable: its settings are its fields, and tuning returns another kernel. A kernel
    that moves many members in one machine word may share streams among neighbouring members. Their
    number is its class attribute ``n_together``, which is 1 if left out.
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
        """Return the kernel with its scales moved towards their optimum."""
        ...

    def without_exploration(self) -> Any:
        """Return the kernel as it is used after the pilot, when it no longer tries out settings."""
        ...


@runtime_checkable
class UsesCurvature(Protocol):
    """A tunable kernel that can learn its shape from second derivatives of the density."""

    def with_curvature(self, path: Any, state: Any, beta: float) -> tuple[Any, int]:
        """Return the kernel for a population at ``beta``, after `Tunable.learn`.

        The second result is the number of gradients that this took; 0 if the kernel is unchanged.
        """
        ...


@dataclass(frozen=True, slots=True)
class StageBatch:
    """The result of advancing a population through ``m`` stages.

    Parameters
    ----------
    state : State
        The population after the last stage.
    before, after : object
        The data that the path's ``log_ratio`` and ``energy`` need from the populations before and
        after each stage. From these and inverse temperatures of shape ``(m, 1)``, the path's
        ``weigh`` returns energies and log ratios of shape ``(m, n)``.
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

    This is worthwhile if a stage takes microseconds. Such a kernel is not tunable: a plan holds the
    same object for all of its stages.
    """

    def advance_many(self, path: Any, state: Any, beta: Floats, streams: Streams) -> StageBatch:
        """Advance at every inverse temperature in turn, with the same result as ``advance``.

        The kernel may overwrite ``state``, which must not be used afterwards.
        """
        ...


@runtime_checkable
class PerMemberKernel(Protocol):
    """A kernel that moves a population whose members are at different inverse temperatures.

    Tempering needs this: its chains change their temperatures independently of each other. If a
    move at ``beta = 0`` is an independent draw from the reference, the kernel has the class
    attribute ``draws_reference``, which is True; it is False if left out.
    """

    def advance_each(
        self, path: Any, state: Any, beta: Floats, streams: Streams
    ) -> tuple[Any, MoveInfo]:
        """Move member ``i`` once at ``beta[i]``; it draws from ``streams[i]`` only.

        If all entries of ``beta``, shape ``(n,)``, are equal, the result is that of ``advance``,
        bit for bit.
        """
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule and the frozen kernel of each stage, as found by a pilot.

    Parameters
    ----------
    beta : ndarray, shape (n_stages + 1,)
        Inverse temperatures, strictly rising from 0 to 1.
    kernels : tuple of Kernel, length n_stages
        ``kernels[k]`` moves the population at ``beta[k + 1]``.
    fit : object, optional
        A density fitted to the pilot's last population, for a bridge to the target.
    population : State, optional
        The pilot's last population, at beta 1.
    n_evaluations : int
        Density (or gradient) evaluations that the plan cost.
    schedule : UsedSchedule, optional
        How the inverse temperatures were found; None if a user gave them.
    path_variance : PathVariance, optional
        Variance of the energy along the path, as the pilot found it.
    shares : ndarray, shape (n_stages,), optional
        Number of particles of each stage relative to those of an island; 1 if left out.
    """

    beta: Floats
    kernels: tuple[Kernel, ...]
    fit: Any = None
    population: Any = None
    n_evaluations: int = 0
    schedule: UsedSchedule | None = None
    path_variance: PathVariance | None = None
    shares: Floats | None = None

    @property
    def n_stages(self) -> int:
        """Number of stages."""
        return len(self.kernels)


@dataclass(frozen=True, slots=True)
class AnnealingSetup:
    """How a target is annealed unless the user says otherwise.

    Parameters
    ----------
    path : Path
        The family of densities.
    kernel : Kernel
        The untuned kernel.
    n_pilot : int
        Least number of particles of a pilot.
    n_stages : int, optional
        Number of stages for independent paths whose kernels are not tunable. In this case there is
        no pilot, and a trial run finds the schedule. None if a pilot finds it.
    stepwise : bool
        Whether densities are defined only at the ends of ``n_stages`` equal steps, as on a path
        whose states grow. The schedule then consists of these steps.
    starts : callable, optional
        Returns ``n`` states near the target for reverse paths to relax from, given ``n`` and a
        generator. None if they come from islands of sequential Monte Carlo.
    n_paths : int
        Number of paths that a block moves together.
    even_share : float
        Share of the stages of a learnt schedule that are spread evenly in beta, from 0 to 1, if
        there is no pilot.
    most_draws : int, optional
        Number of paths at which annealing ends that aims at the default error. None for ten times
        the draws of the first round.
    n_evaluations : int
        Density (or gradient) evaluations that the setup itself cost, such as those of the fit of a
        reference.
    effort : float
        Share of the usual number of draws, and of the usual search for modes, that a run begins
        with, from 0 to 1; less than 1 where an evaluation is expensive.
    facts : mapping
        Facts about the target that estimators read from the record: ``estimated_likelihood`` is
        true if the likelihood is estimated.
    """

    path: Path
    kernel: Kernel
    n_pilot: int = 0
    n_stages: int | None = None
    stepwise: bool = False
    starts: Callable[[int, np.random.Generator], NDArray[Any]] | None = None
    n_paths: int = 128
    even_share: float = 0.1
    most_draws: int | None = None
    n_evaluations: int = 0
    effort: float = 1.0
    facts: Mapping[str, Any] = field(default_factory=dict)


class Target(Protocol):
    """What a run needs from a target besides its ``AnnealingSetup``.

    Attributes
    ----------
    n_dim : int
        Number of coordinates of a state.
    log_prior_mass : float
        Log of the prior mass within the constraints, in nats; see ``targets.model``.
    """

    n_dim: int

    @property
    def log_prior_mass(self) -> float:
        """Log of the prior mass within the constraints, in nats."""
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


@runtime_checkable
class FindsSteps(Protocol):
    """A path that finds the length of a step at less cost than by trying out many lengths."""

    def next_beta(self, state: Any, beta: float, ess: float) -> float:
        """Return the next inverse temperature; see ``schedules.next_beta``."""
        ...


@runtime_checkable
class Growing(Protocol):
    """A path whose states grow: see ``paths.growing.GrowingPath``."""

    def reached(self, state: Any, beta: float, streams: NDArray[np.uint64]) -> Any:
        """Return the population with what the density at ``beta`` needs and it does not have yet.

        Member ``i`` draws from ``streams[i]`` only.
        """
        ...

    def part(self, start: float, stop: float) -> str:
        """Return in words what is added between two inverse temperatures, for messages."""
        ...


@runtime_checkable
class Reseedable(Protocol):
    """A path that can make independent states at every ``beta``; see ``samplers.resample_move``.

    Attributes
    ----------
    can_reseed : bool
        Whether it has what it makes them from, such as data.
    """

    can_reseed: bool

    def reseeded(self, n: int, beta: float, n_moves: int, seed: np.random.SeedSequence) -> Any:
        """Return ``n`` independent states that ``n_moves`` moves have brought to ``beta``."""
        ...
