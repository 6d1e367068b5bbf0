"""The cheapest route to an evidence: a coarse annealing, and draws from a density fitted to it.

A few hundred particles are annealed from the prior on small islands. Their own estimate is unbiased
and coarse, and their draws show where the posterior lies. A density is fitted to these draws and
to the peaks that a survey finds. Draws from this density, which cost one evaluation each, give the
evidence. The coarse estimate, the bridge to the islands, and the weights of the draws check it.

A posterior that is known to be log-concave, given at most a few hyperparameters, is approximated
first, and the approximation becomes a part of the fitted density. If the posterior seems concave in
the hyperparameters as well, the particles are annealed from the approximation, and nothing else is
searched for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.interrupts import Interrupted
from pm_evidence.core.numerics import ess_share, normalised
from pm_evidence.core.random import Phase, generator, seed_of_run
from pm_evidence.core.records import BlockRecord, LogEvidence, Role, RunRecord, Status
from pm_evidence.core.rows import one_blas_thread
from pm_evidence.estimators.errors import pareto_k
from pm_evidence.paths.geometric import GeometricPath, Posterior
from pm_evidence.references.target import ReferencedTarget
from pm_evidence.runs import defaults
from pm_evidence.runs.anneal import finished, in_best_coordinates
from pm_evidence.runs.references import small_run
from pm_evidence.runs.rounds import (
    EVALUATIONS_EACH,
    WORTH_SAYING,
    Found,
    Growth,
    Run,
    Step,
    seconds_each,
    stopped,
    until_small,
    with_bridges,
    with_costs,
)
from pm_evidence.samplers.bridge import Bridging, Costs
from pm_evidence.samplers.nested_laplace import MOST_DENSE, explore
from pm_evidence.samplers.peaks import Survey
from pm_evidence.samplers.planning import Pilot
from pm_evidence.samplers.smc import SMC
from pm_evidence.targets.model.cache import target_of
from pm_evidence.targets.model.target import ReparameterisedTarget

Floats = NDArray[np.float64]


# Starts of the exploration of hyperparameters, and further ones where the usual error is asked for.
_FEW_STARTS, _STARTS = 2, 22
# Hyperparameters at which narrow peaks are searched for where the posterior is not concave in them,
# and further ones where the usual error is asked for.
_FEW_SEARCHED, _SEARCHED = 3000, 3000


@dataclass(frozen=True)
class Start:
    """What a coarse annealing starts from."""

    target: Any  # the target, in the coordinates in which it is approximated if it is
    annealed: Any  # the target with the reference that it is annealed from
    approximation: Survey | None = None  # an approximation of the posterior
    n_evaluations: int = 0  # evaluations that this cost


def start_of(run: Run, target: Any, share: float) -> Start:
    """Return a start from the prior, or from an approximation if one is known to be complete.

    Non-centred coordinates are tried first, then centred ones. If the noise is a variable and may
    be small, so that the data determine the effects, only the latter may be good.
    """
    if target.hyperparameters is None or target.differentiable is None:
        return Start(target, target)
    n_starts, found = _FEW_STARTS + int(share * _STARTS), list[Survey]()
    with one_blas_thread():
        forms = _forms(target)
        layout, hyper = forms[0].layout, {v.name for v in target.hyperparameters}
        positions = layout.positions_of(v for v in layout.variables if v.name in hyper)
        is_concave, spent = target.is_concave_in_hyperparameters, 0
        n_searched = 0 if is_concave else int(_FEW_SEARCHED + share * _SEARCHED)
        for form in forms:
            rng = generator(run.seed, Phase.REFERENCE, len(found))
            given = positions, n_starts, n_searched, rng
            found.append(
                run.journal.remembered("laplace", partial(explore, Posterior(form), *given))
            )
            spent += found[-1].n_evaluations
            if found[-1].complete or not is_concave:
                break
    if not found[-1].complete:
        if not found[0].n_peaks:
            return Start(target, target, None, spent)
        return Start(forms[0], forms[0], replace(found[0], complete=False), spent)
    names = ", ".join(variable.name for variable in target.hyperparameters)
    facts = {"reference": "laplace"} | ({"log_concave_given": names} if names else {})
    return Start(form, ReferencedTarget(form, found[-1].reference, facts), found[-1], spent)


def _forms(target: Any) -> list[Any]:
    """Return the target in the coordinates in which it is to be approximated, the first ones first.

    Many variables are approximated as the model has them, where the terms of its density tell which
    second derivatives are zero. Those by the steps of a random walk are not.
    """
    if target.n_dim > MOST_DENSE and isinstance(target, ReparameterisedTarget):
        kwargs, backend = target.compile_kwargs, target.backend
        plain: Any = target_of(target.model, compile_kwargs=kwargs, backend=backend)
        if plain.curvature is not None or any(variable.is_walk for variable in target.variables):
            return [plain]
    centred = target.centred()
    return [target] if centred is target else [target, centred]


# Particles of all islands for this error; for a larger one, at least so many in all, and so many
# for each dimension.
_PARTICLES, _LEAST, _PER_DIMENSION = 320, 64, 2
# Number of islands, and of islands of a run with few particles; effective sample size at every
# stage; rounds of tuning at the first stage and at each later one.
_ISLANDS, _FEW_ISLANDS, _ESS, _ROUNDS = 16, 8, 0.5, (2, 1)
# Share of the particles in the pilot from an approximation, where there is little to be learnt, and
# rounds of tuning.
_SMALL_PILOT, _FEW_ROUNDS = 0.5, (1, 1)
# Length of the chains, also in more than so many dimensions. There, energies differ so much that
# few chains keep states of low energy for many stages: shorter chains are more. They are short from
# a peak, too, where there are hardly any stages: so few particles make more islands.
_LENGTH, _SHORT, _VERY_MANY = 4, 2, 500
# Draws from the fitted density: least number for each island, in each round of the fit, and bounds
# of these where a larger error is asked for.
_DRAWS, _TRIAL, _LEAST_DRAWS, _LEAST_TRIAL = 125, 500, 16, 100
# Least share of the usual budget of the survey, for larger errors than the usual one or for dear
# densities; less for both. It takes the whole budget if it finds several modes.
_LEAST_SURVEY = 0.05
# Where evaluations are dear, the run is as small as that for a larger error, up to the least run.
# Survey and probes cost this multiple of the budget in gradients.
_COARSER, _LEAST_RUN, _ALL_OF_SURVEY = 1.25, 0.05, 1.5
# Evaluations that second derivatives at peaks and along ridges take for each dimension: a latent
# Gaussian process of 322 variables takes some 100.
_OF_CURVATURES = 100
# How often a density is fitted again, to the draws from the one before. The new draws are meant to
# be worth this many independent ones for each dimension, and the next number at most; bounds of
# their number in relation to the present one. A fit to draws from a fit repeats what the first has
# missed.
_REFITS, _WORTH, _MOST_WORTH, _GROWTHS = 3, 40.0, 4000.0, (1.5, 4.0)
# The fit is good if the effective share of the draws is larger, and the Pareto shape of their
# weights smaller. Else, coverage was found to be too low on skewed posteriors. In more than so many
# dimensions a smaller share is enough, because small differences add up.
_GOOD_SHARE, _GOOD_TAIL, _DIMENSIONS = 0.4, 0.5, 20
# Nor is a tail heavy if no weight is larger than this multiple of the mean of the usual number of
# draws, or of all if they are more. Bounded weights in a part of the posterior that has little mass
# seem to have a shape of 0.5 to 1: those of a Gaussian process do in 2,000 draws, and 0 in 40,000.
_LARGEST_WEIGHT = 10.0
# Where the Pareto shape is larger than this and the effective share smaller than the next number,
# draws that seem enough are doubled once: they seem so more often where large weights are missing
# by chance, which makes their mean too small as well.
_LIGHT_TAIL, _EVEN_SHARE = 0.25, 0.9
# Most often that draws are added, and the growth beyond which a better fit is tried instead. Where
# none is known, draws are added by at least this and at most the next growth if the Pareto shape is
# smaller than the last number (Vehtari et al. 2024).
_ADDITIONS, _LARGEST_GROWTH, _MOST_GROWTH, _USABLE_TAIL = 3, 4.0, 16.0, 0.7
_GROWTH = Growth(reserve=1.3)


def importance_route(run: Run, target: Any, least_draws: int = 0) -> Found:
    """Take the cheapest route."""
    started, target_mcse = run.time(), float(run.limits.target_mcse or defaults.USUAL_MCSE)
    with run.display.compiling():
        target.differentiable  # noqa: B018  # its code is made here
    with run.display.working("Approximation"):
        seconds, sized_for = run.journal.remembered(
            "size", lambda: _in_time(run, target, target_mcse)
        )
        start = start_of(run, target, defaults.share_of_effort(sized_for))
    with run.display.compiling():
        setup = defaults.annealing_setup(start.annealed, run.kernel)
    target, approximation = start.target, start.approximation
    is_near = start.annealed is not target
    # Dear densities have fewer particles, except where these check an approximation: the share of
    # the posterior that it may miss is part of the error, and falls with their number.
    sized = sized_for if is_near else sized_for / setup.effort**0.5
    run = _small(run, target.n_dim, _n_particles(target.n_dim, sized), short=is_near)
    sampler: Any = run.sampler
    part, rounds = (_SMALL_PILOT, _FEW_ROUNDS) if is_near else (1.0, _ROUNDS)
    n_pilot = int(part * min(sampler.first_round(run.size), _PARTICLES))
    pilot = Pilot(n_pilot, sampler.chain_length, _ESS, rounds=rounds)
    try:
        small = small_run(run, setup, pilot, "SMC", Phase.FORWARD)
    except Interrupted as error:
        if error.record is None:
            raise
        record = error.record.stating(small_islands=True)
        found = Found(target, record, "importance", certified=False, seconds_each=seconds)
        found = stopped(run, found, error)
        return with_costs(found, start.n_evaluations, run.time() - started, 0.0)
    planned = run.time()
    record = small.record.stating(small_islands=True)
    stay = approximation is not None
    target, record = _in_best_coordinates(target, small.population, record, stay=stay)
    costs, path = _costs(sized_for, setup.effort), GeometricPath(target)
    bridging = Bridging(path, run.seed, costs, run.journal.remembered, approximation)

    def too_late(n_evaluations: float) -> bool:
        """Return whether so many further evaluations would not end within ``max_time``."""
        if not np.isfinite(run.limits.max_time):
            return False
        return run.time() - started + seconds * n_evaluations > run.limits.max_time

    found = Found(target, record, "importance", seconds_each=seconds)
    fits = Fits(run, bridging, Role.FORWARD)
    n_surveyed = _ALL_OF_SURVEY * costs.survey + _OF_CURVATURES * target.n_dim
    if seconds * n_surveyed < WORTH_SAYING or not too_late(n_surveyed):
        with run.display.working("Survey and fit"):
            found = _refined(fits, found, target_mcse, too_late)
    blocks = found.record.of(Role.FORWARD)
    found = replace(found, certified=is_good(blocks))
    if found.certified and least_draws > _log_weight(blocks).size:
        missing = least_draws - _log_weight(blocks).size
        found = found.with_record(fits.draw(-(-missing // len(blocks)))(found.record))
    spent = start.n_evaluations + small.plan.n_evaluations + bridging.n_evaluations
    return finished(run, with_costs(found, spent, planned - started, run.time() - planned))


def _in_time(run: Run, target: Any, target_mcse: float) -> tuple[float, float]:
    """Return the seconds of an evaluation, and the error that the run can be sized for in time."""
    with one_blas_thread():
        seconds = seconds_each(run.limits, target)
    if not seconds:
        return seconds, target_mcse
    most, sized_for = run.limits.affordable(seconds), target_mcse
    while sized_for < _LEAST_RUN and _n_evaluations(target, sized_for) > most:
        sized_for *= _COARSER
    run.limits.warn_of(_n_evaluations(target, max(sized_for, _LEAST_RUN)), seconds)
    return seconds, sized_for


def _n_evaluations(target: Any, target_mcse: float) -> float:
    """Return about how many evaluations a run takes that is sized for an error."""
    survey = 0.0
    if target.differentiable is not None and not target.is_log_concave:
        survey = _ALL_OF_SURVEY * _costs(target_mcse, defaults.effort_of(target)).survey
    return EVALUATIONS_EACH * _n_particles(target.n_dim, target_mcse) + survey


def _n_particles(n_dim: int, target_mcse: float) -> float:
    """Return the number of particles of all islands."""
    least = min(max(_LEAST, _PER_DIMENSION * n_dim), _PARTICLES)
    usual = max(defaults.share_of_effort(target_mcse) * _PARTICLES, least)
    return usual * defaults.grown_effort(target_mcse)


def _small(run: Run, n_dim: int, total: float, *, short: bool) -> Run:
    """Return the run of a few small islands, whose chains may have to be short."""
    length = _SHORT if short or n_dim > _VERY_MANY else _LENGTH
    n_islands = _ISLANDS if total >= 2 * length * _ISLANDS else _FEW_ISLANDS
    size = max(length * round(total / n_islands / length), 2 * length)
    sampler = SMC(islands=n_islands, chain_length=length, ess=_ESS)
    return replace(run, sampler=sampler, size=size, seed=seed_of_run(run.seed, Phase.COARSE))


def _costs(target_mcse: float, effort: float) -> Costs:
    """Return what survey, fit and draws may cost."""
    share, grown = defaults.share_of_effort(target_mcse), defaults.grown_effort(target_mcse)
    usual = Costs.of(max((effort * share) ** 2, _LEAST_SURVEY * max(effort, share)))
    # few draws at first, because further ones are added where the error needs them
    draws, trial = int(share**1.5 * grown * _DRAWS), int(share * _TRIAL)
    return replace(usual, draws=max(draws, _LEAST_DRAWS), trial=max(trial, _LEAST_TRIAL))


def _in_best_coordinates(
    target: Any, population: Floats, record: RunRecord, *, stay: bool
) -> tuple[Any, RunRecord]:
    """Return target and record in the coordinates that all draws show to be best.

    They stay as they are if that is asked for, because an approximation is in these.
    """
    blocks = record.of(Role.FORWARD)
    if any(block.draws is None for block in blocks):
        return target, record
    choice = in_best_coordinates(target, population, *(block.draws for block in blocks), stay=stay)
    if choice.before is not None and not stay:
        moved = [
            replace(
                block,
                draws=choice.converted(block.draws),
                log_density=None,
                visited=choice.converted(block.visited),
            )
            for block in blocks
        ]
        record = record.updated(Role.FORWARD, moved)
    return choice.target, choice.added_to(record)


@dataclass(frozen=True)
class Fits:
    """Steps that make a run longer by a density that is fitted to its draws."""

    run: Run
    bridging: Bridging
    role: Role  # the blocks that the density is fitted to

    def bridge(self, record: RunRecord) -> RunRecord:
        """Return the record with a bridge from a fitted density for every block."""
        return self._with(record, self.bridging.extend(record.of(self.role), self.run.execute))

    def draw(self, n: int) -> Step:
        """Return the step that adds ``n`` draws from the fitted density for each block."""
        bridging, execute = self.bridging, self.run.execute
        return lambda record: self._with(
            record, bridging.drawn_further(record.of(self.role), n, execute)
        )

    def refit(self, growth: float) -> Step:
        """Return the step that fits a density again, and keeps the better one."""

        def step(record: RunRecord) -> RunRecord:
            blocks, fitted = record.of(self.role), self.bridging.proposals
            again = self.bridging.refitted(blocks, growth, self.run.execute)
            if not _share(again) > _share(blocks):  # further draws come from the first fit, too
                self.bridging.proposals = fitted
                again = tuple(
                    replace(block, n_evaluations=other.n_evaluations)
                    for block, other in zip(blocks, again, strict=True)
                )
            return self._with(record, again)

        return step

    def _with(self, record: RunRecord, blocks: Sequence[BlockRecord]) -> RunRecord:
        return with_bridges(record, self.role, blocks, self.bridging)


def _refined(
    fits: Fits, found: Found, target_mcse: float, too_late: Callable[[float], bool]
) -> Found:
    """Return what is found with draws from a fitted density.

    The density is fitted again while the fit is poor, and draws are added while it is good, as far
    as ``too_late`` of the number of evaluations allows it.
    """
    refits, additions, doubled = _REFITS, _ADDITIONS, False

    def rule(found: Found) -> Step | str | None:
        nonlocal refits, additions, doubled
        best, blocks = found.best, found.record.of(Role.FORWARD)
        if any(block.bridge is None for block in blocks):
            return None
        good, ratio, done = is_good(blocks), _error(best, blocks) / target_mcse, drawn(blocks)
        n, growth = 0, _GROWTH.to(1.0, ratio)
        if good and ratio <= 1.0 and best.status == Status.OK:
            # so few and small large weights that draws are not enough by chance
            are_even = _share(blocks) > _EVEN_SHARE or is_good(blocks, _LIGHT_TAIL)
            if doubled or not additions or are_even:
                return None
            n, doubled = done, True
        elif good and best.status == Status.OK and best.estimator != "smc":
            # where this were very many, a better fit is tried instead
            n = max(int(growth * done), done // 4) if growth < _LARGEST_GROWTH else 0
        if not n and additions and (fits.bridging.is_complete or not refits):
            # No better fit is known. Further draws cost less than the next route, and show whether
            # the tail of the weights is heavy, or seemed so because the draws were few.
            additions = 1
            if is_good(blocks, _USABLE_TAIL) and growth < _MOST_GROWTH:
                n = int(max(growth, _LARGEST_GROWTH) * done)
        if too_late(len(blocks) * (n or done)):
            return None
        if n and additions:
            additions -= 1
            return fits.draw(n)
        if refits:
            refits, doubled = refits - 1, False
            return fits.refit(_needed(blocks))
        return None

    return until_small(fits.run, found, fits.bridge, rule)


def _share(blocks: Sequence[BlockRecord]) -> float:
    """Return the effective share of the draws from the fitted density."""
    return float(ess_share(_log_weight(blocks)))


def _log_weight(blocks: Sequence[BlockRecord]) -> Floats:
    return -np.concatenate([block.bridge[0] for block in blocks if block.bridge is not None])


def is_good(blocks: Sequence[BlockRecord], largest_k: float = _GOOD_TAIL) -> bool:
    """Return whether the weights of draws from the fitted density show no sign of a heavy tail."""
    if any(block.bridge is None for block in blocks):
        return False
    n_dim = np.asarray(blocks[0].fit_draws).shape[1]
    if not _share(blocks) > _GOOD_SHARE * min(_DIMENSIONS / n_dim, 1.0):
        return False
    weight = normalised(_log_weight(blocks))
    bounded = weight.max() * max(weight.size, _ISLANDS * _DRAWS) < _LARGEST_WEIGHT
    return bool(bounded) or not pareto_k(_log_weight(blocks)) > largest_k


def _error(best: LogEvidence, blocks: Sequence[BlockRecord]) -> float:
    """Return the error that decides on further draws: at least that of independent draws.

    The stated error of stratified draws comes from the spread of the islands. If it alone decided,
    runs would end when it is small by chance, and state too small an error.
    """
    log_weight = _log_weight(blocks)
    n_reverse = sum(len(block.bridge[1]) for block in blocks if block.bridge is not None)
    independent = np.sqrt((1.0 / ess_share(log_weight) - 1.0) / (log_weight.size + n_reverse))
    return max(best.mcse, float(independent))


def _needed(blocks: Sequence[BlockRecord]) -> float:
    """Return how many draws the next fit needs, as a multiple of the present ones."""
    n_dim = np.asarray(blocks[0].fit_draws).shape[1]
    worth = _share(blocks) * _log_weight(blocks).size
    wanted = min(_WORTH * n_dim, _MOST_WORTH)
    return float(np.clip(wanted / max(worth, 1.0), *_GROWTHS))


def drawn(blocks: Sequence[BlockRecord]) -> int:
    """Return the number of draws from the fitted density for each block."""
    return max(len(block.bridge[0]) for block in blocks if block.bridge is not None)
