"""Rounds of blocks until the error is small: from an annealing setup to a record and estimates."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import isfinite, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import AnnealingSetup, Kernel, Path, Plan
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


@dataclass(frozen=True)
class Found:
    """What a run has found so far."""

    target: Any  # the target in the coordinates of the draws
    record: RunRecord  # its record
    route: str = ""  # name of the route that was taken, if there are several
    certified: bool = True  # whether an estimate that is ok can be relied on
    seconds_each: float = 0.0  # seconds that an evaluation takes; 0 if it was not timed

    @cached_property
    def evidence(self) -> list[LogEvidence]:
        """All estimates, the recommended one first."""
        return estimates(self.record)

    @property
    def best(self) -> LogEvidence:
        """The recommended estimate."""
        return self.evidence[0]

    def with_record(self, record: RunRecord) -> "Found":
        """Return the same with another record."""
        return self if record is self.record else replace(self, record=record)

    def stating(self, **facts: Any) -> "Found":
        """Return the same with some facts of the record changed."""
        return self.with_record(self.record.stating(**facts))

    def reached(self, target_mcse: float) -> bool:
        """Return whether the recommended estimate is certified, and its error small enough."""
        best = self.best
        return self.certified and best.status == Status.OK and best.mcse <= target_mcse


# A step that makes a run longer, and the rule that returns the next one; or the limit that ended
# the run, or None where none did.
Step = Callable[[RunRecord], RunRecord]
Rule = Callable[[Found], Step | str | None]


def until_small(run: "Run", found: Found, step: Step, rule: Rule) -> Found:
    """Take steps until the error of a record is small enough, as a rule tells.

    After Ctrl-C the record is what there is.
    """
    following: Step | str | None = step
    try:
        while callable(following):
            found = found.with_record(following(found.record))
            following = rule(found)
    except KeyboardInterrupt as error:
        blocks = found.record.blocks.values()
        bridged = any(block.bridge is not None for part in blocks for block in part)
        # a bridge is far more precise than a few more islands without one, and is therefore kept
        latest = None if bridged else getattr(error, "record", None)
        return stopped(run, found.with_record(latest or found.record), error)
    return found if following is None else run.limits.missed(found, following)


def stopped(run: "Run", found: Found, error: KeyboardInterrupt) -> Found:
    """Return what an interrupted run has found, whose first estimate is never ``"ok"``."""
    if not found.record.of(Role.GIVEN) and found.record.work(Role.FORWARD).size < 2:
        raise error
    target = nan if run.limits.target_mcse is None else run.limits.target_mcse
    found = found.stating(stopped_by=Status.INTERRUPTED.value, target_mcse=target)
    if not (isfinite(found.best.value) and isfinite(found.best.mcse)):
        raise error
    run.journal.close()
    interrupt_answered()
    return found


# An error that is further from its target than this is no error.
_FURTHEST = 1e9
# Further draws are worth their cost while they lower the error by this share of what is expected.
_LEAST_GAIN = 0.5


@dataclass(frozen=True)
class Growth:
    """How many draws are added, as a multiple of those before, and in which bounds."""

    reserve: float  # factor on the number that the error asks for, which is itself an estimate
    most: float = np.inf
    least: float = 0.0

    def to(self, target: float, error: float) -> float:
        """Return the growth from an error to a target; the largest one for no error at all."""
        ratio = error / target
        wanted = self.reserve * ratio**2 - 1.0 if ratio < _FURTHEST else np.inf
        return float(np.clip(wanted, self.least, self.most))


@dataclass
class Additions:
    """How often draws may still be added, while they lower the error about as they should."""

    left: int
    hoped: float = np.inf  # error above which the last ones were not worth their cost

    def ended(self, error: float) -> bool:
        """Return whether no further draws are worth their cost."""
        return not self.left or error > self.hoped

    def add(self, error: float, done: int, further: int) -> None:
        """Count an addition to the draws so far."""
        self.left -= 1
        self.hoped = error * (1.0 - _LEAST_GAIN * (1.0 - (done / (done + further)) ** 0.5))


# Evaluations for each particle of a small run from the prior, pilot included: 70 were counted with
# a black-box likelihood of two variables, which is annealed in eight stages.
EVALUATIONS_EACH = 70
# The share of ``max_time`` that the first round is to take, so that what it shows can be used.
_SHARE_OF_FIRST = 0.5
# A run that will take longer than its ``max_time`` says so at its start if it is longer than this.
# A survey that will take longer than both is left out.
WORTH_SAYING = 10.0
# An evaluation is timed at so many prior draws, or until this share of ``max_time`` has passed.
_TIMED, _SHARE_OF_TIMING = 5, 0.1


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

    def missed(self, found: Found, reason: str) -> Found:
        """Return what was found with the fact that the target was not reached, and why."""
        if not self.asked:
            return found.stating(short_of=self.target_mcse)
        return found.stating(stopped_by=str(reason), target_mcse=self.target_mcse)

    def affordable(self, seconds: float) -> float:
        """Return how many evaluations the first round may make if each takes so many seconds."""
        return _SHARE_OF_FIRST * self.max_time / seconds

    def warn_of(self, n_evaluations: float, seconds: float) -> None:
        """Warn if the least first round is expected to take longer than ``max_time``."""
        expected = n_evaluations * seconds
        if expected > max(self.max_time, WORTH_SAYING):
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


_GROWTH = Growth(reserve=1.1, most=3.0, least=0.25)
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
    # What moves the continuous variables, what annealing starts from, and along which path
    kernel: str | Kernel = "auto"
    reference: Any = "prior"
    path: str | Path = "auto"
    # What the run has computed so far, and what shows its progress
    journal: Journal = field(default_factory=Journal, compare=False)
    display: Display = field(default_factory=partial(Display, enabled=False), compare=False)

    def anneal(self, target: Any, setup: AnnealingSetup, starts: ReverseStarts | None) -> Found:
        """Plan and run rounds of blocks until the error is small enough."""
        started = self.time()
        schedule = within_steps(self.schedule, setup)
        pilot = self.display.pilot
        planning = Planning(setup, self.sampler, self.size, self.seed, pilot)
        learn = partial(schedule.plan, planning)
        coarse, plan = self.journal.remembered("plan", learn, kernel=setup.kernel)
        context = RunContext(setup, coarse, plan, self.size, self.seed, starts, self.show)
        context = self.sampler.prepared(context)
        planned = self.journal.now()
        costs = Costs.of(self.effort * setup.effort)
        bridging = Bridging(setup.path, self.seed, costs, self.journal.remembered)
        found = self._rounds(Found(target, self.empty(context)), context, bridging, started)
        spent = setup.n_evaluations + context.coarse.n_evaluations + bridging.n_evaluations
        return with_costs(found, spent, planned - started, self.journal.now() - planned)

    def _rounds(
        self, found: Found, context: RunContext, bridging: Bridging, started: float
    ) -> Found:
        """Return what all rounds find."""
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

        def rule(found: Found) -> Step | str | None:
            nonlocal number, done, n_contradicted
            record, best = found.record, found.best
            done, elapsed = self._grown(record, done), self.time() - started
            most = None if record.tempered else context.setup.most_draws
            draws = self._further(best, done, elapsed, most)
            n_contradicted += best.status in _CONTRADICTED
            # further islands whose chains hardly move would miss the same as those before them
            unmoved = best.status == Status.NOT_MIXED and not record.tempered
            more_peaks = record.facts.more_peaks and target_mcse is not None
            if isinstance(draws, Status):
                return draws
            if not draws or unmoved or more_peaks or n_contradicted > _MOST_CONTRADICTED:
                return None
            number += 1
            self.display.round(number, target_mcse, best)
            return round_of(draws)

        self.display.round(number, target_mcse, None)
        first = round_of(self.sampler.first_round(self.size))
        found = until_small(self, found, first, rule)
        self.display.round(number, target_mcse, found.best)
        return found

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

    def show(self, title: str, tasks: Sequence[Task], plan: Plan) -> tuple[Any, ...]:
        """Run blocks and show their progress; see ``RunContext.execute``."""
        self.display.begin(title, len(tasks), plan.n_stages)
        return tuple(self.execute(tasks, report=self.display.block, done=self.display.done))

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
        draws = [np.asarray(block.draws) for block in blocks]
        if bridging.posterior is None or not all(map(len, draws)):
            return record
        thinned = [
            replace(block, draws=x[:: -(-len(x) // _MOST_FITTED)])
            for block, x in zip(blocks, draws, strict=True)
        ]
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

    def _further(
        self, best: LogEvidence, done: int, elapsed: float, most: int | None
    ) -> int | Status:
        """Return how many draws to add (0: none are needed), or the limit that ended the run."""
        limits, target_mcse = self.limits, self.limits.target_mcse
        left = limits.max_draws - done
        if most is not None and not limits.asked:
            left = min(max(most, self.size) - done, left)
        small = best.status == Status.OK and target_mcse is not None and best.mcse <= target_mcse
        if best.status == Status.UNBOUNDED or small:
            return 0
        growth = _GROWTH.most
        if target_mcse is None:  # as many as end within the time that is left
            in_time = np.isfinite(limits.max_time)
            growth = min(_SHARE_OF_TIME * limits.max_time / elapsed - 1.0, growth) if in_time else 0
            growth = growth if growth >= _GROWTH.least else 0.0
        elif best.status == Status.OK and np.isfinite(best.mcse):
            growth = _GROWTH.to(target_mcse, best.mcse)
        if target_mcse is not None and elapsed * (1.0 + growth) > limits.max_time:
            return Status.MAX_TIME
        draws = int(min(growth * done, left))
        draws = max(draws - draws % self.sampler.unit(self.size), 0)  # in whole units of a round
        return Status.MAX_DRAWS if target_mcse is not None and not draws else draws


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


def with_costs(found: Found, spent: int, planning: float, sampling: float) -> Found:
    """Return what a finished run found, with its costs."""
    record = found.record
    blocks = [block for blocks in record.blocks.values() for block in blocks]
    if not record.of(Role.REVERSE):
        record = record.stating(reverse_start=None)
    record = record.stating(
        tuning_time=planning,
        sampling_time=sampling,
        n_evaluations=spent + sum(block.n_evaluations for block in blocks),
        n_nan=sum(block.n_nan for block in blocks),
    )
    return found.with_record(record)
