"""Parallel tempering, and what all methods of tempering share: chains, burn-in, record."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count
from pm_evidence.core.contracts import (
    Growing,
    Kernel,
    MoveInfo,
    Path,
    PerMemberKernel,
    Plan,
    Streams,
)
from pm_evidence.core.interrupts import Progress, Report, silent
from pm_evidence.core.numerics import ess_share
from pm_evidence.core.random import Phase, block_seeds, streams
from pm_evidence.core.records import (
    BlockRecord,
    Role,
    RunRecord,
    StageTrace,
    TemperedChains,
    UsedSchedule,
)
from pm_evidence.samplers.sampler import (
    MOST_ISLANDS,
    MOST_TEMPERATURES,
    RunContext,
    Sampler,
    block_sizes,
    kernels_along,
)
from pm_evidence.schedules import equalised, no_support, rejection_rates

Floats = NDArray[np.float64]
Rungs = NDArray[np.int16]


# Moves of the populations that chains start from, at each temperature.
START_MOVES = 2
# How often a population without any support is drawn again.
_MOST_DRAWN = 100
# Reference draws are made for this many iterations at once: a call may cost as much as many draws.
_POOLED = 16


# Returns the temperatures of the next iteration, given those of this one and the energies.
TemperatureRule = Callable[[Rungs, Floats], Rungs]


@dataclass
class Chains:
    """Chains at their temperatures."""

    # What is tempered. Its log density is linear in beta.
    path: Path
    beta: Floats  # shape (n_temperatures,): inverse temperatures from 0 to 1
    # ``kernels[k]`` moves the chains at ``beta[k + 1]``. Chains at the reference are drawn anew, by
    # the kernel itself if its moves at ``beta = 0`` are independent draws.
    kernels: Sequence[Kernel]
    state: Any  # the chains
    rung: Rungs  # shape (n_chains,): index of the temperature of each chain
    streams: Streams  # shape (n_chains, 4): stream of each chain
    seeds: np.random.SeedSequence  # for draws from the reference
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
class FirstStates:
    """First states of chains."""

    state: Any  # states at the first temperature, then those at the second, and so on
    # shape (n_temperatures, n_ladders): log of the normalising constants as the population of each
    # ladder estimates them, in nats
    log_z: Floats
    # Density (or gradient) evaluations, and moves rejected because the density was NaN
    n_evaluations: int
    n_nan: int


def annealed_start(
    path: Path,
    plan: Plan,
    chosen: Sequence[NDArray[np.int64]],
    n_ladders: int,
    n_particles: int,
    seeds: Sequence[np.random.SeedSequence],
) -> FirstStates:
    """Return first states of the chains of independent ladders, by sequential Monte Carlo.

    A small population is annealed for every ladder. At each temperature one of its members becomes
    the first state of the ladder's chain there. States are thus close to their distributions, modes
    included, and those of different ladders are independent. Only a ladder whose members all have
    likelihood zero gets those of another one, because no kernel moves such states: its population
    has no evidence, which keeps the estimate of log Z unbiased.
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
    return FirstStates(kept[0].join(kept[1:]), log_z, n_evaluations, n_nan)


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
    """Raise ValueError unless the log density along a path is linear in beta."""
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
    """Records chains while they run."""

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


# Largest number of energies that a block records.
_LARGEST_RECORD = 500_000
# Share of the iterations of a block that come before those that are recorded, and their least
# number.
_UNRECORDED, _LEAST_UNRECORDED = 0.25, 20
# Share of the moves of a block that are spent on first states, and bounds of the number of members
# of the population of a ladder.
_STARTING, _PARTICLES = 0.15, (4, 64)


class Tempering(Sampler):
    """The base of samplers whose chains move between temperatures.

    A block holds some of the ladders (independent groups of chains). Its chains start from states
    of small annealed populations. After a burn-in, their energies are recorded together with their
    states at the target.
    """

    usual_path = "geometric"
    n_temperatures: int | None = None
    n_together: ClassVar[int]  # largest number of ladders of a block

    @property
    def n_ladders(self) -> int:
        """Number of independent ladders."""
        return self.islands

    def check_temperatures(self, beta: Floats) -> None:
        """Check inverse temperatures that do not come from this sampler.

        Parameters
        ----------
        beta : ndarray, shape (n_temperatures,)
            Inverse temperatures that rise from 0 to 1.

        Raises
        ------
        ValueError
            If there are too many, or another number than the sampler was asked for.
        """
        if len(beta) > MOST_TEMPERATURES:
            raise ValueError(
                f"schedule must have at most {MOST_TEMPERATURES:,} inverse temperatures for "
                f"tempering, got {len(beta):,}; pass fewer."
            )
        if self.n_temperatures is not None and self.n_temperatures != len(beta):
            raise ValueError(
                f"n_temperatures must be the number of inverse temperatures of the schedule, "
                f"{len(beta)}, got {self.n_temperatures}; leave one of the two out."
            )

    def groups(self) -> list[int]:
        """Return the number of ladders of each block of a round, of which there are two or more."""
        return block_sizes(self.n_ladders, max(min(self.n_together, self.n_ladders // 2), 1))

    @abstractmethod
    def kept(self, n_ladders: int, n_temperatures: int) -> list[NDArray[np.int64]]:
        """Return the ladders that have a chain at each temperature at the start."""

    @abstractmethod
    def rule(
        self, plan: Plan, ladder: NDArray[np.int64], rng: np.random.Generator
    ) -> TemperatureRule:
        """Return the rule by which chains of these ladders change their temperatures."""

    def units(self, record: RunRecord, size: int) -> int:
        """Return the expected number of draws at the target so far."""
        n = sum(chains.every * chains.energy.size for chains in record.tempered)
        return -(-n // len(record.beta))

    def iterations(self, draws: int, n_temperatures: int) -> int:
        """Return the number of iterations after which a round has ``draws`` draws, on average."""
        n_chains = sum(len(ladders) for ladders in self.kept(self.n_ladders, n_temperatures))
        return max(-(-draws * n_temperatures // n_chains), 1)

    def with_ladders(self, context: RunContext, facts: Mapping[str, Any]) -> RunContext:
        """Return a context whose record will have some facts, and the number of ladders."""
        facts = {**context.setup.facts, "ladders": self.n_ladders, **facts}
        return replace(context, setup=replace(context.setup, facts=facts))

    def extended(self, context: RunContext, record: RunRecord, draws: int) -> RunRecord:
        """Return the record with another round of ladders."""
        n = self.iterations(draws, len(context.plan.beta))
        first = len(record.of(Role.FORWARD))
        made = self.run_round(context, context.plan, n, first, Phase.FORWARD)
        return record.extended(Role.FORWARD, made)

    def run_round(
        self, context: RunContext, plan: Plan, n_iterations: int, first: int, phase: Phase
    ) -> tuple[BlockRecord, ...]:
        """Run all ladders for some iterations; return their blocks."""
        path, seed = context.setup.path, context.seed
        tasks = [
            TemperedBlock(self, path, plan, first + i, n, n_iterations, seed, phase)
            for i, n in enumerate(self.groups())
        ]
        title = self.name.replace("_", " ").capitalize()
        return context.execute("Tuning" if phase == Phase.TUNING else title, tasks, plan)


@dataclass(frozen=True)
class TemperedBlock:
    """A task for a worker: some of the ladders of a round."""

    sampler: Tempering  # what is run
    path: Path  # what is tempered
    plan: Plan  # temperatures and kernels
    # Index of the block; all random numbers come from ``block_seeds(seed, phase, block)``
    block: int
    n_ladders: int  # number of ladders, and of iterations after the burn-in
    n_iterations: int
    seed: int  # seed of the run
    phase: Phase  # purpose of the block, which selects its random streams

    @property
    def n_burn_in(self) -> int:
        """Number of iterations before the first that is recorded."""
        return max(int(np.ceil(_UNRECORDED * self.n_iterations)), _LEAST_UNRECORDED)

    def __call__(self, report: Report = silent) -> BlockRecord:
        """Run the block."""
        plan, n_ladders, total = self.plan, self.n_ladders, self.n_burn_in + self.n_iterations
        draw_seed, chain_seed = block_seeds(self.seed, self.phase, self.block)
        chosen = self.sampler.kept(n_ladders, len(plan.beta))
        ladder = np.concatenate(chosen)
        rung = np.repeat(np.arange(len(chosen)), [len(part) for part in chosen]).astype(np.int16)
        affordable = _STARTING * (total * len(rung)) / (START_MOVES * plan.n_stages * n_ladders)
        n_particles = int(np.clip(affordable, *_PARTICLES))
        seeds = draw_seed, chain_seed.spawn(1)[0]
        start = annealed_start(self.path, plan, chosen, n_ladders, n_particles, seeds)
        own, reference = streams(chain_seed, len(rung)), draw_seed.spawn(1)[0]
        chains = Chains(self.path, plan.beta, plan.kernels, start.state, rung, own, reference)
        log = Log(chains, ladder, max(-(-self.n_iterations * len(rung) // _LARGEST_RECORD), 1))
        changed = self.sampler.rule(plan, ladder, np.random.default_rng(chain_seed.spawn(1)[0]))
        stage = 0
        for i in range(total):
            chains.move()
            energy = chains.energy
            log.add(i - self.n_burn_in, energy, recorded=i >= self.n_burn_in)
            chains.rung = changed(chains.rung, energy)
            before, stage = stage, (i + 1) * plan.n_stages // total
            if stage > before:
                report(Progress(self.block, stage, np.nan, np.nan, chains.mean_acceptance, np.nan))
        draws, origin = log.target_draws()
        trace, end = log.trace()
        return BlockRecord(
            block=self.block,
            work=-start.log_z[-1],
            trace=trace,
            draws=draws,
            end=end,
            origin=origin,
            tempered=log.result(),
            n_evaluations=start.n_evaluations + chains.n_evaluations,
            n_nan=start.n_nan + chains.n_nan,
        )


# Temperatures before the first round of tuning, for targets that no pilot plans.
_FIRST_TEMPERATURES, _MOST_TEMPERATURES = 31, 1000
# Iterations of the first round of tuning, which double, and the largest number of rounds.
_TUNING, _MOST_ROUNDS = 32, 6
# Tuning ends when the barrier changes by less than this share.
_STABLE = 0.1


@dataclass
class Exchange:
    """Exchanges of temperatures between neighbours, in even and odd pairs alternately.

    The deterministic even-odd scheme (Okabe et al. 2001). Proposals of a pair are made in every
    other iteration, which makes chains travel along the ladder instead of diffusing (Syed et al.
    2022).
    """

    beta: Floats  # shape (n_temperatures,): inverse temperatures
    # shape (n_chains,): ladder of each chain. Every ladder has one chain at each temperature.
    ladder: NDArray[np.int64]
    rng: np.random.Generator  # decides on exchanges
    odd: bool = False

    def changed(self, rung: Rungs, energy: Floats) -> Rungs:
        """Return the temperatures after exchanges."""
        n_ladders = len(rung) // len(self.beta)
        chain = np.empty((n_ladders, len(self.beta)), np.int64)
        chain[self.ladder, rung] = np.arange(len(rung))
        colder, first = chain[:, 1 + self.odd :: 2], chain[:, int(self.odd) : -1 : 2]
        self.odd = not self.odd
        step = self.beta[rung[colder]] - self.beta[rung[first]]
        log_ratio = step * (energy[colder] - energy[first])
        exchanged = np.log(self.rng.random(log_ratio.shape)) < log_ratio
        out = rung.copy()
        out[first[exchanged]], out[colder[exchanged]] = (
            rung[colder[exchanged]],
            rung[first[exchanged]],
        )
        return out


@dataclass(frozen=True, kw_only=True)
class ParallelTempering(Tempering):
    """Parallel tempering: chains at all temperatures, which exchange these with each other.

    Each of several independent ladders has one chain at every temperature. After each move,
    neighbours exchange their temperatures with the probability that leaves their joint
    distribution invariant, so that states found at high temperatures reach the posterior. A tuning
    phase places the temperatures so that all exchanges are rejected equally often, until the sum
    of the rejection rates (the communication barrier) is stable. The evidence comes from all
    energies (MBAR), and its error from the spread of the ladders.

    Parameters
    ----------
    n_temperatures : int, optional
        Number of temperatures. By default the number at which about half of the exchanges are
        rejected.
    ladders : int
        Number of independent ladders, at least 2.

    Notes
    -----
    Syed, Bouchard-Cote, Deligiannidis and Doucet (2022), with their Algorithm 4 for the schedule.
    At the reference, states are drawn anew in every iteration.

    Examples
    --------
    >>> import pm_evidence as pe
    >>> dt = pe.sample_evidence(
    ...     pe.mixtures.Gaussian(),
    ...     method=pe.methods.ParallelTempering(ladders=16),
    ...     draws=1600,
    ...     target_mcse=None,
    ...     random_seed=1,
    ...     progressbar=False,
    ... )
    >>> pe.log_evidence(dt).status
    'ok'
    """

    n_temperatures: int | None = None
    ladders: int = 32
    name = "parallel_tempering"
    default_draws = 16_000
    n_together = 16

    def __post_init__(self) -> None:
        if self.n_temperatures is not None:
            check_count("n_temperatures", self.n_temperatures, 2, MOST_TEMPERATURES)
        check_count("ladders", self.ladders, 2, MOST_ISLANDS)

    @property
    def islands(self) -> int:  # type: ignore[override]
        """Number of ladders, which are the chains of the posterior."""
        return self.ladders

    @property
    def n_stages(self) -> int:  # type: ignore[override]
        """Number of steps of a named schedule, and of the first round of tuning."""
        return (self.n_temperatures or _FIRST_TEMPERATURES) - 1

    def size(self, draws: int) -> int:
        """Return the draws of a ladder."""
        return max(-(-draws // self.ladders), 2)

    def first_round(self, size: int) -> int:
        """Return the draws of all ladders."""
        return self.ladders * size

    def unit(self, size: int) -> int:
        """Return the number of ladders: all have equally many draws."""
        return self.ladders

    def kept(self, n_ladders: int, n_temperatures: int) -> list[NDArray[np.int64]]:
        """Return all ladders for each temperature."""
        return [np.arange(n_ladders)] * n_temperatures

    def rule(
        self, plan: Plan, ladder: NDArray[np.int64], rng: np.random.Generator
    ) -> TemperatureRule:
        """Return the rule of exchanges."""
        return Exchange(plan.beta, ladder, rng).changed

    def prepared(self, context: RunContext) -> RunContext:
        """Return the context with temperatures that reject exchanges equally often."""
        plan, used = context.plan, context.plan.schedule
        if used is None or used.name != "adaptive":
            self.check_temperatures(plan.beta)
            return self.with_ladders(context, {})
        beta = plan.beta
        if self.n_temperatures is not None:
            beta = equalised(beta, np.ones(plan.n_stages), self.n_temperatures)
        before, barrier, n_iterations, first, spent = 0.0, 0.0, _TUNING, 0, 0
        for _ in range(_MOST_ROUNDS):
            plan = replace(plan, beta=beta, kernels=kernels_along(context.coarse, beta))
            blocks = self.run_round(context, plan, n_iterations, first, Phase.TUNING)
            first, n_iterations = first + len(blocks), 2 * n_iterations
            spent += sum(block.n_evaluations for block in blocks)
            rates = _rates(blocks, beta)
            before, barrier = barrier, float(rates.sum())
            settled = abs(barrier - before) < _STABLE * barrier
            wanted = int(np.clip(np.ceil(2.0 * barrier) + 2, 4, _MOST_TEMPERATURES))
            n_before, beta = len(beta), equalised(beta, rates, self.n_temperatures or wanted)
            if barrier == 0.0 or (settled and abs(len(beta) - n_before) <= 0.2 * n_before):
                break
        plan = replace(
            plan,
            beta=beta,
            kernels=kernels_along(context.coarse, beta),
            n_evaluations=plan.n_evaluations + spent,
            schedule=UsedSchedule(beta, "equal_rejection", {"barrier": barrier}),
        )
        coarse = replace(context.coarse, n_evaluations=context.coarse.n_evaluations + spent)
        return self.with_ladders(replace(context, plan=plan, coarse=coarse), {})


def _rates(blocks: tuple[BlockRecord, ...], beta: Floats) -> Floats:
    """Return the rejection rate of each pair of neighbours."""
    chains = [block.tempered for block in blocks if block.tempered is not None]
    energy = np.concatenate([found.energy.ravel() for found in chains])
    rung = np.concatenate([found.rung.ravel() for found in chains])
    return rejection_rates(beta, energy, rung)
