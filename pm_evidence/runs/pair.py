"""The log Bayes factor of two models by annealing from one to the other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import Plan
from pm_evidence.core.exceptions import ModelError
from pm_evidence.core.interrupts import Report, silent
from pm_evidence.core.numerics import ess_share, moments
from pm_evidence.core.random import Phase, generator
from pm_evidence.core.records import BlockRecord, Facts, LogEvidence, Role, RunRecord, StageTrace
from pm_evidence.estimators.bar import overlap
from pm_evidence.estimators.verdicts import GIVEN_DRAWS
from pm_evidence.kernels.cycle import choose_kernel
from pm_evidence.paths.geometric import PairPath
from pm_evidence.references.pair import ALIGNMENTS, Alignment, LinkingDensity, PairTarget
from pm_evidence.results import schema
from pm_evidence.results.stored import estimate_of
from pm_evidence.runs.defaults import effort_of, lacking
from pm_evidence.runs.given import bridge_given
from pm_evidence.runs.references import groups_of, rows_and_variables
from pm_evidence.runs.result import fitted_and_drawn
from pm_evidence.runs.rounds import (
    Additions,
    Found,
    Growth,
    Limits,
    Run,
    Step,
    until_small,
    was_interrupted,
)
from pm_evidence.runs.routes import anneal_by_routes
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.planning import Pilot
from pm_evidence.targets.layout import PairLayout
from pm_evidence.targets.model.coordinates import Centring
from pm_evidence.targets.model.target import ReparameterisedTarget

Floats = NDArray[np.float64]


_BLOCK = 128  # paths that move together
_DIRECTIONS = Role.FORWARD, Role.REVERSE


@dataclass(frozen=True)
class PairBlock:
    """A task for a worker: a block of annealed paths from one of the posteriors to the other."""

    path: PairPath  # from the first posterior to the second
    plan: Plan  # inverse temperatures, and the kernel of each stage
    role: Role  # forward paths start from the first posterior, reverse paths from the second
    block: int  # index of the block
    starts: Floats  # shape (n, n_dim): where its paths start
    origin: NDArray[np.int64]  # shape (n,): group of posterior draws that each start comes from
    seed: int  # seed of the run

    def __call__(self, report: Report = silent) -> BlockRecord:
        """Run the block."""
        if self.role == Role.REVERSE:
            return AIS().run_reverse(
                self.path, self.plan, self.block, self.starts, self.origin, self.seed, report
            )
        path, n = replace(self.path, starts=self.starts), len(self.starts)
        made = AIS().run_block(path, self.plan, self.block, n, self.seed, report)
        return replace(made, origin=self.origin, draws=None, log_weight=None)


def crossed_at_once(blocks: Sequence[PairBlock]) -> list[BlockRecord]:
    """Return the work of paths of a single stage, on which nothing moves: that at posterior draws.

    With Bennett's ratio this is bridge sampling between two posteriors.
    """
    made = []
    for block in blocks:
        state = block.path.at(block.starts)
        work = block.path.energy(state, 0.0)
        if block.role == Role.FORWARD:  # a density that is not defined counts as zero
            work = np.where(np.isnan(work), np.inf, work)
        ess = np.array([ess_share(-work if block.role == Role.FORWARD else work)])
        trace = StageTrace(*moments(work[None]), ess, np.full(1, np.nan))
        n = 2 * len(work)  # the densities of both models
        made.append(BlockRecord(block.block, work, trace, origin=block.origin, n_evaluations=n))
    return made


# Error of the coarse evidence in nats. It also sets the effort of the search for missed modes.
_COARSE = 0.02
# Draws from a fitted density, each of which costs one evaluation, and how many times as many there
# are at most for smaller errors than the usual one.
_DRAWS, _MOST_TIMES = 12_000, 6.0
# Least number of draws that weighted ones are resampled to, and the groups into which these are
# divided: the error is that of their spread.
_LEAST, _GROUPS = 400, 32


@dataclass(frozen=True)
class ModelDraws:
    """Posterior draws of a model, and its coarse evidence."""

    target: Any  # the model
    x: Floats  # shape (n, n_dim): draws of equal weight, in the coordinates of ``target``
    group: NDArray[np.int64]  # shape (n,): draws of different groups are independent
    # A coarse evidence, whose status tells whether the draws can be relied on
    evidence: LogEvidence
    n_evaluations: int  # density (or gradient) evaluations

    @property
    def centring(self) -> dict[str, tuple[float, float]]:
        """Amount and log unit of every partly centred variable, by name."""
        if not isinstance(self.target, ReparameterisedTarget):
            return {}
        centring, names = self.target.centring, [v.rv.name for v in self.target.variables]
        amounts = zip(centring.amount, centring.log_unit, strict=True)
        return dict(zip(names, amounts, strict=True))

    def centred_like(self, centring: dict[str, tuple[float, float]]) -> "ModelDraws":
        """Return the draws in coordinates of another centring, by name of the variable."""
        if not isinstance(self.target, ReparameterisedTarget):
            return self
        old = self.target.centring
        chosen = [centring[name] for name in self.centring]
        new = Centring(tuple(c[0] for c in chosen), tuple(c[1] for c in chosen))
        x = self.target.coordinates.converted(self.x, old, new)
        return replace(self, target=self.target.centred_by(new), x=x)


def check_annealed(target: Any, which: str) -> None:
    """Raise ModelError unless a model can be annealed to or from another."""
    problem = lacking(target)
    if not problem:
        return
    raise ModelError(
        "annealing between models needs continuous variables and a likelihood that can be "
        f"evaluated, got {problem} in the {which} model; compare the evidences of both: "
        "pe.compare_models."
    )


def model_draws(run: Run, target: Any, given: Any, name: str) -> ModelDraws:
    """Return posterior draws of a model."""
    if schema.LOG_EVIDENCE in getattr(given, "children", ()):
        return _of_result(target, given, name)
    first_round = run.sampler.first_round(run.size)
    times = (_COARSE / (run.limits.target_mcse or _COARSE)) ** 2
    n_draws = int(_DRAWS * effort_of(target) * np.clip(times, 1.0, _MOST_TIMES))
    limits = Limits(target_mcse=_COARSE, max_draws=10 * first_round, asked=False)
    run = replace(run, limits=limits)
    if given is None:
        found = anneal_by_routes(run, target, n_draws)
    else:
        found = bridge_given(run, target, given)
    target, record = found.target, found.record
    if was_interrupted(record):  # one model alone gives no Bayes factor
        raise KeyboardInterrupt
    blocks = record.of(Role.GIVEN)
    if blocks:
        x = np.concatenate([np.asarray(block.draws) for block in blocks])
        group = np.repeat([b.block for b in blocks], [len(np.asarray(b.draws)) for b in blocks])
    else:
        fitted, (x, group) = fitted_and_drawn(run, record, found.evidence, (_LEAST, n_draws))
        if fitted:
            order, n = np.argsort(group), sum(len(np.asarray(each.fit_draws)) for each in fitted)
            x, group = x[order], group[order] * _GROUPS // n
    return ModelDraws(target, x, group, found.best, record.facts.n_evaluations)


def _of_result(target: Any, dt: Any, name: str) -> ModelDraws:
    """Return the draws of a result of ``sample_evidence``."""
    x, draws = rows_and_variables(target, dt, name)
    stats = dt[schema.SAMPLE_STATS] if schema.SAMPLE_STATS in dt.children else {}
    group = groups_of(*next(iter(draws.values())).shape[:2])
    if schema.DRAW_ORIGIN in stats and dt[schema.POSTERIOR].attrs.get(schema.DRAWN_FROM):
        origin = stats[schema.DRAW_ORIGIN].values.ravel()
        known, place = np.unique(origin, return_inverse=True)
        group = place.ravel() * min(_GROUPS, len(known)) // len(known)
    order = np.argsort(group, kind="stable")
    return ModelDraws(target, x[order], group[order], estimate_of(dt, name), 0)


_NAME = "model_to_model"
# With less overlap between the posteriors, the error would depend on a few draws.
_LEAST_OVERLAP = 0.05
# One of so many groups of draws judges maps that are fitted to the others; least number of groups.
_JUDGED, _LEAST_GROUPS = 4, 4
# The pilot: particles for each coordinate, and bounds; length of chains.
_PER_DIMENSION, _PARTICLES, _LENGTH = 10, (400, 4000), 5
# Paths in each direction of the first round; most rounds, and growth of a round.
_PATHS, _ROUNDS, _GROWTH = 512, 4, Growth(reserve=1.2, most=4.0)


@dataclass(frozen=True)
class Half:
    """Draws of both models, and the path between posteriors that was fitted to other draws."""

    path: PairPath  # the path
    # shape (n, n_dim): draws of the reference model and of the target model, as points of both
    starts: tuple[Floats, ...]
    group: tuple[NDArray[np.int64], ...]  # shape (n,): groups of these draws


def blocks_of(
    halves: Sequence[Half],
    record: RunRecord,
    plan: Plan,
    seed: int,
    rng: np.random.Generator,
    n: int | None = None,
) -> list[PairBlock]:
    """Return blocks of ``n`` further paths in each direction, from draws of all groups.

    If ``n`` is left out, there is one block for each half, of a path from each draw.
    """
    number, found = {role: len(record.of(role)) for role in _DIRECTIONS}, []
    for half in halves:
        for role, x, group in zip(_DIRECTIONS, half.starts, half.group, strict=True):
            parts = [np.arange(len(x))]
            if n is not None:
                m = -(-n // len(halves))
                chosen = ((np.arange(m) + rng.uniform()) * len(x) / m).astype(np.int64)
                parts = np.array_split(chosen, -(-m // _BLOCK))
            for part in parts:
                starts = x[part], group[part]
                found.append(PairBlock(half.path, plan, role, number[role], *starts, seed))
                number[role] += 1
    return found


def anneal_between(run: Run, first: ModelDraws, second: ModelDraws) -> Found:
    """Estimate the log Bayes factor of the first model against the second."""
    first, second = _in_common_coordinates(first, second)
    halves = _halves(run.seed, second, first)
    target = halves[0].path.target
    facts = Facts(
        evidences=(first.evidence, second.evidence),
        shared=list(target.layout.names),
        n_evaluations=first.n_evaluations + second.n_evaluations,
    )
    record = RunRecord(_NAME, np.array([0.0, 1.0]), {}, facts=facts)
    at_once = Found(target, _crossed(run, record, halves))
    if _is_enough(run, at_once):
        return at_once
    record = record.stating(n_evaluations=at_once.record.facts.n_evaluations)
    return _annealed(run, Found(target, record), halves)


def _in_common_coordinates(first: ModelDraws, second: ModelDraws) -> tuple[ModelDraws, ModelDraws]:
    """Return draws in coordinates that mean the same in both models.

    Effects that both models can partly centre are centred as in the first one. Effects of which
    only one of two models of the same variable can do so are centred in full, as the user wrote.
    """
    known = [model.centring for model in (first, second)]
    names = [{v.name for v in model.target.layout.variables} for model in (first, second)]
    chosen: dict[str, tuple[float, float]] = {}
    for k in (0, 1):
        for name, centring in known[k].items():
            alone = name in names[1 - k] and name not in known[1 - k]
            chosen.setdefault(name, (1.0, 0.0) if alone else centring)
    return first.centred_like(chosen), second.centred_like(chosen)


def _halves(seed: int, reference: ModelDraws, target: ModelDraws) -> list[Half]:
    """Return the draws in two halves, each with a path that is fitted to the other half."""
    models, rng = (reference, target), generator(seed, Phase.FIT)
    layout = PairLayout.of(reference.target, target.target)
    groups = [np.unique(model.group) for model in models]
    parts = [
        [_part(model, g[k::2]) for model, g in zip(models, groups, strict=True)] for k in (0, 1)
    ]
    kinds = [_best_alignment(parts[k], layout, rng) for k in (0, 1)]
    return [_half(parts[k], layout, parts[1 - k], kinds[1 - k], rng) for k in (0, 1)]


def _best_alignment(
    models: Sequence[ModelDraws], layout: PairLayout, rng: np.random.Generator
) -> str:
    """Return the kind of map after which the posteriors overlap best.

    A quarter of the groups judges maps that are fitted to the others. These are all draws that a
    map will be fitted to, none of those that it will be used on: a choice by the latter would bias
    the estimate.
    """
    groups = [np.unique(model.group) for model in models]
    if min(map(len, groups)) < _LEAST_GROUPS:
        return ALIGNMENTS[0]
    judges = [_part(model, g[::_JUDGED]) for model, g in zip(models, groups, strict=True)]
    fitted = [
        _part(model, np.setdiff1d(g, g[::_JUDGED])) for model, g in zip(models, groups, strict=True)
    ]
    shares = [_overlap(_half(judges, layout, fitted, kind, rng)) for kind in ALIGNMENTS]
    return ALIGNMENTS[int(np.argmax(shares))]


def _overlap(half: Half) -> float:
    """Return how well the posteriors overlap, from 0 to 1."""
    path = half.path
    forward, reverse = (path.energy(path.at(x), 0.0) for x in half.starts)
    forward = np.where(np.isnan(forward), np.inf, forward)
    usable = reverse[np.isfinite(reverse)]
    return overlap(forward, usable).share if usable.size else 0.0


def _part(model: ModelDraws, groups: NDArray[np.int64]) -> ModelDraws:
    """Return the draws of some groups."""
    mine = np.isin(model.group, groups)
    return replace(model, x=model.x[mine], group=model.group[mine])


def _half(
    used: Sequence[ModelDraws],
    layout: PairLayout,
    fitted: Sequence[ModelDraws],
    kind: str,
    rng: np.random.Generator,
) -> Half:
    """Return draws with the path between posteriors that is fitted to others."""
    shared = [model.x[:, layout.aligned_of(k)] for k, model in enumerate(fitted)]
    alignment = Alignment.of(kind, *shared)
    linking = []
    for k in (0, 1):
        # a model is completed by the coordinates that only the other one has
        own, x = layout.own[1 - k], np.zeros((len(fitted[1 - k].x), layout.n_dim))
        x[:, layout.of_model[1 - k]] = fitted[1 - k].x
        if k == 0:
            x[:, layout.aligned] = alignment.back(x[:, layout.aligned])
        circular = layout.period[own] > 0.0
        linking.append(LinkingDensity.to(x, own[~circular], layout.aligned, own[circular]))
    target = PairTarget([model.target for model in used], layout, linking, alignment)
    starts = tuple(target.completed(model.x, k, rng) for k, model in enumerate(used))
    return Half(PairPath(target, starts[0]), starts, tuple(model.group for model in used))


def _crossed(run: Run, record: RunRecord, halves: Sequence[Half]) -> RunRecord:
    """Return the record with the work at the posterior draws, between which nothing moves."""
    nothing, rng = Plan(np.array([0.0, 1.0]), ()), generator(run.seed, Phase.START)
    tasks = blocks_of(halves, record, nothing, run.seed, rng)
    record = _with_blocks(record, tasks, crossed_at_once(tasks))
    without = int(np.count_nonzero(~np.isfinite(record.work(Role.REVERSE))))
    if without:
        raise ModelError(
            "posterior draws of the first model must have a density in the second one, got "
            f"{without} of {record.work(Role.REVERSE).size} without: the likelihoods are zero in "
            "different regions. Exchange the models, or compare the evidences of both: "
            "pe.compare_models."
        )
    return record


def _with_blocks(record: RunRecord, tasks: Sequence[PairBlock], made: Sequence[Any]) -> RunRecord:
    """Return the record with more blocks and their cost."""
    spent = record.facts.n_evaluations + sum(block.n_evaluations for block in made)
    for role in _DIRECTIONS:
        mine = [block for task, block in zip(tasks, made, strict=True) if task.role == role]
        record = record.extended(role, mine)
    return record.stating(n_evaluations=spent)


def _is_enough(run: Run, found: Found) -> bool:
    """Return whether annealing is not needed, or would not help."""
    record, best, target_mcse = found.record, found.best, run.limits.target_mcse
    small = bool(np.isfinite(best.mcse)) and (target_mcse is None or best.mcse <= target_mcse)
    if not small or best.estimator != "bar":
        return small
    both = overlap(record.work(Role.FORWARD), record.work(Role.REVERSE))
    return bool(both.share >= _LEAST_OVERLAP)


def _annealed(run: Run, found: Found, halves: Sequence[Half]) -> Found:
    """Return what annealed paths in both directions find."""
    path = halves[0].path
    with run.display.compiling():
        kernel = choose_kernel(path.target, "auto")
    n = int(np.clip(_PER_DIMENSION * path.target.n_dim, *_PARTICLES))
    coarse = Pilot(n, _LENGTH).run(path, kernel, run.seed, run.display.pilot)
    plan = AIS().follow(coarse)
    spent = found.record.facts.n_evaluations + coarse.n_evaluations
    found = found.with_record(replace(found.record, beta=plan.beta).stating(n_evaluations=spent))
    rng, additions = generator(run.seed, Phase.START, 1), Additions(_ROUNDS - 1)
    target_mcse = run.limits.target_mcse

    def round_of(n: int) -> Step:
        def extended(record: RunRecord) -> RunRecord:
            tasks = blocks_of(halves, record, plan, run.seed, rng, n)
            return _with_blocks(record, tasks, run.show("Paths", tasks, plan))

        return extended

    def rule(found: Found) -> Step | str | None:
        done, error = found.record.work(Role.FORWARD).size, found.best.mcse
        if target_mcse is None or not np.isfinite(error) or error <= target_mcse:
            return None
        if additions.ended(error):
            return GIVEN_DRAWS
        n = max(int(_GROWTH.to(target_mcse, error) * done), _PATHS)
        additions.add(error, done, n)
        return round_of(n)

    return until_small(run, found, round_of(_PATHS), rule)
