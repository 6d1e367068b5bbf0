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
from pm_evidence.samplers.sampler import Annealer, RunContext
from pm_evidence.samplers.tempered_chains import START_MOVES, Chains, Log, Rule, annealed_start

__all__ = ["UNRECORDED", "Tempering"]

Floats = NDArray[np.float64]

# Largest number of energies that a block records.
_LARGEST_RECORD = 500_000
# Share of the iterations of a block that come before those that are recorded, and their least
# number.
UNRECORDED, _LEAST_UNRECORDED = 0.25, 20
# Share of the moves of a block that are spent on first states, and bounds of the number of members
# of the population of a ladder.
_STARTING, _PARTICLES = 0.15, (4, 64)
_REPORTS = 50  # of the progress of a block


class Tempering(Annealer):
    """The base of samplers whose chains move between temperatures.

    A block holds some of the ladders (independent groups of chains). Its chains start from states
    of small annealed populations. After a burn-in, their energies are recorded together with their
    states at the target.
    """

    usual_path = "geometric"

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
        made = self.run_round(context, context.plan, n, first, Phase.FORWARD, _TITLES[self.name])
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
        tasks = [
            _TemperedBlock(
                self, context.setup.path, plan, first + i, n, n_iterations, context.seed, phase
            )
            for i, n in enumerate(self.groups())
        ]
        return context.execute(title, tasks, plan)

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
        """Run the ladders of one block until they have ``n`` draws, on average."""
        n_ladders = self.groups()[0]
        share = n * sum(self.groups()) // n_ladders
        n_iterations = self.iterations(share, len(plan.beta))
        return self.run_ladders(path, plan, block, n_ladders, n_iterations, seed, report, phase)

    def run_ladders(
        self,
        path: Path,
        plan: Plan,
        block: int,
        n_ladders: int,
        n_iterations: int,
        seed: int,
        report: Report,
        phase: Phase,
    ) -> BlockRecord:
        """Run some ladders for some iterations after their burn-in."""
        draw_seed, chain_seed = block_seeds(seed, phase, block)
        chosen = self.kept(n_ladders, len(plan.beta))
        ladder = np.concatenate(chosen)
        rung = np.repeat(np.arange(len(chosen)), [len(part) for part in chosen]).astype(np.int16)
        n_burn_in = max(int(np.ceil(UNRECORDED * n_iterations)), _LEAST_UNRECORDED)
        moves = (n_burn_in + n_iterations) * len(rung)
        n_particles = int(_STARTING * moves / (START_MOVES * plan.n_stages * n_ladders))
        start = annealed_start(
            path,
            plan,
            chosen,
            n_ladders,
            int(np.clip(n_particles, *_PARTICLES)),
            (draw_seed, chain_seed.spawn(1)[0]),
        )
        chains = Chains(
            path,
            plan.beta,
            plan.kernels,
            start.state,
            rung,
            streams(chain_seed, len(rung)),
            draw_seed.spawn(1)[0],
        )
        every = max(-(-n_iterations * len(rung) // _LARGEST_RECORD), 1)
        log = Log(chains, ladder, every)
        rule = self.rule(plan, ladder, np.random.default_rng(chain_seed.spawn(1)[0]))
        last, stage = n_burn_in + n_iterations - 1, 0
        for i in range(-n_burn_in, n_iterations):
            chains.move()
            energy = chains.energy
            log.add(i, energy, recorded=i >= 0)
            chains.rung = rule.changed(chains.rung, energy)
            reached = (i + n_burn_in + 1) * plan.n_stages // (last + 1)
            if reached > stage and reached * _REPORTS // plan.n_stages > stage * _REPORTS // (
                plan.n_stages
            ):
                acceptance = float(np.nanmean(chains.acceptance))
                report(Progress(block, reached, 1.0, np.nan, acceptance, np.nan))
                stage = reached
        draws, origin = log.target_draws()
        trace, end = log.trace()
        return BlockRecord(
            block=block,
            work=-start.log_z[-1],
            trace=trace,
            draws=draws,
            end=end,
            origin=origin,
            tempered=log.result(),
            n_evaluations=start.n_evaluations + chains.n_evaluations,
            n_nan=chains.n_nan,
        )


_TITLES = {
    "parallel_tempering": "Parallel tempering",
    "simulated_tempering": "Simulated tempering",
}


@dataclass(frozen=True)
class _TemperedBlock:
    """A task for a worker: some ladders."""

    sampler: Tempering
    path: Path
    plan: Plan
    block: int
    n_ladders: int
    n_iterations: int
    seed: int
    phase: Phase

    def __call__(self, report: Report = silent) -> BlockRecord:
        return self.sampler.run_ladders(
            self.path,
            self.plan,
            self.block,
            self.n_ladders,
            self.n_iterations,
            self.seed,
            report,
            self.phase,
        )
