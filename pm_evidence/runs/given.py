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
from pm_evidence.core.exceptions import ModelError
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.random import Phase, generator
from pm_evidence.core.records import BlockRecord, Role, StageTrace, Status
from pm_evidence.core.rows import one_blas_thread
from pm_evidence.estimators.of_islands import TOLERATED
from pm_evidence.estimators.verdicts import GIVEN_DRAWS
from pm_evidence.paths.geometric import GeometricPath, Posterior
from pm_evidence.references.mixture import MOST_DIMENSIONS, StudentFit, fit_population
from pm_evidence.results.stored import doubt_of_draws, doubt_of_few, n_divergent
from pm_evidence.runs.anneal import finished, in_best_coordinates
from pm_evidence.runs.defaults import effort_of, lacking
from pm_evidence.runs.importance import Fits, drawn, is_good
from pm_evidence.runs.references import check_run, groups_of, rows_and_variables
from pm_evidence.runs.rounds import Additions, Found, Growth, Run, Step, until_small, with_costs
from pm_evidence.samplers.bridge import Bridging, Costs
from pm_evidence.targets.model.data_points import DataPointsTarget
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
_REFITS, _REFIT_GROWTH = 2, 1.5
# Draws from the fitted density are added at most so often, to at most so many times as many.
_ADDITIONS, _GROWTH = 4, Growth(reserve=1.3, most=8.0)


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
    problem = lacking(target)
    if problem:
        raise ModelError(
            "bridge sampling needs a model of continuous variables with a normalised prior, got "
            f"one with {problem}; use pe.sample_evidence(model), or sum discrete variables out."
        )


def bridge_given(run: Run, target: PyMCTarget, idata: Any) -> Found:
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
    choice = in_best_coordinates(target, x)
    target, x = choice.target, choice.converted(x)
    with one_blas_thread():
        small = check_run(run, target)
        known = None
        if target.n_dim <= MOST_DIMENSIONS:
            rng = generator(run.seed, Phase.REFERENCE, 1)
            known = run.journal.remembered(
                "fit", partial(fit_population, small.draws(run.seed), rng)
            )
        visited = [block.visited for block in small.record.of(Role.FORWARD)]
        grouped = partial(_grouped, target, x, groups_of(*shape), visited)
        blocks = run.journal.remembered("given draws", grouped)
    planned = run.time()
    record = small.record.updated(Role.GIVEN, blocks).stating(
        doubt=", and ".join(filter(None, doubts)),
        n_divergent=n_divergent(idata)[0],
        n_chains=shape[0],
    )
    costs = Costs.of(_SURVEY * effort_of(target))
    least = -(-run.sampler.first_round(run.size) // len(blocks))
    most = max(int(min(run.limits.max_draws / len(blocks), costs.most)), least)
    costs, path = replace(costs, draws=least, most=most), _CheckedPath(target, known)
    fits = Fits(run, Bridging(path, run.seed, costs, run.journal.remembered), Role.GIVEN)
    found = _refined(fits, Found(target, fits.bridge(record)), started)
    spent = small.plan.n_evaluations + fits.bridging.n_evaluations
    found = with_costs(found, spent, planned - started, run.time() - planned)
    return finished(run, found.with_record(choice.added_to(found.record)))


def _grouped(
    target: Any, x: Floats, group: NDArray[np.int64], visited: Sequence[Any]
) -> tuple[BlockRecord, ...]:
    """Return the groups of given draws, each with states that an island visited.

    The work of a group is that of reciprocal importance sampling (Gelfand and Dey 1994) with a
    density fitted to all draws, which is enough to compare the draws with other modes.
    """
    parts = [x[group == g] for g in range(group.max() + 1)]
    parts = [part[:: -(-len(part) // _MOST_DRAWS)] for part in parts]
    crude = StudentFit.to(np.concatenate(parts))
    log_density = [Posterior(target).log_density(part) for part in parts]
    _check_support(np.concatenate(log_density))
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


def _refined(fits: Fits, found: Found, started: float) -> Found:
    """Return what is found with draws from a fitted density.

    The density is fitted again while the fit is poor. Draws from it are added while they, and not
    the given draws, limit the error.
    """
    limits, refits, additions = fits.run.limits, _REFITS, Additions(_ADDITIONS)
    target_mcse = limits.target_mcse or 0.0
    one_round = not target_mcse and not np.isfinite(limits.max_time)

    def rule(found: Found) -> Step | str | None:
        nonlocal refits
        best, blocks = found.best, found.record.of(Role.GIVEN)
        small = best.mcse <= target_mcse
        if one_round or (small and best.status == Status.OK):
            return None
        done, most = drawn(blocks), limits.max_draws / len(blocks)
        if refits and not is_good(blocks):
            refits -= 1
            return fits.refit(min(_REFIT_GROWTH, most / done))
        if small or not np.isfinite(best.mcse) or additions.ended(best.mcse):
            return GIVEN_DRAWS if target_mcse else None
        if fits.run.time() - started > limits.max_time:
            return Status.MAX_TIME if target_mcse else None
        growth = _GROWTH.to(target_mcse, best.mcse) if target_mcse else _GROWTH.most
        n = int(max(min(growth * done, most - done), 0))
        if not n:
            return Status.MAX_DRAWS if target_mcse else None
        additions.add(best.mcse, done, n)
        return fits.draw(n)

    return until_small(fits.run, found, lambda record: record, rule)
