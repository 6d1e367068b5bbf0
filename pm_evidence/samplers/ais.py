"""Annealed importance sampling: independent paths from prior to posterior, and back."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_count, described
from pm_evidence.core.contracts import Path, Plan
from pm_evidence.core.interrupts import Report, silent
from pm_evidence.core.numerics import add_up, log_mean_exp
from pm_evidence.core.random import Phase, block_seeds, generator, streams
from pm_evidence.core.records import BlockRecord, Role, RunRecord
from pm_evidence.samplers.sampler import (
    MOST_MOVES,
    Annealer,
    ForwardBlock,
    ReverseStarts,
    RunContext,
    Tracer,
    block_sizes,
    kernels_along,
    passed,
    stretches,
)
from pm_evidence.samplers.smc import SMC
from pm_evidence.schedules import refine, varopt

Floats = NDArray[np.float64]

# The number of stages is chosen so that the work would have this variance if moves were perfect.
# Imperfect moves increase it, and above about 4 most of the information in the paths is lost.
_IDEAL_VARIANCE = 1.5
_STAGES = (20, 5000)
# Share of the stages that lies evenly. On seven models (benchmarks/schedules.py and Student-t
# groups) 0.1 was as good as 0.01; 0.35 increased the variance of the work on three of them.
_FLOOR = 0.1
# Islands that reverse paths start from hold at least this many times as many draws as there are
# paths, and more if that costs no more than this share of the paths: if the islands have the modes
# in wrong proportions, so have all reverse paths.
_SURPLUS, ISLANDS_SHARE = 1.5, 0.25
SMALL_ISLAND, _LARGE = 100, 1000  # particles


@dataclass(frozen=True, kw_only=True)
class AIS(Annealer):
    """Annealed importance sampling, forward and reverse (Neal 2001; Habeck 2017).

    A pilot learns a schedule and a kernel for each of its stages. Its stages are then divided into
    finer steps, along which independent paths run from the prior to the posterior. The reversed
    kernels run paths from posterior draws back to the prior. The work of both directions gives
    Bennett's estimate, and each direction checks the other.

    Parameters
    ----------
    direction : str
        ``"both"`` or ``"forward"``.
    n_stages : int, optional
        Approximate number of stages. By default it is the number for which the work would have a
        variance of 1.5 if every move were perfect, estimated from the pilot.
    ess : float
        Effective sample size at every stage of the pilot, as a share of its particles.
    reverse_start : DataTree or ndarray, optional
        Posterior draws of the same model and data, for example from ``pm.sample``, that reverse
        paths start from. Divergences among them, or an R-hat above 1.05, give a warning. By default
        they come from independent islands of sequential Monte Carlo. For a native target: the
        result of an earlier run, or an array of states, shape ``(n, ...)``.
    islands : int
        Number of these islands, at least 2.
    relaxation : int
        Number of moves at the target before a reverse path begins, if it starts from a state near
        the target (native targets) or from an exact draw that it shares with other paths
        (`simulate_and_certify`).
    """

    direction: str = "both"
    n_stages: int | None = None
    ess: float = 0.5
    reverse_start: Any = None
    islands: int = 16
    relaxation: int = 100
    name = "ais"

    def __post_init__(self) -> None:
        check_choice("direction", self.direction, ("both", "forward"))
        self.check_populations()
        check_count("relaxation", self.relaxation, 0, MOST_MOVES)
        given = self.reverse_start
        if not (given is None or isinstance(given, np.ndarray) or hasattr(given, "children")):
            raise TypeError(
                "reverse_start must be a DataTree with posterior draws, or an array of states of a "
                f"native target, got {described(given)}; pass what pm.sample returned."
            )

    def extended(self, context: RunContext, record: RunRecord, draws: int) -> RunRecord:
        """Return the record with ``draws`` more paths in each direction."""
        if self.direction == "forward":
            return super().extended(context, record, draws)
        starts = context.starts
        if starts is None and context.setup.starts is not None:
            rng = generator(context.seed, Phase.START, len(record.of(Role.REVERSE)))
            starts = ReverseStarts(context.setup.starts(draws, rng), kind="relaxed")
        elif starts is None:
            first = len(record.of(Role.ISLAND))
            record = self._islands(context, record, draws)
            starts = ReverseStarts.of_islands(record.of(Role.ISLAND)[first:])
        return self._reverse(context, super().extended(context, record, draws), draws, starts)

    def _islands(self, context: RunContext, record: RunRecord, draws: int) -> RunRecord:
        """Return the record with islands from which ``draws`` reverse paths can start."""
        islands = SMC(islands=self.islands, ess=self.ess, chain_length=self.chain_length)
        if context.setup.n_stages is not None:  # many stages, at most of which weights are even
            islands = replace(islands, chain_length=1, resample_below=self.ess)
        affordable = ISLANDS_SHARE * 2.0 * draws * context.plan.n_stages / context.coarse.n_stages
        n = int(np.clip(max(affordable, _SURPLUS * draws) / self.islands, SMALL_ISLAND, _LARGE))
        path, plan, first = context.setup.path, context.coarse, len(record.of(Role.ISLAND))
        tasks = [
            ForwardBlock(islands, path, plan, first + i, n, context.seed, Phase.ISLAND)
            for i in range(self.islands)
        ]
        made = context.execute("Islands", tasks, plan)
        return record.extended(Role.ISLAND, made)

    def _reverse(
        self, context: RunContext, record: RunRecord, draws: int, starts: ReverseStarts
    ) -> RunRecord:
        first, n, path = len(record.of(Role.REVERSE)), len(starts.draws), context.setup.path
        rng = generator(context.seed, Phase.START, first)
        # of islands whose weights are far apart, few draws have a probability above zero
        possible = n if starts.probability is None else np.count_nonzero(starts.probability)
        chosen = rng.choice(n, draws, replace=bool(draws > possible), p=starts.probability)
        ends = np.cumsum(block_sizes(draws, context.setup.n_paths))[:-1]
        tasks = [
            _ReverseBlock(self, path, context.plan, first + i, starts.take(part), context.seed)
            for i, part in enumerate(np.split(chosen, ends))
        ]
        return context.extended(record, Role.REVERSE, "Reverse", tasks, context.plan)

    def follow(self, plan: Plan) -> Plan:
        """Return the plan along finer steps, with the kernels of the pilot's stages.

        Where the pilot knows the variance of the energy, steps are those of `varopt` with a tenth
        of them spread evenly; otherwise every stage is cut into equal parts.
        """
        # if the work is normal, a stage with an effective share ``ess`` has the variance
        # -log(ess), and dividing the stage into r equal parts reduces this by the factor r
        ideal = plan.n_stages**2 * -np.log(self.ess) / _IDEAL_VARIANCE
        n_stages = self.n_stages or int(np.clip(ideal, *_STAGES))
        beta, found = refine(plan.beta, n_stages), plan.path_variance
        if found is None:
            parts = (len(beta) - 1) // plan.n_stages
            return Plan(beta, tuple(kernel for kernel in plan.kernels for _ in range(parts)))
        beta = varopt(found.beta, found.variance, len(beta) - 1, floor=_FLOOR)
        return Plan(beta, kernels_along(plan, beta))

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
        """Run ``n`` paths from the reference to the target."""
        draw_seed, chain_seed = block_seeds(seed, phase, block)
        chains = streams(chain_seed, n)
        state = path.draw(n, draw_seed)
        log_weight, tracer = np.zeros(n), Tracer(block, report, n)
        for kernel, beta in stretches(plan, n):
            batch, energy, ratio = passed(kernel, path, state, beta, chains)
            log_weight, *shares = add_up(log_weight, ratio)
            tracer.add_many(beta[1:], energy, np.array(shares), batch, log_mean_exp(log_weight))
            state = batch.state
        return BlockRecord(
            block=block,
            work=-log_weight,
            trace=tracer.trace(plan.n_stages),
            draws=state.to_draws(),
            log_weight=log_weight,
            n_evaluations=tracer.n_evaluations,
            n_nan=tracer.n_nan,
        )

    def run_reverse(
        self,
        path: Path,
        plan: Plan,
        block: int,
        start: NDArray[Any],
        origin: NDArray[np.int64] | None,
        seed: int,
        report: Report = silent,
        *,
        n_moves: int = 0,
    ) -> BlockRecord:
        """Run a path from every draw in ``start`` back to the reference.

        The reversal of ``run_block``: the reversed kernels are applied in the opposite order, each
        before the change of ``beta`` that precedes it on forward paths. Before that, ``n_moves``
        moves are made at the target, which separate paths that start from the same draw.
        """
        n = len(start)
        chains = streams(block_seeds(seed, Phase.REVERSE, block)[1], n)
        state = path.at(start)
        work, tracer = np.zeros(n), Tracer(block, report, n)
        for _ in range(n_moves):
            state, info = plan.kernels[-1].advance(path, state, 1.0, chains)
            tracer.n_evaluations += info.n_evaluations
        for kernel, beta in list(stretches(plan, n))[::-1]:
            batch, energy, ratio = passed(kernel, path, state, beta, chains, back=True)
            work, *shares = add_up(work, -ratio)
            tracer.add_many(beta[:0:-1], energy, np.array(shares), batch, -log_mean_exp(work))
            state = batch.state
        return BlockRecord(
            block=block,
            work=work,
            trace=tracer.trace(plan.n_stages, backwards=True),
            origin=origin,
            n_evaluations=tracer.n_evaluations,
            n_nan=tracer.n_nan,
        )


@dataclass(frozen=True)
class _ReverseBlock:
    """A task for a worker: one block of paths from the target to the reference."""

    sampler: AIS
    path: Path
    plan: Plan
    block: int
    starts: ReverseStarts
    seed: int

    def __call__(self, report: Report = silent) -> BlockRecord:
        starts, n_moves = self.starts, self.sampler.relaxation if self.starts.relaxes else 0
        given = self.path, self.plan, self.block, starts.draws, starts.group, self.seed, report
        return self.sampler.run_reverse(*given, n_moves=n_moves)
