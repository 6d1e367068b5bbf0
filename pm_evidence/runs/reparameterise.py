"""The coordinates in which a model is annealed, chosen from the draws of a small pilot."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pm_evidence.core.contracts import Kernel, Path
from pm_evidence.core.exceptions import NumericalError
from pm_evidence.core.random import Phase, seed_of_run
from pm_evidence.core.records import LogEvidence, RunRecord
from pm_evidence.execution.display import Display
from pm_evidence.runs.anneal import anneal
from pm_evidence.runs.defaults import annealing_setup
from pm_evidence.runs.references import with_reference
from pm_evidence.runs.rounds import Run
from pm_evidence.samplers.pilot import Pilot
from pm_evidence.samplers.sampler import ReverseStarts
from pm_evidence.targets.model.coordinates import Centring, best_centring
from pm_evidence.targets.model.reparameterised import ReparameterisedTarget

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

    found, n_evaluations = run.remembered("coordinates", chosen)
    choice = Choice.of(target, found, n_evaluations, run.time() - started)
    if starts is not None:
        starts = replace(starts, draws=choice.converted(target, starts.draws))
    return target.centred_by(found), starts, choice
