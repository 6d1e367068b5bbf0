"""The contract of samplers, which extend the record of a run by rounds of blocks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from pm_evidence.core.contracts import AnnealingSetup, Path, Plan
from pm_evidence.core.interrupts import Interrupted
from pm_evidence.core.progress import Report, silent
from pm_evidence.core.random import Phase
from pm_evidence.core.records import BlockRecord, Role, RunRecord
from pm_evidence.kernels.pseudo_marginal import PseudoMarginal
from pm_evidence.samplers.reverse_starts import ReverseStarts

__all__ = ["Annealer", "ForwardBlock", "RunContext", "Sampler", "SamplerBase", "block_sizes"]

Execute = Callable[[str, Sequence[Any], Plan], tuple[Any, ...]]


@dataclass(frozen=True)
class RunContext:
    """What a sampler needs for a round.

    Parameters
    ----------
    setup : AnnealingSetup
        How the target is annealed.
    coarse, plan : Plan
        The pilot's plan, and the one that blocks follow.
    size : int
        Particles of an island, or paths of the first round.
    seed : int
        Seed of all streams.
    starts : ReverseStarts or None
        Where reverse paths start; None if the sampler has to find such draws.
    execute : callable
        Runs tasks, such as blocks, given a title for the display, the tasks and the plan that they
        follow; returns their results in order.
    """

    setup: AnnealingSetup
    coarse: Plan
    plan: Plan
    size: int
    seed: int
    starts: ReverseStarts | None
    execute: Execute

    def extended(
        self, record: RunRecord, role: Role, title: str, tasks: Sequence[Any], plan: Plan
    ) -> RunRecord:
        """Return the record with the blocks of a role that some tasks make.

        Raises
        ------
        Interrupted
            Upon Ctrl-C, with the record with the first blocks, up to one that had not finished.
        """
        try:
            return record.extended(role, self.execute(title, tasks, plan))
        except Interrupted as error:
            error.record = record.extended(role, error.finished)
            raise


class Sampler(Protocol):
    """A method of `sample_evidence`."""

    @property
    def name(self) -> str:
        """Name of the method."""
        ...

    @property
    def default_draws(self) -> int:
        """Number of draws that ``draws=None`` stands for."""
        ...

    @property
    def islands(self) -> int:
        """Number of independent populations of a round."""
        ...

    @property
    def chain_length(self) -> int:
        """Number of states kept from the chain of each resampled particle of the pilot."""
        ...

    @property
    def ess(self) -> float:
        """Effective sample size at every stage of the pilot, as a share of its particles."""
        ...

    @property
    def n_stages(self) -> int | None:
        """Number of stages of a named schedule, such as ``"linear"``."""
        ...

    @property
    def uses_pilot(self) -> bool:
        """Whether a pilot plans the run even if kernels are not tunable."""
        ...

    @property
    def usual_path(self) -> str:
        """Name of the path that ``path="auto"`` stands for; ``"auto"`` leaves it to the target."""
        ...

    @property
    def reverse_start(self) -> Any:
        """Posterior draws, given by the user, that reverse paths start from, or None."""
        ...

    @property
    def n_seeds(self) -> int | None:
        """Number of seeds of an estimated likelihood; None leaves it unchanged."""
        ...

    @property
    def annealer(self) -> "Sampler":
        """The sampler that runs the blocks: this one, or another with its settings."""
        ...

    @property
    def likelihood_moves(self) -> PseudoMarginal:
        """The kernel that moves states if the likelihood is estimated."""
        ...

    def size(self, draws: int) -> int:
        """Return the particles of an island, or the paths of the first round."""
        ...

    def first_round(self, size: int) -> int:
        """Return the number of particles or paths of the first round."""
        ...

    def unit(self, size: int) -> int:
        """Return the number that the size of a round must be a multiple of."""
        ...

    def units(self, record: RunRecord, size: int) -> int:
        """Return the number of particles or forward paths so far."""
        ...

    def follow(self, plan: Plan) -> Plan:
        """Return the plan of the pilot as the blocks follow it."""
        ...

    def prepared(self, context: RunContext) -> RunContext:
        """Return what rounds need after preparations that use blocks of their own."""
        ...

    def extended(self, context: RunContext, record: RunRecord, draws: int) -> RunRecord:
        """Return the record with another round of ``draws`` particles or paths."""
        ...


class SamplerBase(ABC):
    """What samplers have in common: the usual answers to the questions of a run.

    Attributes
    ----------
    name : str
        Name of the method in results.
    default_draws : int
        Number of draws that ``draws=None`` stands for.
    islands : int
        Number of independent populations of a round, which are the chains of the posterior.
    chain_length : int
        Number of states kept from the chain of each resampled particle of the pilot.
    ess : float
        Effective sample size at every stage of the pilot, as a share of its particles.
    n_stages : int or None
        Number of stages of a named schedule, such as ``"linear"``.
    uses_pilot : bool
        Whether a pilot plans the run even if kernels are not tunable.
    usual_path : str
        Name of the path that ``path="auto"`` stands for; ``"auto"`` leaves it to the target.
    reverse_start : DataTree, ndarray or None
        Posterior draws, given by the user, that reverse paths start from.
    n_seeds : int or None
        Number of seeds of an estimated likelihood; None leaves it unchanged.
    """

    name: str
    default_draws: int = 1000
    islands: int = 1
    chain_length: int = 5
    ess: float = 0.5
    n_stages: int | None = None
    uses_pilot: bool = False
    usual_path: ClassVar[str] = "auto"
    reverse_start: Any = None
    n_seeds: ClassVar[int | None] = None

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
        """Return the number of forward paths so far."""
        return record.work(Role.FORWARD).size

    def follow(self, plan: Plan) -> Plan:
        """Return the plan of the pilot as it is."""
        return plan

    def prepared(self, context: RunContext) -> RunContext:
        """Return the context as it is: the pilot is all the preparation."""
        return context

    @abstractmethod
    def extended(self, context: RunContext, record: RunRecord, draws: int) -> RunRecord:
        """Return the record with another round of ``draws`` particles or paths."""


class Annealer(SamplerBase):
    """The base of samplers whose blocks anneal from the reference to the target.

    Derive from it and define ``name`` and `run_block`; its other attributes are those of
    `SamplerBase`. By default a round consists of blocks of independent paths, along the plan that
    the pilot found.
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


class _Runs(Protocol):
    def run_block(
        self, path: Path, plan: Plan, block: int, n: int, seed: int, report: Report, *, phase: Phase
    ) -> BlockRecord: ...


@dataclass(frozen=True)
class ForwardBlock:
    """A task for a worker: one block from the reference to the target."""

    sampler: _Runs
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
