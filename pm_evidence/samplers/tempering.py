"""What parallel and simulated tempering share: blocks of chains, burn-in, record."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import Path, Plan
from pm_evidence.core.progress import Progress, Report, silent
from pm_evidence.core.random import Phase, block_seeds, streams
from pm_evidence.core.records import BlockRecord, Role, RunRecord
from pm_evidence.samplers.sampler import RunContext, SamplerBase
from pm_evidence.samplers.sizes import MOST_TEMPERATURES
from pm_evidence.samplers.tempered_chains import (
    START_MOVES,
    Chains,
    Log,
    Rule,
    Start,
    annealed_start,
)

__all__ = ["TemperedBlock", "Tempering"]

Floats = NDArray[np.float64]

# Largest number of energies that a block records.
_LARGEST_RECORD = 500_000
# Share of the iterations of a block that come before those that are recorded, and their least
# number.
_UNRECORDED, _LEAST_UNRECORDED = 0.25, 20
# Share of the moves of a block that are spent on first states, and bounds of the number of members
# of the population of a ladder.
_STARTING, _PARTICLES = 0.15, (4, 64)


class Tempering(SamplerBase):
    """The base of samplers whose chains move between temperatures.

    A block holds some of the ladders (independent groups of chains). Its chains start from states
    of small annealed populations. After a burn-in, their energies are recorded together with their
    states at the target.
    """

    usual_path = "geometric"
    n_temperatures: int | None = None

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

    @property
    def title(self) -> str:
        """Name of the method in the display of progress."""
        return self.name.replace("_", " ").capitalize()

    @abstractmethod
    def groups(self) -> list[int]:
        """Return the number of ladders of each block of a round."""

    @abstractmethod
    def kept(self, n_ladders: int, n_temperatures: int) -> list[NDArray[np.int64]]:
        """Return the ladders that have a chain at each temperature at the start."""

    @abstractmethod
    def rule(self, plan: Plan, ladder: NDArray[np.int64], rng: np.random.Generator) -> Rule:
        """Return the rule by which chains of these ladders change their temperatures."""

    @abstractmethod
    def iterations(self, draws: int, n_temperatures: int) -> int:
        """Return the number of iterations after which a round has ``draws`` draws, on average."""

    def with_ladders(self, context: RunContext, facts: Mapping[str, Any]) -> RunContext:
        """Return a context whose record will have some facts, and the number of ladders."""
        facts = {**context.setup.facts, "ladders": sum(self.groups()), **facts}
        return replace(context, setup=replace(context.setup, facts=facts))

    def extended(self, context: RunContext, record: RunRecord, draws: int) -> RunRecord:
        """Return the record with another round of ladders."""
        n = self.iterations(draws, len(context.plan.beta))
        first = len(record.of(Role.FORWARD))
        made = self.run_round(context, context.plan, n, first, Phase.FORWARD, self.title)
        return record.extended(Role.FORWARD, made)

    def run_round(
        self,
        context: RunContext,
        plan: Plan,
        n_iterations: int,
        first: int,
        phase: Phase,
        title: str,
    ) -> tuple[BlockRecord, ...]:
        """Run all ladders for some iterations; return their blocks."""
        path, seed = context.setup.path, context.seed
        tasks = [
            TemperedBlock(self, path, plan, first + i, n, n_iterations, seed, phase)
            for i, n in enumerate(self.groups())
        ]
        return context.execute(title, tasks, plan)


@dataclass(frozen=True)
class TemperedBlock:
    """A task for a worker: some of the ladders of a round.

    Parameters
    ----------
    sampler : Tempering
        What is run.
    path : Path
        What is tempered.
    plan : Plan
        Temperatures and kernels.
    block : int
        Index of the block; all random numbers come from ``block_seeds(seed, phase, block)``.
    n_ladders, n_iterations : int
        Number of ladders, and of iterations after the burn-in.
    seed : int
        Seed of the run.
    phase : Phase
        Purpose of the block, which selects its random streams.
    """

    sampler: Tempering
    path: Path
    plan: Plan
    block: int
    n_ladders: int
    n_iterations: int
    seed: int
    phase: Phase

    @property
    def n_burn_in(self) -> int:
        """Number of iterations before the first that is recorded."""
        return max(int(np.ceil(_UNRECORDED * self.n_iterations)), _LEAST_UNRECORDED)

    def __call__(self, report: Report = silent) -> BlockRecord:
        """Run the block."""
        plan, total = self.plan, self.n_burn_in + self.n_iterations
        start, chains, log, rule = self._begun()
        stage = 0
        for i in range(-self.n_burn_in, self.n_iterations):
            chains.move()
            energy = chains.energy
            log.add(i, energy, recorded=i >= 0)
            chains.rung = rule.changed(chains.rung, energy)
            before, stage = stage, (i + self.n_burn_in + 1) * plan.n_stages // total
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

    def _begun(self) -> tuple[Start, Chains, Log, Rule]:
        """Return the chains at their first states, their log, and how they change temperature."""
        plan, n_ladders = self.plan, self.n_ladders
        draw_seed, chain_seed = block_seeds(self.seed, self.phase, self.block)
        chosen = self.sampler.kept(n_ladders, len(plan.beta))
        ladder = np.concatenate(chosen)
        rung = np.repeat(np.arange(len(chosen)), [len(part) for part in chosen]).astype(np.int16)
        moves = (self.n_burn_in + self.n_iterations) * len(rung)
        affordable = _STARTING * moves / (START_MOVES * plan.n_stages * n_ladders)
        n_particles = int(np.clip(affordable, *_PARTICLES))
        seeds = draw_seed, chain_seed.spawn(1)[0]
        start = annealed_start(self.path, plan, chosen, n_ladders, n_particles, seeds)
        own, reference = streams(chain_seed, len(rung)), draw_seed.spawn(1)[0]
        chains = Chains(self.path, plan.beta, plan.kernels, start.state, rung, own, reference)
        every = max(-(-self.n_iterations * len(rung) // _LARGEST_RECORD), 1)
        rule = self.sampler.rule(plan, ladder, np.random.default_rng(chain_seed.spawn(1)[0]))
        return start, chains, Log(chains, ladder, every), rule
