"""Chains that move between temperatures: the loop that all methods of tempering share.

A chain is a state that keeps its identity; its temperature changes. An iteration moves every chain
at its temperature, and then a rule changes the temperatures: parallel tempering exchanges those of
two chains, and simulated tempering draws a new one for each chain.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import Kernel, MoveInfo, Path, PerMemberKernel, Plan
from pm_evidence.core.growing import Growing
from pm_evidence.core.numerics import ess_share
from pm_evidence.core.random import streams
from pm_evidence.core.records import StageTrace, TemperedChains
from pm_evidence.schedules.adaptive import no_support

__all__ = ["START_MOVES", "Chains", "Log", "Rule", "Start", "annealed_start", "check_linear"]

Floats = NDArray[np.float64]
Rungs = NDArray[np.int16]

# Moves of the populations that chains start from, at each temperature.
START_MOVES = 2
# How often a population without any support is drawn again.
_MOST_DRAWN = 100
# Reference draws are made for this many iterations at once: a call may cost as much as many draws.
_POOLED = 16


class Rule(Protocol):
    """How chains change their temperatures."""

    def changed(self, rung: Rungs, energy: Floats) -> Rungs:
        """Return the temperatures of the next iteration.

        Parameters
        ----------
        rung : ndarray of int16, shape (n_chains,)
            Index of the temperature of each chain.
        energy : ndarray, shape (n_chains,)
            Energies of their states, in nats.
        """
        ...


@dataclass
class Chains:
    """Chains at their temperatures.

    Parameters
    ----------
    path : Path
        What is tempered. Its log density is linear in beta.
    beta : ndarray, shape (n_temperatures,)
        Inverse temperatures from 0 to 1.
    kernels : sequence of Kernel
        ``kernels[k]`` moves the chains at ``beta[k + 1]``. Chains at the reference are drawn anew,
        by the kernel itself if its moves at ``beta = 0`` are independent draws.
    state : State
        The chains.
    rung : ndarray of int16, shape (n_chains,)
        Index of the temperature of each chain.
    streams : ndarray, shape (n_chains, 4)
        Stream of each chain.
    seeds : SeedSequence
        For draws from the reference.
    """

    path: Path
    beta: Floats
    kernels: Sequence[Kernel]
    state: Any
    rung: Rungs
    streams: NDArray[np.uint64]
    seeds: np.random.SeedSequence
    n_evaluations: int = 0
    n_nan: int = 0
    accepted: Floats = field(init=False)
    moved: Floats = field(init=False)
    _pool: Any = None
    _taken: int = 0

    def __post_init__(self) -> None:
        self.accepted, self.moved = np.zeros((2, len(self.beta)))
        kernel = self.kernels[0]
        same = all(each is kernel for each in self.kernels)
        # one call moves the chains of all temperatures, or those of all but the reference
        self._at_once = same and isinstance(kernel, PerMemberKernel)
        self._from_reference = self._at_once and getattr(kernel, "draws_reference", False)

    @property
    def energy(self) -> Floats:
        """Energies of the states, in nats."""
        return self.path.energy(self.state, 1.0)

    @property
    def acceptance(self) -> Floats:
        """Mean acceptance probability at each temperature but the first; NaN without moves."""
        rate = self.accepted[1:] / np.where(self.moved[1:] > 0.0, self.moved[1:], np.nan)
        return np.asarray(rate)

    @property
    def mean_acceptance(self) -> float:
        """Mean acceptance probability of all moves so far; NaN if there were none."""
        n = self.moved[1:].sum()
        return float(self.accepted[1:].sum() / n) if n else float("nan")

    def move(self) -> None:
        """Move every chain once, at its temperature."""
        groups = self._groups()
        parts = [self._moved(members) for members in groups]
        if len(parts) == 1:
            self.state = parts[0]
        else:
            self.state = parts[0].join(parts[1:]).take(np.argsort(np.concatenate(groups)))

    def _groups(self) -> list[NDArray[np.int64]]:
        """Return the chains that each call of a kernel moves."""
        if self._from_reference:
            return [np.arange(len(self.rung))]
        call = np.minimum(self.rung, 1) if self._at_once else self.rung
        return [np.flatnonzero(call == k) for k in np.unique(call)]

    def _moved(self, members: NDArray[np.int64]) -> Any:
        """Return the states of chains after a move, which one call of a kernel makes."""
        k = int(self.rung[members[0]])
        if k == 0 and not self._from_reference:
            return self._reference_draws(members.size)
        state, own = self.state.take(members), self.streams[members]
        kernel: Any = self.kernels[k - 1]
        if self._at_once:
            beta = self.beta[self.rung[members]]
            state, info = kernel.advance_each(self.path, state, beta, own)
            self._count(info, np.arange(1, len(self.beta)), members.size)
        else:
            state, info = kernel.advance(self.path, state, float(self.beta[k]), own)
            self._count(info, np.array([k]), members.size)
        self.streams[members] = own
        return state

    def _count(self, info: MoveInfo, rungs: NDArray[np.int64], n: int) -> None:
        self.n_evaluations += info.n_evaluations
        self.n_nan += info.n_nan
        self.accepted[rungs] += info.acceptance * n
        self.moved[rungs] += n

    def _reference_draws(self, n: int) -> Any:
        """Return ``n`` independent states of the reference."""
        if self._pool is None or self._taken + n > len(self._pool):
            self._pool = self.path.draw(max(_POOLED * n, 1), self.seeds.spawn(1)[0])
            self._taken = 0
            self.n_evaluations += len(self._pool)
        taken = self._pool.take(np.arange(self._taken, self._taken + n))
        self._taken += n
        return taken


@dataclass(frozen=True, slots=True)
class Start:
    """First states of chains.

    Parameters
    ----------
    state : State
        States at the first temperature, then those at the second, and so on.
    log_z : ndarray, shape (n_temperatures, n_ladders)
        Log of the normalising constants as the population of each ladder estimates them, in nats.
    n_evaluations, n_nan : int
        Density (or gradient) evaluations, and moves rejected because the density was NaN.
    """

    state: Any
    log_z: Floats
    n_evaluations: int
    n_nan: int


def annealed_start(
    path: Path,
    plan: Plan,
    chosen: Sequence[NDArray[np.int64]],
    n_ladders: int,
    n_particles: int,
    seeds: Sequence[np.random.SeedSequence],
) -> Start:
    """Return first states of the chains of independent ladders, by sequential Monte Carlo.

    A small population is annealed for every ladder. At each temperature one of its members becomes
    the first state of the ladder's chain there. States are thus close to their distributions, modes
    included, and those of different ladders are independent. Only a ladder whose members all have
    likelihood zero gets those of another one, because no kernel moves such states: its population
    has no evidence, which keeps the estimate of log Z unbiased.

    Parameters
    ----------
    path : Path
        What is annealed.
    plan : Plan
        Inverse temperatures and kernels.
    chosen : sequence of ndarray of int64
        Ladders that have a chain at each inverse temperature.
    n_ladders, n_particles : int
        Number of populations, and of members of each.
    seeds : sequence of two SeedSequence
        For draws from the reference, and for everything else.

    Raises
    ------
    NumericalError
        If the likelihood is zero at all of many draws from the reference.
    ValueError
        If the log density is not linear in beta.
    """
    rng = np.random.default_rng(seeds[1].spawn(1)[0])
    own = streams(seeds[1], n_ladders * n_particles)
    state, n_evaluations = _drawn(path, len(own), seeds[0])
    check_linear(path, state)
    first = n_particles * np.arange(n_ladders)

    def members(k: int) -> Any:
        ladders = chosen[k]
        return state.take(first[ladders] + rng.integers(n_particles, size=len(ladders)))

    kept, n_nan = [members(0)], 0
    log_z = np.zeros((len(plan.beta), n_ladders))
    # a population that was drawn again is one that has no evidence
    log_z[0] = 0.0 if n_evaluations == len(own) else -np.inf
    for k, kernel in enumerate(plan.kernels):
        log_weight = path.log_ratio(state, plan.beta[k], plan.beta[k + 1])
        index, log_mean = _resampled(log_weight.reshape(n_ladders, n_particles), rng)
        log_z[k + 1] = log_z[k] + log_mean
        state = state.take(index)
        for _ in range(START_MOVES):
            state, info = kernel.advance(path, state, float(plan.beta[k + 1]), own)
            n_evaluations += info.n_evaluations
            n_nan += info.n_nan
        kept.append(members(k + 1))
    log_z[0] = 0.0
    return Start(kept[0].join(kept[1:]), log_z, n_evaluations, n_nan)


def _drawn(path: Path, n: int, seed: np.random.SeedSequence) -> tuple[Any, int]:
    """Return draws from the reference, one or more in the support, and how many were made."""
    state = path.draw(n, seed)
    for i in range(1, _MOST_DRAWN + 1):
        if np.isfinite(path.energy(state, 0.0)).any():
            return state, i * n
        state = path.draw(n, seed.spawn(1)[0])
    raise no_support(_MOST_DRAWN * n)


def _resampled(log_weight: Floats, rng: np.random.Generator) -> tuple[NDArray[np.int64], Floats]:
    """Return the members that all populations are resampled to, and their log mean weights.

    Systematic resampling of each population, shape ``(n_ladders, n_particles)``. One whose weights
    are all zero is replaced by another one.
    """
    n_ladders, n = log_weight.shape
    top = log_weight.max(axis=1, keepdims=True)
    dead = ~np.isfinite(top[:, 0])
    source = np.arange(n_ladders)
    source[dead] = rng.choice(source[~dead], dead.sum())
    weight = np.exp(log_weight[source] - top[source])
    log_mean = np.log(weight.mean(axis=1)) + top[source, 0]
    log_mean[dead] = -np.inf
    cumulative = np.cumsum(weight, axis=1)
    at = (np.arange(n) + rng.random((n_ladders, 1))) / n * cumulative[:, -1:]
    index = (cumulative[:, None, :] <= at[:, :, None]).sum(axis=2)
    return (n * source[:, None] + index).ravel(), log_mean


def check_linear(path: Path, state: Any) -> None:
    """Raise ValueError unless the log density along a path is linear in beta.

    Parameters
    ----------
    path : Path
        The path.
    state : State
        A population on which this is tested.
    """
    if isinstance(path, Growing):
        raise ValueError(
            "method must not be tempering along a path whose states grow, got a "
            f"{type(path).__name__}, which has no densities between its steps; use method='ais' "
            "or 'arm', or another path."
        )
    energy = path.energy(state, 0.0)
    finite = np.isfinite(energy)
    others = (path.energy(state, 0.37), path.energy(state, 1.0), -path.log_ratio(state, 0.0, 1.0))
    scale = 1e-6 * (1.0 + np.abs(energy[finite]))
    if not all((np.abs(other[finite] - energy[finite]) <= scale).all() for other in others):
        raise ValueError(
            f"path must have a log density that is linear in beta for tempering, got a "
            f"{type(path).__name__}; pass path='geometric', or anneal along this path with "
            "method='ais'."
        )


class Log:
    """Records chains while they run.

    Parameters
    ----------
    chains : Chains
        What is recorded.
    ladder : ndarray of int64, shape (n_chains,)
        Ladder of each chain.
    every : int
        Number of iterations of which one is recorded.
    """

    def __init__(self, chains: Chains, ladder: NDArray[np.int64], every: int) -> None:
        self.chains, self.ladder, self.every = chains, ladder, every
        self.energies: list[Floats] = []
        self.rungs: list[Rungs] = []
        self.draws: list[NDArray[Any]] = []
        self.origins: list[NDArray[np.int64]] = []
        n = len(ladder)
        # the end of the ladder that each chain visited last: -1 reference, 1 target, 0 neither
        self._last = np.zeros(n, np.int8)
        self._restarts, self._round_trips = np.zeros((2, n), np.int64)

    def add(self, iteration: int, energy: Floats, *, recorded: bool) -> None:
        """Add an iteration: chains after their moves, at the temperatures of these."""
        chains = self.chains
        bottom, top = chains.rung == 0, chains.rung == len(chains.beta) - 1
        self._round_trips[bottom & (self._last == 1)] += recorded
        self._restarts[top & (self._last == -1)] += recorded
        self._last[bottom] = -1
        self._last[top & (self._last == -1)] = 1
        if recorded and iteration % self.every == 0:
            self.energies.append(energy)
            self.rungs.append(chains.rung.copy())
            at_target = np.flatnonzero(top)
            self.draws.append(chains.state.take(at_target).to_draws())
            self.origins.append(self.ladder[at_target])

    def result(self) -> TemperedChains:
        """Return the record of the chains."""
        energy, rung = np.array(self.energies), np.array(self.rungs)
        return TemperedChains(
            energy, rung, self.ladder, self._restarts, self._round_trips, self.every
        )

    def target_draws(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the states at the target, ladder after ladder, and their ladders."""
        draws, origin = np.concatenate(self.draws), np.concatenate(self.origins)
        order = np.argsort(origin, kind="stable")
        return draws[order], origin[order]

    def trace(self) -> tuple[StageTrace, tuple[float, float]]:
        """Return diagnostics per stage, and mean and variance of the energy at the target."""
        energy, rung = np.concatenate(self.energies), np.concatenate(self.rungs)
        beta = self.chains.beta
        rows = []
        for k, step in enumerate(np.append(np.diff(beta), 0.0)):
            found = energy[rung == k]
            finite = found[np.isfinite(found)]
            with np.errstate(over="ignore"):  # draws without likelihood may have energies of 1e300
                mean, var = (finite.mean(), finite.var()) if finite.size else (np.nan, np.nan)
            rows.append((mean, var, ess_share(-step * found) if found.size and step else 0.0))
        mean, var, ess = np.array(rows).T
        trace = StageTrace(mean[:-1], var[:-1], ess[:-1], self.chains.acceptance)
        return trace, (float(mean[-1]), float(var[-1]))
