"""Bridge sampling from posterior draws that the user gives.

The draws are divided into groups of neighbours. A density is fitted to the groups of even index and
another to those of odd index, and each group is bridged with the density of the other half. A small
annealing from the prior and a survey of the peaks look for what the draws have missed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import described
from pm_evidence.core.contracts import Kernel
from pm_evidence.core.exceptions import ModelError
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.random import Phase, generator
from pm_evidence.core.records import BlockRecord, LogEvidence, Role, RunRecord, StageTrace, Status
from pm_evidence.core.rows import one_blas_thread
from pm_evidence.estimators.of_islands import TOLERATED
from pm_evidence.estimators.of_run import estimates
from pm_evidence.estimators.verdicts import GIVEN_DRAWS
from pm_evidence.execution.display import Display
from pm_evidence.paths.geometric import GeometricPath, Posterior
from pm_evidence.references.mixture import MOST_DIMENSIONS, StudentFit, fit_population
from pm_evidence.results.stored import doubt_of_draws, doubt_of_few, n_divergent
from pm_evidence.runs.anneal import with_few_values
from pm_evidence.runs.coarse import better, is_good
from pm_evidence.runs.defaults import annealing_setup, effort_of
from pm_evidence.runs.references import Trial, groups_of, rows_and_variables, small_annealing
from pm_evidence.runs.reparameterise import Choice
from pm_evidence.runs.rounds import Limits, Run, growth_for, stopped, with_bridges, with_costs
from pm_evidence.samplers.bridge import Bridging, Costs
from pm_evidence.samplers.sampler import RunContext
from pm_evidence.targets.model.coordinates import best_centring
from pm_evidence.targets.model.data_points import DataPointsTarget
from pm_evidence.targets.model.reparameterised import ReparameterisedTarget
from pm_evidence.targets.model.target import PyMCTarget

Floats = NDArray[np.float64]

_NO_TRACE = StageTrace(*np.empty((4, 0)))
# A density is not fitted to fewer draws than this.
_LEAST_DRAWS = 50
# Draws of a group that are used, at equal distances if there are more.
_MOST_DRAWS = 1000
# Budget of the survey relative to the usual one, little beside the cost of NUTS.
_SURVEY = 2.0
# How often a density is fitted again where the fit is poor, and with how many times as many draws.
_REFITS, _GROWTH = 2, 1.5
# Draws from the fitted density are added at most so often, to at most so many times as many.
_ADDITIONS, _LARGEST_GROWTH = 4, 8.0
# They are the limit of the error while it falls by at least this share of what is expected.
_LEAST_GAIN = 0.5


@dataclass(frozen=True)
class _CheckedPath(GeometricPath):
    """The path to a posterior, with the density fitted to a population annealed along it."""

    known: Any = None


def check_bridged(target: Any) -> None:
    """Raise an error unless posterior draws of a target can be bridged."""
    if not isinstance(target, PyMCTarget) or isinstance(target, DataPointsTarget):
        raise ValueError(
            "bridge sampling needs a pymc.Model whose likelihood can be evaluated, got "
            f"{described(target)}; use another method of sample_evidence."
        )
    problem = ""
    if not target.n_dim:
        problem = "no free variable"
    elif target.discrete.size:
        names = [rv.name for rv in target.model.free_RVs if np.dtype(rv.dtype).kind in "iub"]
        problem = f"the discrete variables {', '.join(map(repr, names))}"
    elif not GeometricPath(target).has_density:
        problem = "a transform that cuts off a part of the prior, whose mass is not known exactly"
    if problem:
        raise ModelError(
            "bridge sampling needs a model of continuous variables with a normalised prior, got "
            f"one with {problem}; use pe.sample_evidence(model), or sum discrete variables out."
        )


def bridge_given(
    run: Run, target: PyMCTarget, idata: Any, kernel: str | Kernel, display: Display
) -> tuple[Any, RunRecord, list[LogEvidence]]:
    """Estimate the evidence from posterior draws."""
    check_bridged(target)
    started = run.time()
    x, draws = rows_and_variables(target, idata, "idata")
    shape = next(iter(draws.values())).shape[:2]
    if len(x) < _LEAST_DRAWS:
        raise ValueError(
            f"idata must hold at least {_LEAST_DRAWS} posterior draws, got {len(x)}; sample more."
        )
    doubts = doubt_of_draws(idata, draws, TOLERATED), doubt_of_few(draws)
    target, x, choice = _in_best_coordinates(target, x)
    with one_blas_thread():
        trial = small_annealing(run, target, kernel, display)
        known = _fitted(run, target, trial)
        grouped = partial(_grouped, target, x, groups_of(*shape), trial)
        blocks = run.remembered("given draws", grouped)
    planned = run.time()
    record = _checks(run, target, kernel, trial, display)
    facts = {
        "doubt": ", and ".join(filter(None, doubts)),
        "n_divergent": n_divergent(idata)[0],
        "n_chains": shape[0],
    }
    record = replace(record, info={**record.info, **facts})
    record = record.updated(Role.GIVEN, blocks)
    costs = _costs(run, target, len(blocks))
    bridging = Bridging(_CheckedPath(target, known), run.seed, costs, run.remembered)
    record, found = _refined(run, record, bridging, started)
    assert trial.plan is not None
    spent = trial.plan.n_evaluations + bridging.n_evaluations
    durations = planned - started, run.time() - planned
    record = choice.added_to(with_costs(record, spent, *durations))
    record, found = with_few_values(run, target, record, found)
    info = {**record.info, "log_prior_mass": target.log_prior_mass}
    return target, replace(record, info=info), found


def _costs(run: Run, target: Any, n_groups: int) -> Costs:
    """Return what survey and fit may cost, and the bounds of the first draws of each group."""
    usual = Costs.of(_SURVEY * effort_of(target))
    least = -(-run.sampler.first_round(run.size) // n_groups)
    return replace(
        usual, draws=least, most=max(int(min(_most(run.limits, n_groups), usual.most)), least)
    )


def _most(limits: Limits, n_groups: int) -> float:
    """Return the largest number of draws from the fitted density for each group."""
    return limits.max_draws / n_groups


def _in_best_coordinates(target: Any, x: Floats) -> tuple[Any, Floats, Choice]:
    """Return target and draws in the coordinates that the draws show to be best."""
    if not isinstance(target, ReparameterisedTarget) or not target.variables:
        return target, x, Choice()
    centring = best_centring(target.effects(x))
    choice = Choice.of(target, centring)
    return target.centred_by(centring), choice.converted(target, x), choice


def _fitted(run: Run, target: Any, trial: Trial) -> Any:
    """Return a density fitted to the annealed population; None in high dimension."""
    if target.n_dim > MOST_DIMENSIONS:
        return None
    fit = partial(fit_population, trial.draws, generator(run.seed, Phase.REFERENCE, 1))
    return run.remembered("fit", fit)


def _grouped(
    target: Any, x: Floats, group: NDArray[np.int64], trial: Trial
) -> tuple[BlockRecord, ...]:
    """Return the groups of given draws, each with states that an island of the trial visited.

    The work of a group is that of reciprocal importance sampling (Gelfand and Dey 1994) with a
    density fitted to all draws, which is enough to compare the draws with other modes.
    """
    parts = [x[group == g] for g in range(group.max() + 1)]
    parts = [part[:: -(-len(part) // _MOST_DRAWS)] for part in parts]
    crude = StudentFit.to(np.concatenate(parts))
    log_density = [Posterior(target).log_density(part) for part in parts]
    _check_support(np.concatenate(log_density))
    visited = [block.visited for block in trial.blocks]
    return tuple(
        BlockRecord(
            block=i,
            work=np.array([log_mean_exp(crude.log_density(part) - height)]),
            trace=_NO_TRACE,
            draws=part,
            log_density=log_density[i],
            visited=visited[i] if i < len(visited) else None,
            n_evaluations=len(part),
        )
        for i, (part, height) in enumerate(zip(parts, log_density, strict=True))
    )


def _check_support(log_density: Floats) -> None:
    """Raise ValueError if draws have no posterior density."""
    n = int(np.count_nonzero(~np.isfinite(log_density)))
    if n:
        raise ValueError(
            f"idata must lie inside the support of the posterior, got {n} of {len(log_density)} "
            "draws where prior times likelihood is zero: they belong to another model. Sample this "
            "model with pm.sample."
        )


def _checks(
    run: Run, target: Any, kernel: str | Kernel, trial: Trial, display: Display
) -> RunRecord:
    """Return the record of the small annealing."""
    assert trial.plan is not None
    setup = annealing_setup(target, kernel)
    context = RunContext(
        setup, trial.plan, trial.plan, run.size, run.seed, None, run.shown_on(display)
    )
    return run.empty(context).updated(Role.FORWARD, trial.blocks)


def _refined(
    run: Run, record: RunRecord, bridging: Bridging, started: float
) -> tuple[RunRecord, list[LogEvidence]]:
    """Return the record with draws from a fitted density, and its estimates.

    The density is fitted again while the fit is poor. Draws from it are added while they, and not
    the given draws, limit the error. Upon Ctrl-C the record is the last one of which estimates were
    made.
    """
    limits, refits, additions, hoped = run.limits, _REFITS, _ADDITIONS, np.inf
    one_round = limits.target_mcse is None and not np.isfinite(limits.max_time)
    blocks = bridging.extend(record.of(Role.GIVEN), run.execute)
    try:
        while True:
            record = with_bridges(record, Role.GIVEN, blocks, bridging)
            best, *_ = found = estimates(record)
            small = best.mcse <= (limits.target_mcse or 0.0)
            if one_round or (small and best.status == Status.OK):
                return record, found
            if refits and not is_good(blocks):
                refits -= 1
                growth = min(_GROWTH, _most(limits, len(blocks)) / _drawn(blocks))
                blocks = better(blocks, bridging.refitted(blocks, growth, run.execute))
                continue
            n, reason = _further(best, blocks, limits, run.time() - started)
            if not additions or best.mcse > hoped:
                n, reason = 0, GIVEN_DRAWS
            if not n:
                missed = limits.target_mcse is not None
                return _ended(record, limits, reason) if missed else (record, found)
            additions, hoped = additions - 1, _hoped(best.mcse, _drawn(blocks), n)
            blocks = bridging.drawn_further(blocks, n, run.execute)
    except KeyboardInterrupt as error:
        return stopped(run.journal, record, limits.target_mcse, error)


def _further(
    best: LogEvidence, blocks: Sequence[BlockRecord], limits: Limits, elapsed: float
) -> tuple[int, str]:
    """Return how many further draws each group needs, or 0 and why there are none."""
    target_mcse = limits.target_mcse or 0.0
    if not np.isfinite(best.mcse) or best.mcse <= target_mcse:
        return 0, GIVEN_DRAWS
    done, growth = _drawn(blocks), _LARGEST_GROWTH
    if target_mcse:
        growth = min(growth_for(best.mcse, target_mcse, 1.3), growth)
    if elapsed > limits.max_time:
        return 0, Status.MAX_TIME
    left = _most(limits, len(blocks)) - done
    return int(max(min(growth * done, left), 0)), Status.MAX_DRAWS


def _drawn(blocks: Sequence[BlockRecord]) -> int:
    """Return the number of draws from the fitted density for each group."""
    return max(len(block.bridge[0]) for block in blocks if block.bridge is not None)


def _hoped(mcse: float, done: int, further: int) -> float:
    """Return the error below which further draws of each group were worth their cost."""
    return mcse * (1.0 - _LEAST_GAIN * (1.0 - (done / (done + further)) ** 0.5))


def _ended(record: RunRecord, limits: Limits, reason: str) -> tuple[RunRecord, list[LogEvidence]]:
    """Return record and estimates, which say why the error is larger than asked for."""
    record = replace(record, info={**record.info, **limits.missed(reason)})
    return record, estimates(record)
