"""Rounds of blocks until the error is small: from an annealing setup to a record and estimates."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import AnnealingSetup, Plan
from pm_evidence.core.exceptions import warn
from pm_evidence.core.interrupts import interrupt_answered
from pm_evidence.core.numerics import log_mean_exp, normalised
from pm_evidence.core.random import Phase, generator
from pm_evidence.core.records import (
    BlockRecord,
    Facts,
    LogEvidence,
    Role,
    RunRecord,
    Status,
    UsedSchedule,
)
from pm_evidence.core.resampling import resample
from pm_evidence.estimators.of_islands import correlation_in_chains, distance_from_fit
from pm_evidence.estimators.of_run import estimates
from pm_evidence.execution.blocks import Task, run_divided
from pm_evidence.execution.display import Display
from pm_evidence.execution.journal import Journal
from pm_evidence.samplers.bridge import Bridging, Costs
from pm_evidence.samplers.planning import ADAPTIVE, Planning, Schedule, within_steps
from pm_evidence.samplers.sampler import ReverseStarts, RunContext, Sampler, kernel_settings

Floats = NDArray[np.float64]


def was_interrupted(record: RunRecord) -> bool:
    """Return whether a record is what Ctrl-C left of a run."""
    return record.facts.stopped_by == Status.INTERRUPTED


# A step that makes a run longer, and the rule that returns the next one; or the limit that ended
# the run, or None where none did.
Step = Callable[[RunRecord], RunRecord]
Rule = Callable[[RunRecord, LogEvidence], Step | str | None]


def until_small(
    run: "Run", record: RunRecord, step: Step, rule: Rule
) -> tuple[RunRecord, list[LogEvidence]]:
    """Take steps until the error of a record is small enough, as a rule tells.

    After Ctrl-C the record is what there is.
    """
    following: Step | str | None = step
    try:
        while callable(following):
            record = following(record)
            found = estimates(record)
            following = rule(record, found[0])
    except KeyboardInterrupt as error:
        bridged = any(block.bridge is not None for part in record.blocks.values() for block in part)
        # a bridge is far more precise than a few more islands without one, and is therefore kept
        latest = None if bridged else getattr(error, "record", None)
        return stopped(run.journal, latest or record, run.limits.target_mcse, error)
    if following is not None:
        record = run.limits.missed(record, following)
        found = estimates(record)
    return record, found


def stopped(
    journal: Journal, record: RunRecord, target_mcse: float | None, error: KeyboardInterrupt
) -> tuple[RunRecord, list[LogEvidence]]:
    """Return the record of an interrupted run and its estimates, whose first is never ``"ok"``."""
    if not record.of(Role.GIVEN) and record.work(Role.FORWARD).size < 2:
        raise error
    target = nan if target_mcse is None else target_mcse
    record = record.stating(stopped_by=Status.INTERRUPTED.value, target_mcse=target)
    found = estimates(record)
    if not (isfinite(found[0].value) and isfinite(found[0].mcse)):
        raise error
    journal.close()
    interrupt_answered()
    return record, found


# Evaluations for each particle of a small run from the prior, pilot included: 70 were counted with
# a black-box likelihood of two variables, which is annealed in eight stages.
EVALUATIONS_EACH = 70
# The share of ``max_time`` that the first round is to take, so that what it shows can be used.
_SHARE_OF_FIRST = 0.5
# A run that will take longer than its ``max_time`` says so at its start if it is longer than this.
_WORTH_SAYING = 10.0
# An evaluation is timed at so many prior draws, or until this share of ``max_time`` has passed.
_TIMED, _SHARE_OF_TIMING = 5, 0.1

# An error that is further from its target than this is no error.
_FURTHEST = 1e9


@dataclass(frozen=True)
class Limits:
    """When the rounds of a run end."""

    target_mcse: float | None = None  # error in nats at which the run ends; None for a single round
    # Seconds; a further round starts only if it is expected to end within this time
    max_time: float = np.inf
    max_draws: float = np.inf  # largest number of draws that further rounds may add up to
    # Whether the user set any of these limits. The status then tells if the run ended before it
    # reached ``target_mcse``; otherwise the message does.
    asked: bool = True

    def missed(self, record: RunRecord, reason: str) -> RunRecord:
        """Return a record that says that the target was not reached, and why."""
        if not self.asked:
            return record.stating(short_of=self.target_mcse)
        return record.stating(stopped_by=str(reason), target_mcse=self.target_mcse)

    def affordable(self, seconds: float) -> float:
        """Return how many evaluations the first round may make if each takes so many seconds."""
        return _SHARE_OF_FIRST * self.max_time / seconds

    def warn_of(self, n_evaluations: float, seconds: float) -> None:
        """Warn if the least first round is expected to take longer than ``max_time``."""
        expected = n_evaluations * seconds
        if expected > max(self.max_time, _WORTH_SAYING):
            warn(
                f"max_time={self.max_time:g} is too short: an evaluation of the model takes "
                f"{seconds:.2g} s, and the smallest run needs some {n_evaluations:,.0f} of them, "
                f"which take about {expected:,.0f} s. Pass a larger max_time, or make the model "
                "faster."
            )


ONE_ROUND = Limits()


def seconds_each(limits: Limits, target: Any) -> float:
    """Return the seconds that an evaluation of a model takes; 0 without a limit of time."""
    if not np.isfinite(limits.max_time):
        return 0.0
    x = target.finite_prior_points(_TIMED, np.random.SeedSequence(0))
    taken: list[float] = []
    while len(taken) < len(x) and sum(taken) <= _SHARE_OF_TIMING * limits.max_time:
        started = time.perf_counter()
        target.evaluate(x[len(taken)][None])
        taken.append(time.perf_counter() - started)
    return min(taken, default=0.0)


# Further draws are worth their cost while they lower the error by this share of what is expected.
_LEAST_GAIN = 0.5


def growth_for(error: float, target: float, reserve: float) -> float:
    """Return by which multiple of the draws so far an error needs more, with a factor of reserve.

    Infinite where there is no error that could be reduced.
    """
    ratio = error / target
    return reserve * ratio**2 - 1.0 if ratio < _FURTHEST else np.inf


def hoped_for(error: float, done: int, further: int) -> float:
    """Return the error above which further draws were not worth their cost."""
    return error * (1.0 - _LEAST_GAIN * (1.0 - (done / (done + further)) ** 0.5))


# Bounds of the draws of a round, relative to those of all rounds before it. They are needed because
# the error that the number of draws is computed from is itself an estimate.
_LARGEST_GROWTH, _LEAST_GROWTH = 3.0, 0.25
# Share of ``max_time`` at which a further round is expected to end, if there is no target error.
_SHARE_OF_TIME = 0.9
# Statuses that more draws may change, but that seldom do: a run ends with them after so many rounds
# and one, each of which has made four times as many draws as there were before.
_CONTRADICTED, _MOST_CONTRADICTED = (Status.INCONSISTENT, Status.MISSED_MASS), 2
# Number of draws of a block of tempered chains to which a density is fitted.
_MOST_FITTED = 2000


@dataclass(frozen=True)
class Run:
    """The resolved arguments of a run."""

    sampler: Sampler  # what runs the blocks
    size: int  # particles per island, or paths in each direction
    cores: int  # threads
    executor: Executor | None  # runs the blocks instead of threads, if given
    seed: int  # seed of all streams
    schedule: Schedule = ADAPTIVE  # how inverse temperatures are found
    name: str = ""  # name of the method; that of ``sampler`` if left out
    limits: Limits = ONE_ROUND  # when rounds end
    effort: float = 1.0  # share of the usual effort of the survey
    # What the run has computed so far
    journal: Journal = field(default_factory=Journal, compare=False)

    def anneal(
        self, setup: AnnealingSetup, display: Display, starts: ReverseStarts | None
    ) -> tuple[RunRecord, list[LogEvidence]]:
        """Plan and run rounds of blocks; return their record and the estimates made from it."""
        started = self.time()
        schedule = within_steps(self.schedule, setup)
        planning = Planning(setup, self.sampler, self.size, self.seed, display.pilot)
        learn = partial(schedule.plan, planning)
        coarse, plan = self.journal.remembered("plan", learn, kernel=setup.kernel)
        show = self.shown_on(display)
        context = RunContext(setup, coarse, plan, self.size, self.seed, starts, show)
        context = self.sampler.prepared(context)
        planned = self.journal.now()
        costs = Costs.of(self.effort * setup.effort)
        bridging = Bridging(setup.path, self.seed, costs, self.journal.remembered)
        record, found = self._rounds(context, bridging, display, started)
        spent = setup.n_evaluations + context.coarse.n_evaluations + bridging.n_evaluations
        durations = planned - started, self.journal.now() - planned
        return with_costs(record, spent, *durations), found

    def _rounds(
        self, context: RunContext, bridging: Bridging, display: Display, started: float
    ) -> tuple[RunRecord, list[LogEvidence]]:
        """Return the record of all rounds and its estimates."""
        number, done, n_contradicted = 1, 0, 0
        target_mcse = self.limits.target_mcse

        def round_of(draws: int) -> Step:
            def extended(record: RunRecord) -> RunRecord:
                longer = self.sampler.extended(context, record, draws)
                try:
                    return self._bridged(longer, bridging)
                except KeyboardInterrupt as error:
                    error.record = longer  # type: ignore[attr-defined]
                    raise

            return extended

        def rule(record: RunRecord, best: LogEvidence) -> Step | str | None:
            nonlocal number, done, n_contradicted
            done, elapsed = self._grown(record, done), self.time() - started
            most = None if record.tempered else context.setup.most_draws
            draws, limit = self._more(best, done, elapsed, most)
            n_contradicted += best.status in _CONTRADICTED
            # further islands whose chains hardly move would miss the same as those before them
            unmoved = best.status == Status.NOT_MIXED and not record.tempered
            more_peaks = record.facts.more_peaks and target_mcse is not None
            if draws and not (unmoved or more_peaks or n_contradicted > _MOST_CONTRADICTED):
                number += 1
                display.round(number, target_mcse, best)
                return round_of(draws)
            return limit

        display.round(number, target_mcse, None)
        first = round_of(self.sampler.first_round(self.size))
        record, found = until_small(self, self.empty(context), first, rule)
        display.round(number, target_mcse, found[0])
        return record, found

    def _grown(self, record: RunRecord, before: int) -> int:
        """Return the number of particles or paths so far; raise TypeError if it has not grown."""
        done = self.sampler.units(record, self.size)
        if done <= before:
            raise TypeError(
                f"extended() of the sampler {self.sampler.name!r} must add blocks, got {done} "
                f"particles or paths after a round and {before} before it; return the record with "
                "new blocks appended."
            )
        return done

    def empty(self, context: RunContext) -> RunRecord:
        """Return the record before the first round."""
        setup, plan = context.setup, context.plan
        # islands of kernels without settings to tune follow a schedule like that of the paths
        kind = "islands" if setup.n_stages is None else "annealed"
        kind = context.starts.kind if context.starts else "relaxed" if setup.starts else kind
        facts = Facts(
            reverse_start=kind, schedule=plan.schedule or UsedSchedule(plan.beta, "given")
        )
        name = self.name or self.sampler.name
        record = RunRecord(name, plan.beta, {}, kernel_settings(plan), facts)
        return record.stating(**{"stepwise": setup.stepwise, **setup.facts})

    def shown_on(self, display: Display) -> Any:
        """Return a function that runs blocks and shows progress; see ``RunContext.execute``."""

        def execute(title: str, tasks: Sequence[Task], plan: Plan) -> tuple[Any, ...]:
            display.begin(title, len(tasks), plan.n_stages)
            return tuple(self.execute(tasks, report=display.block, done=display.done))

        return execute

    def execute(self, tasks: Sequence[Task], **shown: Any) -> list[Any]:
        """Run blocks where the user asks for it, and return their results in order."""
        runner = partial(run_divided, cores=self.cores, executor=self.executor)
        return self.journal.run(tasks, runner, **shown)

    def time(self) -> float:
        """Return the seconds so far, for decisions on what ends in time."""
        return self.journal.time() if np.isfinite(self.limits.max_time) else self.journal.now()

    def _bridged(self, record: RunRecord, bridging: Bridging) -> RunRecord:
        """Return the record with a bridge for every island and the findings of the survey."""
        if record.tempered:
            return self._beside_ladders(record, bridging)
        if not record.of(Role.ISLAND) and not record.of_islands:
            return self._checked(record, bridging)
        role = Role.ISLAND if record.of(Role.ISLAND) else Role.FORWARD
        islands = bridging.extend(record.of(role), self.execute)
        return with_bridges(record, role, islands, bridging)

    def _beside_ladders(self, record: RunRecord, bridging: Bridging) -> RunRecord:
        """Return a record of tempered chains with a bridge for every block."""
        blocks = record.of(Role.FORWARD)
        if bridging.posterior is None or not all(len(np.asarray(block.draws)) for block in blocks):
            return record
        thinned = [replace(block, draws=_thinned(np.asarray(block.draws))) for block in blocks]
        made = [
            replace(block, draws=whole.draws)
            for block, whole in zip(bridging.extend(thinned, self.execute), blocks, strict=True)
        ]
        return record.updated(Role.FORWARD, made).stating(**bridging.facts())

    def _checked(self, record: RunRecord, bridging: Bridging) -> RunRecord:
        """Return a record without islands with a check by importance sampling, made only once."""
        if bridging.found is not None or bridging.posterior is None:
            return record
        log_weight = np.concatenate([block.log_weight for block in record.of(Role.FORWARD)])
        if not np.isfinite(log_weight.max()):
            return record
        draws = np.concatenate([np.asarray(block.draws) for block in record.of(Role.FORWARD)])
        rng = generator(self.seed, Phase.CHECK)
        chosen = resample(normalised(log_weight), len(draws), rng, "systematic")
        work = bridging.check(
            draws[rng.permutation(chosen)], log_mean_exp(log_weight), self.execute
        )
        first, *others = record.of(Role.FORWARD)
        first = replace(first, bridge=(work, np.empty(0)))
        return record.updated(Role.FORWARD, (first, *others)).stating(**bridging.facts())

    def _more(
        self, found: LogEvidence, done: int, elapsed: float, most: int | None
    ) -> tuple[int, Status | None]:
        """Return how many draws to add (0: none), and the limit that ended the run, if any."""
        limits = self.limits
        if most is not None and not limits.asked:
            limits = replace(limits, max_draws=min(max(most, self.size), limits.max_draws))
        if found.status == Status.UNBOUNDED:
            return 0, None
        if limits.target_mcse is None:
            return self._whole(self._growth_in_time(elapsed), done, limits.max_draws), None
        growth = _LARGEST_GROWTH
        if found.status == Status.OK and np.isfinite(found.mcse):
            if found.mcse <= limits.target_mcse:
                return 0, None
            wanted = growth_for(found.mcse, limits.target_mcse, 1.1)
            growth = float(np.clip(wanted, _LEAST_GROWTH, _LARGEST_GROWTH))
        if elapsed * (1.0 + growth) > limits.max_time:
            return 0, Status.MAX_TIME
        draws = self._whole(growth, done, limits.max_draws)
        return (draws, None) if draws > 0 else (0, Status.MAX_DRAWS)

    def _growth_in_time(self, elapsed: float) -> float:
        """Return how many draws to add for each so far in the time left; 0 without a time limit."""
        if not np.isfinite(self.limits.max_time):
            return 0.0
        growth = min(_SHARE_OF_TIME * self.limits.max_time / elapsed - 1.0, _LARGEST_GROWTH)
        return growth if growth >= _LEAST_GROWTH else 0.0

    def _whole(self, growth: float, done: int, most: float) -> int:
        """Return the draws of a round as a multiple of what a round consists of."""
        draws = int(min(growth * done, most - done))
        return max(draws - draws % self.sampler.unit(self.size), 0)


def _thinned(draws: NDArray[Any]) -> NDArray[Any]:
    """Return draws at equal distances, so many that a density can be fitted to them."""
    return draws[:: -(-len(draws) // _MOST_FITTED)]


def with_bridges(
    record: RunRecord, role: Role, islands: Sequence[BlockRecord], bridging: Bridging
) -> RunRecord:
    """Return a record with islands that have a bridge, and with what the survey found."""
    record = record.updated(role, islands).stating(**bridging.facts())
    distance = None if role == Role.ISLAND else distance_from_fit(islands)
    correlation = correlation_in_chains(islands)
    if distance is not None:
        record = record.stating(moment_distance=distance)
    return record if correlation is None else record.stating(chain_correlation=correlation)


def with_costs(record: RunRecord, spent: int, planning: float, sampling: float) -> RunRecord:
    """Return a finished record with its costs."""
    blocks = [block for blocks in record.blocks.values() for block in blocks]
    if not record.of(Role.REVERSE):
        record = record.stating(reverse_start=None)
    return record.stating(
        tuning_time=planning,
        sampling_time=sampling,
        n_evaluations=spent + sum(block.n_evaluations for block in blocks),
        n_nan=sum(block.n_nan for block in blocks),
    )
