"""The run of one target: its coordinates, its setup, and the facts that every record holds."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray

from pm_evidence.core.contracts import Target
from pm_evidence.core.exceptions import NumericalError, warn
from pm_evidence.core.random import Phase, seed_of_run
from pm_evidence.core.records import (
    BlockRecord,
    Facts,
    Role,
    RunRecord,
    StageTrace,
    Status,
    with_pointer,
)
from pm_evidence.references.target import ReferencedTarget
from pm_evidence.runs.defaults import along, annealing_setup
from pm_evidence.runs.references import with_reference
from pm_evidence.runs.result import posterior_draws
from pm_evidence.runs.rounds import Found, Run, was_interrupted
from pm_evidence.samplers.aisel import choose_particles, measure, tau_of
from pm_evidence.samplers.planning import Pilot
from pm_evidence.samplers.sampler import ReverseStarts, Sampler
from pm_evidence.targets.estimated.target import EstimatedTarget
from pm_evidence.targets.model.coordinates import Centring, best_centring
from pm_evidence.targets.model.data_points import DataPointsTarget
from pm_evidence.targets.model.target import PyMCTarget, ReparameterisedTarget

Floats = NDArray[np.float64]


def with_particles(run: Run, target: Any, chosen: Sampler) -> tuple[Run, Any]:
    """Return the run and the target with what annealing needs where a likelihood is estimated.

    Numbers of particles are chosen, and the kernel is that of the sampler unless the user gives a
    kernel object. For any other target both are returned unchanged.
    """
    if not isinstance(target, EstimatedTarget):
        return run, target
    annealing_setup(target, run.kernel)  # it refuses kernels that cannot be used
    moves = chosen.likelihood_moves if isinstance(run.kernel, str) else run.kernel
    if chosen.n_seeds is not None:
        n_particles, _ = zip(*target.settings(), strict=True)
        target = target.with_settings([(n, chosen.n_seeds) for n in n_particles])

    def settings() -> tuple[tuple[int, int], ...]:
        return choose_particles(target, moves, run.seed, run.display.pilot).settings()

    target = target.with_settings(run.journal.remembered("particles", settings))
    return replace(run, kernel=moves), target


def _with_precision(run: Run, found: Found) -> Found:
    """Return what was found with the measured noise of an estimated likelihood."""
    target, record = found.target, found.record
    drawn = posterior_draws(run, record) if isinstance(target, EstimatedTarget) else None
    if drawn is None:
        return found
    x = drawn.draws.reshape(-1, drawn.draws.shape[-1])[:, : target.n_dim]
    noise = partial(measure, target, x, run.seed, tau_of(record.beta))
    precision = run.journal.remembered("noise", noise)
    _, n_seeds = zip(*target.settings(), strict=True)
    return found.stating(**precision.facts(), n_seeds=list(n_seeds))


# Each run looks at so many of its draws. If these have at most the next number of values, all of
# its draws are compared with as many prior draws, and with at least the third number of them.
_GLANCE, _FEW_AT_A_GLANCE, _LEAST_DRAWS = 16, 5, 1000
# A likelihood with at most so many values in all consists of steps. Digits that values may differ
# in because of rounding are left out.
_FEW, _DIGITS = 10, 9


def finished(run: Run, found: Found) -> Found:
    """Return what a run of a model found, with what its draws and its prior say of it.

    The likelihood may have taken few values over all draws. Gradients, weights, and what the
    islands have in common show nothing of a step that no draw has hit. The record then holds how
    many values there were, and how many independent prior draws have shown no others.

    Models of discrete variables alone are left out: few states have few values. So are likelihoods
    that no variable enters, and those with a single value beside zero, which are the indicator of
    a region and have no other value.
    """
    found = found.stating(log_prior_mass=found.target.log_prior_mass)
    target, record = found.target, found.record
    target = target.model if isinstance(target, ReferencedTarget) else target
    if not isinstance(target, PyMCTarget) or isinstance(target, DataPointsTarget):
        return found
    if not (target.continuous.size and target.likelihood_varies) or was_interrupted(record):
        return found
    draws = [np.asarray(block.draws) for block in record.sources if block.draws is not None]
    x = np.concatenate([np.empty((0, target.n_dim)), *draws])
    glance = x[np.linspace(0, len(x) - 1, _GLANCE).astype(np.int64)] if len(x) else x
    if not len(x) or len(_values(target, glance)) > _FEW_AT_A_GLANCE:
        return found
    n = max(len(x), _LEAST_DRAWS)
    prior = target.finite_prior_points(n, SeedSequence(seed_of_run(run.seed, Phase.CHECK)))
    values = _values(target, np.concatenate([prior, x]))
    found = found.stating(n_evaluations=record.facts.n_evaluations + len(prior) + len(x))
    is_indicator = len(values) == 2 and values[0] == -np.inf
    if len(values) > _FEW or is_indicator:
        return found
    return found.stating(n_values=len(values), n_prior_draws=len(prior))


def _values(target: Any, x: Floats) -> Floats:
    """Return the distinct values of the log likelihood at some points, in rising order."""
    return np.unique(np.round(target.evaluate(x).log_density[:, 1], _DIGITS))


# A warning is issued if the density is NaN at a larger share of the proposals.
_NAN_SHARE = 1e-3


def anneal(run: Run, target: Target, starts: ReverseStarts | None = None) -> Found:
    """Anneal a target from its reference."""
    if target.n_dim == 0:
        return Found(target, _nothing_to_sample(target))
    with run.display.compiling():  # the gradient, if the kernel needs it
        setup = along(target, annealing_setup(target, run.kernel), run.path)
    return finished(run, _with_precision(run, run.anneal(target, setup, starts)))


def _nothing_to_sample(target: Any) -> RunRecord:
    """Return the record of a model without free variables: its likelihood is its evidence."""
    log_likelihood = target.draw(1, np.random.SeedSequence(0)).log_density[:, 1]
    nothing = StageTrace(-log_likelihood, np.zeros(1), np.ones(1), np.full(1, np.nan), np.ones(1))
    blocks = [BlockRecord(i, -log_likelihood, nothing, relative_variance=0.0) for i in range(2)]
    facts = Facts(log_prior_mass=0.0)
    return RunRecord("smc", np.array([0.0, 1.0]), {Role.FORWARD: blocks}, facts=facts)


def _of_discrete(target: Any) -> str:
    """Return what helps if discrete variables of a model were sampled."""
    of_model = isinstance(target, PyMCTarget) and target.discrete.size
    variables = target.layout.variables if of_model else ()
    names = [v.name for v in variables if not v.dtype.startswith("float")]
    if not names:
        return ""
    return (
        f" Discrete variables were sampled, {', '.join(names)}: labels and hidden Markov chains "
        f"can be summed out, by pymc_extras.marginalize(model, {names})."
    )


def warn_of(found: Found) -> None:
    """Warn if an estimate should not be relied on, or if the density was often NaN."""
    best, facts = found.best, found.record.facts
    if best.status != Status.OK:
        message = with_pointer(best.status, best.message)
        warn(f"status {best.status!r}: {message}{_of_discrete(found.target)}")
    if facts.n_nan > _NAN_SHARE * facts.n_evaluations:
        warn(
            f"the log density was NaN at {facts.n_nan} of {facts.n_evaluations} proposals; they "
            "were rejected, so the evidence only covers the region where the density is defined. "
            "Look for an overflow, or for a covariance that is not positive definite."
        )


def over_prior(run: Run, found: Found, prior: Target) -> Found:
    """Return what was found with the constant that normalises a prior with potentials."""
    if was_interrupted(found.record):
        raise KeyboardInterrupt
    kernel = "auto" if isinstance(found.target, EstimatedTarget) else run.kernel
    run = replace(run, seed=seed_of_run(run.seed, Phase.PRIOR), kernel=kernel, path="auto")
    return found.stating(prior_constant=anneal(run, prior).best)


_PILOT_PARTICLES = 200


@dataclass(frozen=True)
class Choice:
    """The coordinates of a run, and what choosing them cost."""

    target: Any  # the target in these coordinates
    before: Any = None  # the target as it was; None if it keeps its coordinates
    n_evaluations: int = 0  # density (or gradient) evaluations of the pilot
    seconds: float = 0.0  # duration of the pilot

    def converted(self, draws: Any) -> Any:
        """Return draws of the target as it was in the chosen coordinates, if there are any."""
        if draws is None or self.before is None:
            return draws
        centring, chosen = self.before.centring, self.target.centring
        return self.target.coordinates.converted(np.asarray(draws), centring, chosen)

    def added_to(self, record: RunRecord) -> RunRecord:
        """Return the record of the run with the choice and its cost."""
        if self.before is None:
            return record
        names = [str(variable.rv.name) for variable in self.target.variables]
        amounts = np.round(self.target.centring.amount, 2).tolist()
        return record.stating(
            n_evaluations=record.facts.n_evaluations + self.n_evaluations,
            tuning_time=(record.facts.tuning_time or 0.0) + self.seconds,
            centring=dict(zip(names, amounts, strict=True)),
        )


def in_best_coordinates(target: Any, *draws: Any, stay: bool = False) -> Choice:
    """Return the coordinates that draws show to be best, or with ``stay`` those of the target."""
    if not isinstance(target, ReparameterisedTarget) or not target.variables:
        return Choice(target)
    if stay:
        return Choice(target, target)
    centring = best_centring(target.effects(np.concatenate(draws)))
    return Choice(target.centred_by(centring), target)


def anneal_moved(run: Run, target: Any, starts: ReverseStarts | None = None) -> Found:
    """Anneal a target from the reference of the run, in coordinates that a pilot finds best."""
    choice = coordinates_by_pilot(run, target)
    if starts is not None:
        starts = replace(starts, draws=choice.converted(starts.draws))
    limits = replace(run.limits, max_time=max(run.limits.max_time - choice.seconds, 0.0))
    run = replace(run, limits=limits)
    found = anneal(run, with_reference(run, choice.target), starts)
    return replace(found, target=choice.target, record=choice.added_to(found.record))


def coordinates_by_pilot(run: Run, target: Any) -> Choice:
    """Return the coordinates that a pilot finds best."""
    if not isinstance(target, ReparameterisedTarget) or not target.variables:
        return Choice(target)
    started = run.time()
    with run.display.compiling():
        setup = annealing_setup(target, run.kernel)
    pilot = Pilot(_PILOT_PARTICLES, run.sampler.chain_length, run.sampler.ess)
    seed = seed_of_run(run.seed, Phase.COORDINATES)

    def chosen() -> tuple[Centring, int]:
        try:
            plan = pilot.run(setup.path, setup.kernel, seed, run.display.pilot)
        except NumericalError:
            return Centring.common(1.0, len(target.variables)), _PILOT_PARTICLES
        return best_centring(target.effects(plan.population.x)), plan.n_evaluations

    centring, n_evaluations = run.journal.remembered("coordinates", chosen)
    return Choice(target.centred_by(centring), target, n_evaluations, run.time() - started)
