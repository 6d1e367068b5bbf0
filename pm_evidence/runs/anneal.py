"""The run of one target: its coordinates, its setup, and the facts that every record holds."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray

from pm_evidence.core.contracts import Kernel, Path, Target
from pm_evidence.core.exceptions import NumericalError, warn
from pm_evidence.core.interrupts import Report
from pm_evidence.core.random import Phase, seed_of_run
from pm_evidence.core.records import (
    BlockRecord,
    Facts,
    LogEvidence,
    Role,
    RunRecord,
    StageTrace,
    Status,
    with_pointer,
)
from pm_evidence.estimators.of_run import estimates
from pm_evidence.execution.display import Display
from pm_evidence.references.target import ReferencedTarget
from pm_evidence.runs.defaults import along, annealing_setup
from pm_evidence.runs.references import with_reference
from pm_evidence.runs.result import posterior_draws
from pm_evidence.runs.rounds import Run, was_interrupted
from pm_evidence.samplers.aisel import choose_particles, measure, tau_of
from pm_evidence.samplers.planning import Pilot
from pm_evidence.samplers.sampler import ReverseStarts, Sampler
from pm_evidence.targets.estimated.target import EstimatedTarget
from pm_evidence.targets.model.coordinates import Centring, best_centring
from pm_evidence.targets.model.data_points import DataPointsTarget
from pm_evidence.targets.model.target import PyMCTarget, ReparameterisedTarget

Floats = NDArray[np.float64]


def with_particles(
    run: Run, target: Any, kernel: str | Kernel, chosen: Sampler, report: Report
) -> tuple[Any, str | Kernel]:
    """Return the target and the kernel that are used for annealing.

    For an estimated likelihood, numbers of particles are chosen, and the kernel is that of the
    sampler unless ``kernel`` is a kernel object. Any other target is returned unchanged.
    """
    if not isinstance(target, EstimatedTarget):
        return target, kernel
    annealing_setup(target, kernel)  # it refuses kernels that cannot be used
    moves = chosen.likelihood_moves if isinstance(kernel, str) else kernel
    if chosen.n_seeds is not None:
        n_particles, _ = zip(*target.settings(), strict=True)
        target = target.with_settings([(n, chosen.n_seeds) for n in n_particles])

    def settings() -> tuple[tuple[int, int], ...]:
        return choose_particles(target, moves, run.seed, report).settings()

    return target.with_settings(run.journal.remembered("particles", settings)), moves


def kernel_of_prior(target: Any, kernel: str | Kernel) -> str | Kernel:
    """Return the kernel of the run that normalises a prior, where no likelihood is estimated."""
    return "auto" if isinstance(target, EstimatedTarget) else kernel


def with_precision(
    run: Run, target: Any, record: RunRecord, evidence: list[LogEvidence]
) -> tuple[RunRecord, list[LogEvidence]]:
    """Return record and estimates with the measured noise of an estimated likelihood."""
    drawn = posterior_draws(run, record) if isinstance(target, EstimatedTarget) else None
    if drawn is None:
        return record, evidence
    x = drawn.draws.reshape(-1, drawn.draws.shape[-1])[:, : target.n_dim]
    noise = partial(measure, target, x, run.seed, tau_of(record.beta))
    precision = run.journal.remembered("noise", noise)
    _, n_seeds = zip(*target.settings(), strict=True)
    record = record.stating(**precision.facts(), n_seeds=list(n_seeds))
    return record, estimates(record)


# Each run looks at so many of its draws. If these have at most the next number of values, all of
# its draws are compared with as many prior draws, and with at least the third number of them.
_GLANCE, _FEW_AT_A_GLANCE, _LEAST_DRAWS = 16, 5, 1000
# A likelihood with at most so many values in all consists of steps. Digits that values may differ
# in because of rounding are left out.
_FEW, _DIGITS = 10, 9


def with_few_values(
    run: Run, target: Any, record: RunRecord, found: list[LogEvidence]
) -> tuple[RunRecord, list[LogEvidence]]:
    """Return record and estimates, which say if the likelihood took few values over all draws.

    Gradients, weights, and what the islands have in common show nothing of a step that no draw has
    hit. The record then holds how many values there were, and how many independent prior draws
    have shown no others.

    Models of discrete variables alone are left out: few states have few values. So are likelihoods
    that no variable enters, and those with a single value beside zero, which are the indicator of
    a region and have no other value.
    """
    target = target.model if isinstance(target, ReferencedTarget) else target
    if not isinstance(target, PyMCTarget) or isinstance(target, DataPointsTarget):
        return record, found
    if not (target.continuous.size and target.likelihood_varies) or was_interrupted(record):
        return record, found
    draws = [np.asarray(block.draws) for block in record.sources if block.draws is not None]
    x = np.concatenate([np.empty((0, target.n_dim)), *draws])
    if not len(x):
        return record, found
    glance = x[np.linspace(0, len(x) - 1, _GLANCE).astype(np.int64)]
    if len(_values(target.evaluate(glance).log_density)) > _FEW_AT_A_GLANCE:
        return record, found
    n = max(len(x), _LEAST_DRAWS)
    prior = target.finite_prior_points(n, SeedSequence(seed_of_run(run.seed, Phase.CHECK)))
    values = _values(target.evaluate(np.concatenate([prior, x])).log_density)
    spent = record.facts.n_evaluations + len(prior) + len(x)
    record = record.stating(n_evaluations=spent)
    is_indicator = len(values) == 2 and values[0] == -np.inf
    if len(values) <= _FEW and not is_indicator:
        record = record.stating(n_values=len(values), n_prior_draws=len(prior))
        found = estimates(record)
    return record, found


def _values(log_density: Floats) -> Floats:
    """Return the distinct values of the log likelihood, in rising order."""
    return np.unique(np.round(log_density[:, 1], _DIGITS))


# A warning is issued if the density is NaN at a larger share of the proposals.
_NAN_SHARE = 1e-3


def anneal(
    run: Run,
    target: Target,
    kernel: str | Kernel,
    display: Display,
    starts: ReverseStarts | None = None,
    path: str | Path = "auto",
) -> tuple[RunRecord, list[LogEvidence]]:
    """Anneal a target; return the record and its estimates, the recommended one first."""
    if target.n_dim == 0:
        record = _nothing_to_sample(target)
        return record, estimates(record)
    with display.compiling():  # the gradient, if the kernel needs it
        setup = along(target, annealing_setup(target, kernel), path)
    record, evidence = run.anneal(setup, display, starts)
    record, evidence = with_precision(run, target, record, evidence)
    record, evidence = with_few_values(run, target, record, evidence)
    return record.stating(log_prior_mass=target.log_prior_mass), evidence


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


def warn_of(evidence: LogEvidence, record: RunRecord, target: Any = None) -> None:
    """Warn if an estimate should not be relied on, or if the density was often NaN."""
    if evidence.status != Status.OK:
        message = with_pointer(evidence.status, evidence.message)
        warn(f"status {evidence.status!r}: {message}{_of_discrete(target)}")
    n_nan, n = record.facts.n_nan, record.facts.n_evaluations
    if n_nan > _NAN_SHARE * n:
        warn(
            f"the log density was NaN at {n_nan} of {n} proposals; they were rejected, so the "
            "evidence only covers the region where the density is defined. Look for an overflow, "
            "or for a covariance that is not positive definite."
        )


def over_prior(
    run: Run,
    main: Any,
    prior: Target,
    kernel: str | Kernel,
    display: Display,
    record: RunRecord,
) -> tuple[RunRecord, list[LogEvidence]]:
    """Return record and estimates with the constant that normalises a prior with potentials."""
    if was_interrupted(record):
        raise KeyboardInterrupt
    prior_run = replace(run, seed=seed_of_run(run.seed, Phase.PRIOR))
    _, of_prior = anneal(prior_run, prior, kernel_of_prior(main, kernel), display)
    record = record.stating(prior_constant=of_prior[0])
    return record, estimates(record)


_PILOT_PARTICLES = 200


@dataclass(frozen=True)
class Choice:
    """The coordinates of a run, and what choosing them cost."""

    # Of each partly centred variable: 0 if it is non-centred, 1 if it is centred. None if the run
    # has the coordinates of the model.
    amounts: dict[str, float] | None = None
    n_evaluations: int = 0  # density (or gradient) evaluations of the pilot
    seconds: float = 0.0  # duration of the pilot
    centring: Centring | None = None  # the same amounts, with the units of the scales

    @classmethod
    def of(
        cls,
        target: ReparameterisedTarget,
        centring: Centring,
        n_evaluations: int = 0,
        seconds: float = 0.0,
    ) -> "Choice":
        """Return the choice of coordinates for a target."""
        names = [str(variable.rv.name) for variable in target.variables]
        amounts = dict(zip(names, np.round(centring.amount, 2).tolist(), strict=True))
        return cls(amounts, n_evaluations, seconds, centring)

    def converted(self, target: ReparameterisedTarget, draws: Any) -> Any:
        """Return draws of a target in the chosen coordinates, if there are any."""
        if draws is None or self.centring is None:
            return draws
        x = np.asarray(draws)
        return target.coordinates.converted(x, target.centring, self.centring)

    def added_to(self, record: RunRecord) -> RunRecord:
        """Return the record of the run with the choice and its cost."""
        if self.amounts is None:
            return record
        return record.stating(
            n_evaluations=record.facts.n_evaluations + self.n_evaluations,
            tuning_time=(record.facts.tuning_time or 0.0) + self.seconds,
            centring=self.amounts,
        )


def in_best_coordinates(target: Any, *draws: Any) -> tuple[Any, Choice]:
    """Return a target in the coordinates that draws show to be best."""
    if not isinstance(target, ReparameterisedTarget) or not target.variables:
        return target, Choice()
    centring = best_centring(target.effects(np.concatenate(draws)))
    return target.centred_by(centring), Choice.of(target, centring)


def anneal_moved(
    run: Run,
    target: Any,
    kernel: str | Kernel,
    display: Display,
    starts: ReverseStarts | None,
    path: str | Path,
    reference: Any = "prior",
) -> tuple[Any, RunRecord, list[LogEvidence]]:
    """Anneal a target from a reference, in the coordinates that a pilot finds best.

    The arguments are those of ``anneal`` and of ``with_reference``.
    """
    target, starts, choice = with_coordinates(run, target, kernel, display, starts)
    limits = replace(run.limits, max_time=max(run.limits.max_time - choice.seconds, 0.0))
    run = replace(run, limits=limits)
    annealed = with_reference(run, target, reference, kernel, display)
    record, evidence = anneal(run, annealed, kernel, display, starts, path)
    return target, choice.added_to(record), evidence


def with_coordinates(
    run: Run,
    target: Any,
    kernel: str | Kernel,
    display: Display,
    starts: ReverseStarts | None,
) -> tuple[Any, ReverseStarts | None, Choice]:
    """Return the target in the coordinates that a pilot finds best."""
    if not isinstance(target, ReparameterisedTarget) or not target.variables:
        return target, starts, Choice()
    started = run.time()
    with display.compiling():
        setup = annealing_setup(target, kernel)
    size = _PILOT_PARTICLES
    pilot = Pilot(size, run.sampler.chain_length, run.sampler.ess)
    seed = seed_of_run(run.seed, Phase.COORDINATES)

    def chosen() -> tuple[Centring, int]:
        try:
            plan = pilot.run(setup.path, setup.kernel, seed, display.pilot)
        except NumericalError:
            return Centring.common(1.0, len(target.variables)), size
        return best_centring(target.effects(plan.population.x)), plan.n_evaluations

    found, n_evaluations = run.journal.remembered("coordinates", chosen)
    choice = Choice.of(target, found, n_evaluations, run.time() - started)
    if starts is not None:
        starts = replace(starts, draws=choice.converted(target, starts.draws))
    return target.centred_by(found), starts, choice
