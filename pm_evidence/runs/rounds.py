"""From a target to a record: pilot, islands, forward and reverse blocks, until the error is met."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import Line, Path, Plan
from pm_evidence.core.numerics import log_mean_exp, normalised
from pm_evidence.core.progress import Report, silent
from pm_evidence.core.records import BlockRecord, LogEvidence, RunRecord
from pm_evidence.core.resampling import resample
from pm_evidence.estimators.islands import distance_from_fit
from pm_evidence.estimators.of_run import estimates
from pm_evidence.execution.blocks import Task, run_blocks
from pm_evidence.execution.display import Display
from pm_evidence.runs.limits import ONE_ROUND, Limits
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.bridging import Bridging
from pm_evidence.samplers.pilot import Pilot
from pm_evidence.samplers.smc import SMC
from pm_evidence.samplers.trace import FORWARD, ISLAND, kernel_settings
from pm_evidence.schedules.adaptive import no_support
from pm_evidence.schedules.fixed import linear
from pm_evidence.schedules.learnt import even_steps

__all__ = ["Run", "Starts"]

Floats = NDArray[np.float64]

_STARTING = 7  # phase of the random streams
# The trial run of a schedule, whose seed no user and no second run would choose.
_TRIAL_STAGES, _TRIAL_PATHS, _TRIAL = 400, 256, 2**66
# Moves at the target before reverse paths set off: those from one exact draw part and remain
# exact, those from a state near the target relax.
_MOVES_BEFORE = {"exact": 100, "relaxed": 100}
# Islands that reverse paths start from hold this many times as many draws as are needed of them,
# and may cost this share of what the paths do: how islands share modes is in all that starts there.
_SURPLUS, _SHARE_OF_COST, _ISLAND_SIZES = 1.5, 0.25, (100, 1000)
_LEAST_PILOT = 200  # particles
# A round makes at most so many times the draws of all rounds before it: the error that the number
# is computed from is an estimate itself.
_LARGEST_GROWTH, _LEAST_GROWTH = 3.0, 0.25


@dataclass(frozen=True)
class Starts:
    """Posterior draws that reverse paths may start from.

    Parameters
    ----------
    draws : ndarray, shape (n, ...)
        In the target's own coordinates.
    group : ndarray of int64, shape (n,), or None
        Draws of different groups are independent; None: all are.
    probability : ndarray, shape (n,), optional
        Probability of each draw; equal ones if left out.
    kind : str
        From ``"islands"``, ``"relaxed"`` from a state near the target, ``"given"`` by the user, or
        ``"exact"``: one exact draw of the target.
    """

    draws: NDArray[Any]
    group: NDArray[np.int64] | None = None
    probability: Floats | None = None
    kind: str = "islands"

    def take(self, index: NDArray[np.int64]) -> "Starts":
        """Return the draws at ``index``, of equal probability."""
        group = None if self.group is None else self.group[index]
        return replace(self, draws=self.draws[index], group=group, probability=None)


@dataclass(frozen=True)
class _Forward:
    """A block from the reference to the target: all that a worker needs."""

    sampler: SMC | AIS
    path: Path
    plan: Plan
    block: int
    n: int
    seed: int
    phase: int = FORWARD

    def __call__(self, report: Report = silent) -> BlockRecord:
        arguments = self.path, self.plan, self.block, self.n, self.seed, report
        if isinstance(self.sampler, SMC):
            return self.sampler.run_block(*arguments, phase=self.phase)
        return self.sampler.run_block(*arguments)


@dataclass(frozen=True)
class _Reverse:
    """A block from the target to the reference: all that a worker needs."""

    sampler: AIS
    path: Path
    plan: Plan
    block: int
    starts: Starts
    seed: int

    def __call__(self, report: Report = silent) -> BlockRecord:
        starts = self.starts
        return self.sampler.run_reverse(
            self.path,
            self.plan,
            self.block,
            starts.draws,
            starts.group,
            self.seed,
            report,
            n_moves=_MOVES_BEFORE.get(starts.kind, 0),
        )


@dataclass(frozen=True)
class Run:
    """The resolved arguments of a run.

    Parameters
    ----------
    sampler : SMC or AIS
        How to anneal.
    draws : int
        Particles per island, or paths in each direction.
    schedule : ndarray or None
        Inverse temperatures; None: the pilot finds them.
    cores : int
        Threads.
    executor : Executor or None
        Where blocks run instead.
    seed : int
        Seed of all streams.
    name : str
        Of the method; that of ``sampler`` if left out.
    limits : Limits
        When rounds end.
    """

    sampler: SMC | AIS
    draws: int
    schedule: Floats | None
    cores: int
    executor: Executor | None
    seed: int
    name: str = ""
    limits: Limits = ONE_ROUND

    def anneal(
        self, line: Line, display: Display, starts: Starts | None
    ) -> tuple[RunRecord, list[LogEvidence]]:
        """Run pilot and rounds of blocks; return what they leave behind and what it says.

        Parameters
        ----------
        line : Line
            What is annealed and how.
        display : Display
            Told of all progress.
        starts : Starts, optional
            Where reverse paths start; made if left out.
        """
        started = time.perf_counter()
        coarse, plan = self._plans(line, display)
        planned = time.perf_counter()
        kind = starts.kind if starts else "relaxed" if line.starts else "islands"
        record = RunRecord(
            self.name or self.sampler.name,
            plan.beta,
            (),
            settings=kernel_settings(plan),
            info={"reverse_start": kind},
        )
        draws, number = self.sampler.first_round(self.draws), 1
        bridging = Bridging(line.path, self.seed)
        display.round(number, self.limits.target_mcse, None)
        while True:
            record = self._extended(record, line, coarse, plan, draws, display, starts)
            record = self._bridged(record, bridging, display)
            found = estimates(record)
            draws, reason = self._more(found[0], self._done(record), time.perf_counter() - started)
            if not draws:
                break
            number += 1
            display.round(number, self.limits.target_mcse, found[0])
        if reason and self.limits.asked:
            ended = {"stopped_by": reason, "target_mcse": self.limits.target_mcse}
            record = replace(record, info={**record.info, **ended})
            found = estimates(record)
        display.round(number, self.limits.target_mcse, found[0])
        blocks = [*record.forward, *record.reverse, *record.islands]
        info = {
            "tuning_time": planned - started,
            "sampling_time": time.perf_counter() - planned,
            "n_evaluations": coarse.n_evaluations
            + bridging.n_evaluations
            + sum(block.n_evaluations for block in blocks),
            "n_nan": sum(block.n_nan for block in blocks),
        }
        kept = record.info if record.reverse else _without_start(record.info)
        return replace(record, info={**kept, **info}), found

    def _plans(self, line: Line, display: Display) -> tuple[Plan, Plan]:
        """Return the pilot's plan, and the one that blocks follow."""
        sampler = self.sampler
        if line.n_stages is not None and isinstance(sampler, AIS):
            beta = self.schedule
            if beta is None:
                beta = self._even_steps(line, sampler.n_stages or line.n_stages)
            plan = Plan(beta, (line.kernel,) * (len(beta) - 1))
            return plan, plan
        n = max(self.draws, min(line.n_pilot, sampler.first_round(self.draws)), _LEAST_PILOT)
        pilot = Pilot(n, sampler.chain_length, sampler.ess, self.schedule)
        coarse = pilot.run(line.path, line.kernel, self.seed, display.pilot)
        coarse = replace(coarse, population=None)  # blocks take the plan along to their workers
        return coarse, coarse if self.schedule is not None else sampler.follow(coarse)

    def _even_steps(self, line: Line, n_stages: int) -> Floats:
        """Return a schedule for kernels that have nothing to learn, from a trial run."""
        trial = linear(_TRIAL_STAGES)
        plan = Plan(trial, (line.kernel,) * _TRIAL_STAGES)
        record = AIS().run_block(line.path, plan, 0, _TRIAL_PATHS, self.seed + _TRIAL)
        return even_steps(trial, record.trace.energy_var, n_stages)

    def _bridged(self, record: RunRecord, bridging: Bridging, display: Display) -> RunRecord:
        """Return the record with a bridge to every island, and with what a survey found."""
        if not record.islands and not record.of_islands:
            return self._checked(record, bridging)

        def run(tasks: Sequence[Task]) -> Sequence[Any]:
            return run_blocks(tasks, cores=self.cores, executor=self.executor)

        islands = bridging.extend(record.islands or record.forward, run)
        info = {**record.info, **bridging.facts()}
        if record.islands:
            return replace(record, islands=islands, info=info)
        distance = distance_from_fit(islands)
        if distance is not None:
            info["moment_distance"] = distance
        return replace(record, forward=islands, info=info)

    def _checked(self, record: RunRecord, bridging: Bridging) -> RunRecord:
        """Return a record of paths alone with a check by importance sampling, once."""
        if bridging.found is not None or not bridging.possible:
            return record
        log_weight = np.concatenate([block.log_weight for block in record.forward])
        if not np.isfinite(log_weight.max()):
            return record
        draws = np.concatenate([np.asarray(block.draws) for block in record.forward])
        rng = self._generator(2**31)
        chosen = resample(normalised(log_weight), len(draws), rng, "systematic")
        work = bridging.check(draws[rng.permutation(chosen)], log_mean_exp(log_weight))
        first = replace(record.forward[0], bridge=(work, np.empty(0)))
        info = {**record.info, **bridging.facts()}
        return replace(record, forward=(first, *record.forward[1:]), info=info)

    def _extended(
        self,
        record: RunRecord,
        line: Line,
        coarse: Plan,
        plan: Plan,
        draws: int,
        display: Display,
        starts: Starts | None,
    ) -> RunRecord:
        """Return the record with another round of ``draws`` particles or paths."""
        sampler = self.sampler
        if isinstance(sampler, SMC) or sampler.direction == "forward":
            return self._go(record, line, plan, draws, display)
        if starts is None and line.starts is not None:
            rng = self._generator(len(record.reverse))
            starts = Starts(line.starts(draws, rng), kind="relaxed")
        elif starts is None:
            islands = SMC(
                islands=sampler.islands, ess=sampler.ess, chain_length=sampler.chain_length
            )
            affordable = _SHARE_OF_COST * 2.0 * draws * plan.n_stages / coarse.n_stages
            wanted = max(affordable, _SURPLUS * draws) / sampler.islands
            n = int(np.clip(wanted, *_ISLAND_SIZES))
            first = len(record.islands)
            tasks = [
                _Forward(islands, line.path, coarse, first + i, n, self.seed, ISLAND)
                for i in range(sampler.islands)
            ]
            made = self._run("Islands", tasks, coarse, display)
            record = replace(record, islands=(*record.islands, *made))
            starts = _of_islands(made)
        record = self._go(record, line, plan, draws, display)
        return self._return(record, line, plan, starts, draws, display)

    def _generator(self, first: int) -> np.random.Generator:
        """Return what chooses the starts of a round whose first reverse block is ``first``."""
        sequence = np.random.SeedSequence(self.seed, spawn_key=(_STARTING, first))
        return np.random.default_rng(sequence)

    def _go(
        self, record: RunRecord, line: Line, plan: Plan, draws: int, display: Display
    ) -> RunRecord:
        """Return the record with more forward blocks."""
        first = len(record.forward)
        tasks = [
            _Forward(self.sampler, line.path, plan, first + i, n, self.seed)
            for i, n in enumerate(self._sizes(draws, line))
        ]
        made = self._run(self.sampler.name.upper(), tasks, plan, display)
        return replace(record, forward=(*record.forward, *made))

    def _return(
        self,
        record: RunRecord,
        line: Line,
        plan: Plan,
        starts: Starts,
        draws: int,
        display: Display,
    ) -> RunRecord:
        """Return the record with more reverse blocks, which start from posterior draws."""
        assert isinstance(self.sampler, AIS)
        first, n = len(record.reverse), len(starts.draws)
        chosen = self._generator(first).choice(n, draws, replace=draws > n, p=starts.probability)
        ends = np.cumsum(self._sizes(draws, line))[:-1]
        tasks = [
            _Reverse(self.sampler, line.path, plan, first + i, starts.take(part), self.seed)
            for i, part in enumerate(np.split(chosen, ends))
        ]
        made = self._run("Reverse", tasks, plan, display)
        return replace(record, reverse=(*record.reverse, *made))

    def _sizes(self, draws: int, line: Line) -> list[int]:
        """Return the number of particles or paths of each block of a round."""
        size = self.draws if isinstance(self.sampler, SMC) else line.n_paths
        full, rest = divmod(draws, size)
        return [size] * full + [rest] * (rest > 0)

    def _run(
        self, name: str, tasks: Sequence[Task], plan: Plan, display: Display
    ) -> tuple[BlockRecord, ...]:
        display.begin(name, len(tasks), plan.n_stages)
        return tuple(
            run_blocks(
                tasks,
                cores=self.cores,
                executor=self.executor,
                report=display.block,
                done=display.done,
            )
        )

    def _done(self, record: RunRecord) -> int:
        """Return the number of particles or forward paths so far."""
        if isinstance(self.sampler, SMC):
            return len(record.forward) * self.draws
        return record.work_forward.size

    def _more(self, found: LogEvidence, done: int, elapsed: float) -> tuple[int, str]:
        """Return how many draws to add (0: no more), and what stops the run before its aim."""
        limits = self.limits
        if limits.target_mcse is None or found.status == "unbounded":
            return 0, ""
        good = found.status == "ok" and np.isfinite(found.mcse)
        if good and found.mcse <= limits.target_mcse:
            return 0, ""
        wanted = _LARGEST_GROWTH
        if good:
            wanted = 1.1 * (found.mcse / limits.target_mcse) ** 2 - 1.0
        growth = float(np.clip(wanted, _LEAST_GROWTH, _LARGEST_GROWTH))
        if elapsed * (1.0 + growth) > limits.max_time:
            return 0, "max_time"
        draws = int(min(growth * done, limits.max_draws - done))
        unit = self.draws if isinstance(self.sampler, SMC) else 1
        draws -= draws % unit
        return (draws, "") if draws > 0 else (0, "max_draws")


def _without_start(info: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fact for name, fact in info.items() if name != "reverse_start"}


def _of_islands(blocks: Sequence[BlockRecord]) -> Starts:
    """Return the draws of islands, each island with the probability of its evidence."""
    alive = [block for block in blocks if block.draws is not None]
    if not alive:
        raise no_support(len(blocks))
    draws = [np.asarray(block.draws) for block in alive]
    group = np.repeat([block.block for block in alive], [len(part) for part in draws])
    log_weight = -np.repeat([block.work[0] for block in alive], [len(part) for part in draws])
    return Starts(np.concatenate(draws), group, normalised(log_weight))
