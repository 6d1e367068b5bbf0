"""The nouns of the package, one tiny contract each.

A *state* is a whole population in whatever form its target likes best: rows of
floats for a PyMC model, bit planes for a lattice. Only targets and kernels look
inside one; samplers count, take and join.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "NOISY_VARIANCE",
    "Kernel",
    "LikelihoodEstimator",
    "Line",
    "MoveInfo",
    "Passage",
    "Path",
    "Plan",
    "StageKernel",
    "State",
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

    def fit(self, state: Any) -> Any:
        """Return a density fitted to a population, or None where there is none."""
        ...

    def bridge_work(
        self, fit: Any, state: Any, n: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Return ``log fit - log f_1`` at ``n`` draws from ``fit`` and at ``state``, in nats."""
        ...

    def order(self, state: Any) -> NDArray[np.int64]:
        """Return an order in which neighbours are alike, for resampling; shape ``(n,)``."""
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

    A kernel is frozen: its settings are its fields, and tuning returns another kernel.
    """

    def advance(self, path: Any, state: Any, beta: float, streams: Streams) -> tuple[Any, MoveInfo]:
        """Move every member once; member ``i`` draws from ``streams[i]`` only, which advances."""
        ...

    def learn(self, path: Any, state: Any) -> Self:
        """Return the kernel with its shape learnt from a population."""
        ...

    def adjust(self, info: MoveInfo) -> Self:
        """Return the kernel with its scales moved towards their best."""
        ...

    def frozen(self) -> Self:
        """Return the kernel without any exploration of its own settings."""
        ...

    def reversed(self) -> Self:
        """Return the time reversal with respect to the invariant density."""
        ...

    def settings(self) -> dict[str, float]:
        """Return the scalar settings, for the record."""
        ...


@dataclass(frozen=True, slots=True)
class Passage:
    """What a kernel leaves behind that went through ``m`` stages.

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
class StageKernel(Protocol):
    """A kernel that goes through many stages in one call into compiled code.

    Worth it where a stage takes microseconds. It has nothing to learn: a plan holds one and the
    same object for all of its stages.
    """

    def pass_through(self, path: Any, state: Any, beta: Floats, streams: Streams) -> Passage:
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
    """An unbiased estimate of a likelihood, as a function of parameters and random words.

    Attributes
    ----------
    name : str
        Name of the model's variable.
    n_particles : int
        Particles of an estimate.
    auto : bool
        Whether that number is left to the sampler.
    n_blocks : int
        Words that an estimate is a function of: each makes a part of its random numbers.
    """

    name: str
    n_particles: int
    auto: bool
    n_blocks: int

    def estimate(self, x: Floats, seeds: Streams) -> Floats:
        """Return the log of an estimate for each row of ``x``, shape ``(n,)``, in nats.

        Parameters
        ----------
        x : ndarray, shape (n, n_dim)
            Points on the unconstrained scale.
        seeds : ndarray of uint64, shape (n, n_blocks)
            Random words; the same words give the same estimate.
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
        seeds : ndarray of uint64, shape (n_blocks,)
            Random words.
        parameters : str
            How to name the point.
        """
        ...

    def with_particles(self, n_particles: int) -> Self:
        """Return the estimator with another number of particles."""
        ...

    def with_blocks(self, n_blocks: int) -> Self:
        """Return the estimator with its random numbers cut into so many parts."""
        ...

    def cost(self) -> tuple[float, float]:
        """Return the cost of an estimate without particles, and per particle, counted alike."""
        ...


@dataclass(frozen=True, slots=True)
class Line:
    """What belongs to a target: how it is annealed unless the user says otherwise.

    Parameters
    ----------
    path : Path
        The family of densities.
    kernel : Kernel
        What moves populations, untuned.
    n_pilot : int
        Least number of particles of a pilot.
    n_stages : int, optional
        Number of equal stages for kernels that have nothing to learn; there is no pilot then.
    starts : callable, optional
        Returns ``n`` draws near the target for reverse paths to relax from, given ``n`` and a
        generator; islands of SMC make them where there is none.
    n_paths : int
        Number of paths that a block of annealing moves together.
    """

    path: Path
    kernel: Kernel
    n_pilot: int = 0
    n_stages: int | None = None
    starts: Callable[[int, np.random.Generator], NDArray[Any]] | None = None
    n_paths: int = 128
