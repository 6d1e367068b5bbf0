"""The contract of samplers, and what they share: stages, moves, diagnostics, limits."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count, check_share
from pm_evidence.core.contracts import (
    AnnealingSetup,
    BatchedKernel,
    Growing,
    Kernel,
    MoveInfo,
    Path,
    Plan,
    StageBatch,
    Streams,
)
from pm_evidence.core.interrupts import Interrupted, Progress, Report, silent
from pm_evidence.core.numerics import ess_share, moments, normalised
from pm_evidence.core.random import Phase
from pm_evidence.core.records import BlockRecord, Role, RunRecord, StageTrace
from pm_evidence.kernels.pseudo_marginal import PseudoMarginal
from pm_evidence.schedules import no_support

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ReverseStarts:
    """Posterior draws that reverse paths may start from."""

    draws: NDArray[Any]  # shape (n, ...): in the target's own coordinates
    # shape (n,): draws of different groups are independent; None if all draws are
    group: NDArray[np.int64] | None = None
    probability: Floats | None = None  # shape (n,): probability of each draw; equal if left out
    # Where the draws come from: ``"islands"``; ``"relaxed"``, states near the target that have to
    # relax first; ``"given"`` by the user; or ``"exact"``, an exact draw from the target
    kind: str = "islands"

    @classmethod
    def of_islands(cls, blocks: Sequence[BlockRecord]) -> "ReverseStarts":
        """Return the draws of islands, with probabilities proportional to their evidence."""
        alive = [block for block in blocks if block.draws is not None]
        if not alive:
            raise no_support(len(blocks))
        draws = [np.asarray(block.draws) for block in alive]
        group = np.repeat([block.block for block in alive], [len(part) for part in draws])
        log_weight = -np.repeat([block.work[0] for block in alive], [len(part) for part in draws])
        return cls(np.concatenate(draws), group, normalised(log_weight))

    @property
    def relaxes(self) -> bool:
        """Whether paths first make moves at the target.

        These moves separate paths that share one exact draw, which remain exact, and relax states
        near the target.
        """
        return self.kind in ("exact", "relaxed")

    def take(self, index: NDArray[np.int64]) -> "ReverseStarts":
        """Return the draws at ``index``, of equal probability."""
        group = None if self.group is None else self.group[index]
        return replace(self, draws=self.draws[index], group=group, probability=None)


MOST_ISLANDS = 100_000
MOST_MOVES = 1_000_000  # of one state at one stage
MOST_STAGES = 1_000_000
MOST_TEMPERATURES = 32_767  # of tempered chains, which store their indices in 16 bits


Execute = Callable[[str, Sequence[Any], Plan], tuple[Any, ...]]


@dataclass(frozen=True)
class RunContext:
    """What a sampler needs for a round."""

    setup: AnnealingSetup  # how the target is annealed
    coarse: Plan  # the pilot's plan, and the one that blocks follow
    plan: Plan
    size: int  # particles of an island, or paths of the first round
    seed: int  # seed of all streams
    # Where reverse paths start; None if the sampler has to find such draws
    starts: ReverseStarts | None
    # Runs tasks, such as blocks, given a title for the display, the tasks and the plan that they
    # follow; returns their results in order
    execute: Execute

    def extended(
        self, record: RunRecord, role: Role, title: str, tasks: Sequence[Any], plan: Plan
    ) -> RunRecord:
        """Return the record with the blocks of a role that some tasks make."""
        try:
            return record.extended(role, self.execute(title, tasks, plan))
        except Interrupted as error:
            error.record = record.extended(role, error.finished)
            raise


class Sampler(ABC):
    """What all samplers answer to the questions of a run; the defaults suit independent paths."""

    name: str  # name of the method in results
    default_draws: int = 1000  # number of draws that ``draws=None`` stands for
    islands: int = 1  # independent populations of a round, which are the chains of the posterior
    chain_length: int = 5  # states kept from the chain of each resampled particle of the pilot
    ess: float = 0.5  # effective sample size at every stage of the pilot, as a share
    n_stages: int | None = None  # number of stages of a named schedule, such as ``"linear"``
    uses_pilot: bool = False  # whether a pilot plans the run even if kernels are not tunable
    usual_path: ClassVar[str] = "auto"  # what ``path="auto"`` stands for
    reverse_start: Any = None  # posterior draws of the user's that reverse paths start from
    n_seeds: ClassVar[int | None] = None  # seeds of an estimated likelihood

    def check_populations(self) -> None:
        """Check the options of the pilot and of independent populations."""
        check_count("islands", self.islands, 2, MOST_ISLANDS)
        check_count("chain_length", self.chain_length, 1, MOST_MOVES)
        if self.n_stages is not None:
            check_count("n_stages", self.n_stages, 1, MOST_STAGES)
        check_share("ess", self.ess, 0.5)

    @property
    def annealer(self) -> Self:
        """The sampler itself."""
        return self

    @property
    def likelihood_moves(self) -> PseudoMarginal:
        """The kernel that moves states if the likelihood is estimated."""
        return PseudoMarginal()

    def size(self, draws: int) -> int:
        """Return the number of paths of the first round."""
        return draws

    def first_round(self, size: int) -> int:
        """Return the number of paths of the first round."""
        return size

    def unit(self, size: int) -> int:
        """Return 1: a round may have any number of paths."""
        return 1

    def units(self, record: RunRecord, size: int) -> int:
        """Return the number of forward paths, or of particles of islands, so far."""
        return record.work(Role.FORWARD).size * self.unit(size)

    def follow(self, plan: Plan) -> Plan:
        """Return the plan of the pilot as it is."""
        return plan

    def prepared(self, context: RunContext) -> RunContext:
        """Return the context as it is: the pilot is all the preparation."""
        return context

    @abstractmethod
    def extended(self, context: RunContext, record: RunRecord, draws: int) -> RunRecord:
        """Return the record with another round of ``draws`` particles or paths."""


class Annealer(Sampler):
    """The base of samplers whose blocks anneal from the reference to the target.

    Derive from it and define ``name`` and `run_block`. By default a round consists of blocks of
    independent paths, along the plan that the pilot found.
    """

    @abstractmethod
    def run_block(
        self,
        path: Path,
        plan: Plan,
        block: int,
        n: int,
        seed: int,
        report: Report = silent,
        *,
        phase: Phase = Phase.FORWARD,
    ) -> BlockRecord:
        """Run ``n`` paths or particles from the reference to the target.

        Parameters
        ----------
        path : Path
            What is annealed.
        plan : Plan
            Inverse temperatures, and the kernel of each stage.
        block : int
            Index of the block; all random numbers come from ``block_seeds(seed, phase, block)``.
        n : int
            Number of paths or particles.
        seed : int
            Seed of the run.
        report : callable
            Called with the progress of the block.
        phase : Phase
            Purpose of the block, which selects its random streams.
        """

    def extended(self, context: RunContext, record: RunRecord, draws: int) -> RunRecord:
        """Return the record with ``draws`` more paths."""
        return self.forward(context, record, draws, context.setup.n_paths)

    def forward(self, context: RunContext, record: RunRecord, draws: int, size: int) -> RunRecord:
        """Return the record with ``draws`` more paths or particles, in blocks of ``size``."""
        first, path = len(record.of(Role.FORWARD)), context.setup.path
        tasks = [
            ForwardBlock(self, path, context.plan, first + i, n, context.seed)
            for i, n in enumerate(block_sizes(draws, size))
        ]
        return context.extended(record, Role.FORWARD, self.name.upper(), tasks, context.plan)


@dataclass(frozen=True)
class ForwardBlock:
    """A task for a worker: one block from the reference to the target."""

    sampler: Annealer
    path: Path
    plan: Plan
    block: int
    n: int
    seed: int
    phase: Phase = Phase.FORWARD

    def __call__(self, report: Report = silent) -> BlockRecord:
        """Run the block."""
        return self.sampler.run_block(
            self.path, self.plan, self.block, self.n, self.seed, report, phase=self.phase
        )


def block_sizes(total: int, size: int) -> list[int]:
    """Return the sizes of the blocks of a round with ``total`` members."""
    full, rest = divmod(total, size)
    return [size] * full + [rest] * (rest > 0)


# Largest number of stages of a stretch times members; 8 stages are always allowed. Progress is
# reported, and energies are kept in memory, for one stretch at a time. Larger arrays of doubles
# would be returned to the operating system each time, which costs more than filling them.
_LARGEST, _FEWEST = 32_000, 8


def kernels_along(plan: Plan, beta: Floats) -> tuple[Kernel, ...]:
    """Return kernels for a finer schedule: those of the plan's stages in which its stages end."""
    stage = np.searchsorted(plan.beta[1:-1], beta[1:])
    return tuple(plan.kernels[k] for k in stage)


def stretches(plan: Plan, n: int) -> Iterator[tuple[Kernel, Floats]]:
    """Cut a plan into stretches of stages that one call of a kernel moves ``n`` members through."""
    most, first = max(_LARGEST // n, _FEWEST), 0
    while first < plan.n_stages:
        kernel, stop = plan.kernels[first], first + 1
        if isinstance(kernel, BatchedKernel):
            longest = min(first + most, plan.n_stages)
            while stop < longest and plan.kernels[stop] is kernel:
                stop += 1
        yield kernel, plan.beta[first : stop + 1]
        first = stop


def passed(
    kernel: Kernel, path: Any, state: Any, beta: Floats, streams: Streams, *, back: bool = False
) -> tuple[StageBatch, Floats, Floats]:
    """Go through the ``m`` stages of a stretch; return energies and log ratios, one row per stage.

    Forward, states are weighed and then moved. Back, they are moved by the reversed kernel and then
    weighed: energies and log ratios are those of the forward direction.
    """
    at, kernel = (beta[:0:-1], kernel.reversed()) if back else (beta[1:], kernel)
    start, stop = (beta[-2::-1], at) if back else (beta[:-1], at)
    if len(at) > 1:
        assert isinstance(kernel, BatchedKernel)
        batch = kernel.advance_many(path, state, at, streams)
        visited = batch.after if back else batch.before
        return batch, *path.weigh(visited, start[:, None], stop[:, None])
    first, last = float(start[0]), float(stop[0])
    after, info = kernel.advance(path, state, float(at[0]), streams)
    acceptance = np.array([info.acceptance])
    batch = StageBatch(after, state, after, acceptance, info.n_evaluations, info.n_nan)
    visited = after if back else state
    return batch, path.energy(visited, first)[None], path.log_ratio(visited, first, last)[None]


Watch = Callable[[Kernel, MoveInfo], Kernel]


@runtime_checkable
class MovesRepeatedly(Protocol):
    """A kernel that moves a population several times in one call, which takes less time."""

    def advance_repeatedly(
        self, path: Any, state: Any, beta: float, n_moves: int, streams: Streams
    ) -> tuple[Any, MoveInfo]:
        """Move every member as ``n_moves`` calls of `Kernel.advance` would.

        The first result holds the given states, those after the first move, and so on, as one
        population; the second is the report of all moves together.
        """
        ...


def grow_chains(
    path: Path,
    kernel: Kernel,
    start: Any,
    beta: float,
    length: int,
    streams: Streams,
    watch: Watch | None = None,
) -> tuple[Any, MoveInfo]:
    """Run every member of ``start`` as a chain and keep all its states."""
    if isinstance(path, Growing):
        start = path.reached(start, beta, streams)
    if watch is None and isinstance(kernel, MovesRepeatedly):
        chains, info = kernel.advance_repeatedly(path, start, beta, max(length - 1, 1), streams)
        return chains.take(np.arange(len(start) if length == 1 else 0, len(chains))), info
    states, infos = [start], []
    for _ in range(max(length - 1, 1)):
        state, info = kernel.advance(path, states[-1], beta, streams)
        states.append(state)
        infos.append(info)
        kernel = kernel if watch is None else watch(kernel, info)
    kept = states[-1:] if length == 1 else states
    return kept[0].join(kept[1:]), summed(infos)


def summed(infos: list[MoveInfo]) -> MoveInfo:
    """Return the report of several moves together."""
    return MoveInfo(
        acceptance=float(np.mean([info.acceptance for info in infos])),
        n_evaluations=sum(info.n_evaluations for info in infos),
        n_nan=sum(info.n_nan for info in infos),
    )


@dataclass
class Tracer:
    """Collects the diagnostics of a block stage by stage, and reports them.

    Parameters
    ----------
    block : int
        Index of the block.
    report : callable
        Called with the progress of the block.
    n_evaluations, n_nan : int
        Density evaluations so far, and how many of them were NaN.
    """

    block: int
    report: Report
    n_evaluations: int = 0
    n_nan: int = 0
    # A few states of each stage, for a survey
    visited: list[NDArray[Any]] = field(default_factory=list, init=False)
    _rows: list[tuple[float, ...]] = field(default_factory=list, init=False)

    @property
    def n_stages(self) -> int:
        """Stages so far."""
        return len(self._rows)

    def add(
        self,
        beta: float,
        energy: Floats,
        log_weight: Floats,
        info: MoveInfo,
        log_z: float,
        carried: Floats | None = None,
        *,
        counted: bool = False,
    ) -> None:
        """Record a stage that ended at ``beta``.

        Parameters
        ----------
        beta : float
            Inverse temperature at the end of the stage.
        energy : ndarray, shape (n,)
            Energies at its beginning.
        log_weight : ndarray, shape (n,)
            Incremental log weights of the stage.
        info : MoveInfo
            Report of the moves.
        log_z : float
            Estimate of the log evidence so far.
        carried : ndarray, shape (n,), optional
            Log weights with which particles enter the stage; None means equal weights.
        counted : bool
            Whether to record the number of particles.
        """
        shares = np.full((2, 1), ess_share(log_weight))
        particles = len(log_weight) if counted else np.nan
        rate = np.array([info.acceptance])
        batch = StageBatch(None, None, None, rate, info.n_evaluations, info.n_nan)
        if carried is not None and np.ptp(carried) > 0.0:
            weight = normalised(carried)
            found = _weighted_moments(energy, weight)
            alive = weight > 0.0
            ratio = np.exp(log_weight[alive] - log_weight[alive].max())
            shares[0] = (weight[alive] @ ratio) ** 2 / (weight[alive] @ ratio**2)
            shares[1] = ess_share(carried + log_weight)
        else:
            found = moments(energy[None])
        self._write(np.array([beta]), found, shares, batch, log_z, particles)

    def add_many(
        self, beta: Floats, energy: Floats, shares: Floats, batch: StageBatch, log_z: float
    ) -> None:
        """Record ``m`` stages at once.

        Energies have shape ``(m, n)``. Effective shares have shape ``(2, m)``: those of the
        incremental weights, and of the accumulated ones.
        """
        self._write(beta, moments(energy), shares, batch, log_z)

    def _write(
        self,
        beta: Floats,
        mean_and_var: tuple[Floats, Floats],
        shares: Floats,
        batch: StageBatch,
        log_z: float,
        particles: float = np.nan,
    ) -> None:
        (mean, var), (ess, path_ess) = mean_and_var, shares
        counts, reached = np.full(len(mean), particles), np.full(len(mean), np.nan)
        reached[-1] = log_z
        columns = mean, var, ess, batch.acceptance, path_ess, counts, reached
        self._rows.extend(zip(*columns, strict=True))
        self.n_evaluations += batch.n_evaluations
        self.n_nan += batch.n_nan
        at, acceptance = float(beta[-1]), float(batch.acceptance[-1])
        self.report(Progress(self.block, self.n_stages, at, float(ess[-1]), acceptance, log_z))

    def trace(self, n_stages: int, *, backwards: bool = False) -> StageTrace:
        """Return the trace over ``n_stages``; NaN for stages that the block did not reach.

        Stages are counted from the reference, also if the block ran ``backwards``.
        """
        columns = np.full((7, n_stages), np.nan)
        if self._rows:
            columns[:, : self.n_stages] = np.array(self._rows).T
        return StageTrace(*(columns[:, ::-1] if backwards else columns))


def _weighted_moments(energy: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of the finite energies of positive weight, each of shape ``(1,)``.

    Both are NaN if there are none, as in ``numerics.moments``.
    """
    counted = (weight > 0.0) & np.isfinite(energy)
    if not counted.any():
        return np.full(1, np.nan), np.full(1, np.nan)
    energy, weight = energy[counted], weight[counted]
    mean = np.average(energy, weights=weight)
    return np.array([mean]), np.array([np.average((energy - mean) ** 2, weights=weight)])


def kernel_settings(plan: Plan) -> Mapping[str, Floats]:
    """Return the settings of the kernel of every stage, each of shape ``(n_stages,)``."""
    rows = [kernel.settings() for kernel in plan.kernels]
    return {key: np.array([row[key] for row in rows]) for key in rows[0]} if rows else {}
