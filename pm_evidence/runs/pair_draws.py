"""Posterior draws of a model, and its coarse evidence, for annealing to or from another model."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.exceptions import ModelError
from pm_evidence.core.random import Phase, generator
from pm_evidence.core.records import LogEvidence, Role, RunRecord
from pm_evidence.execution.display import Display
from pm_evidence.results import schema
from pm_evidence.results.stored import estimate_of
from pm_evidence.runs.defaults import effort_of
from pm_evidence.runs.given import bridge_given
from pm_evidence.runs.interruption import was_interrupted
from pm_evidence.runs.limits import Limits
from pm_evidence.runs.result import drawn_by_island, drawn_by_weight, islands_are_wrong
from pm_evidence.runs.rounds import Run
from pm_evidence.runs.routes import anneal_by_routes, has_routes
from pm_evidence.runs.starts import groups_of, rows_and_variables
from pm_evidence.targets.model.coordinates import Centring
from pm_evidence.targets.model.reparameterised import ReparameterisedTarget

__all__ = ["ModelDraws", "check_annealed", "model_draws"]

Floats = NDArray[np.float64]

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
    """Posterior draws of a model, and its coarse evidence.

    Parameters
    ----------
    target : PyMCTarget
        The model.
    x : ndarray, shape (n, n_dim)
        Draws of equal weight, in the coordinates of ``target``.
    group : ndarray of int64, shape (n,)
        Draws of different groups are independent.
    evidence : LogEvidence
        A coarse evidence, whose status tells whether the draws can be relied on.
    n_evaluations : int
        Density (or gradient) evaluations.
    """

    target: Any
    x: Floats
    group: NDArray[np.int64]
    evidence: LogEvidence
    n_evaluations: int

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
    """Raise ModelError unless a model can be annealed to or from another.

    Parameters
    ----------
    target : Target
        The model.
    which : str
        What messages call it.
    """
    if has_routes(target):
        return
    if not hasattr(target, "prior_acceptance") or not hasattr(target, "layout"):
        problem = "a likelihood that is estimated"
    elif target.discrete.size:
        names = [v.name for v in target.layout.variables if np.dtype(v.dtype).kind in "iub"]
        problem = f"the discrete variables {', '.join(map(repr, names))}"
    elif not target.n_dim:
        problem = "no free variable"
    else:
        problem = "a transform that cuts off a part of the prior, whose mass is not known exactly"
    raise ModelError(
        "annealing between models needs continuous variables and a likelihood that can be "
        f"evaluated, got {problem} in the {which} model; compare the evidences of both: "
        "pe.compare_models."
    )


def model_draws(run: Run, target: Any, given: Any, display: Display, name: str) -> ModelDraws:
    """Return posterior draws of a model.

    Parameters
    ----------
    run : Run
        The resolved arguments, with a seed of this model's own.
    target : PyMCTarget
        The model.
    given : DataTree or None
        Posterior draws of the user's. If they are the result of ``sample_evidence``, its evidence
        is taken; others are bridged. If it is None, the model is annealed coarsely from its prior.
    display : Display
        Shows progress.
    name : str
        Name of the argument ``given``, for messages.

    Raises
    ------
    KeyboardInterrupt
        Upon Ctrl-C.
    """
    first_round = run.sampler.first_round(run.size)
    limits = Limits(target_mcse=_COARSE, max_draws=10 * first_round, asked=False)
    times = (_COARSE / (run.limits.target_mcse or _COARSE)) ** 2
    n_draws = int(_DRAWS * effort_of(target) * np.clip(times, 1.0, _MOST_TIMES))
    run = replace(run, limits=limits)
    if given is None:
        return _annealed(run, target, n_draws, display)
    if schema.LOG_EVIDENCE in getattr(given, "children", ()):
        return _of_result(target, given, name)
    target, record, evidence = bridge_given(run, target, given, "auto", display)
    _check_complete(record)
    blocks = record.of(Role.GIVEN)
    x = np.concatenate([np.asarray(block.draws) for block in blocks])
    group = np.repeat([b.block for b in blocks], [len(np.asarray(b.draws)) for b in blocks])
    return ModelDraws(target, x, group, evidence[0], _spent(record))


def _annealed(run: Run, target: Any, n_draws: int, display: Display) -> ModelDraws:
    """Return draws from the cheapest annealing that certifies itself."""
    found = anneal_by_routes(run, target, "auto", display, effort_of(target), n_draws)
    target, record, evidence = found
    _check_complete(record)
    rng, blocks = generator(run.seed, Phase.RESULT), record.of(Role.FORWARD)
    fitted = [block for block in blocks if block.fit_draws is not None]
    if fitted and (record.info["route"] == "importance" or islands_are_wrong(evidence)):
        x, origin = drawn_by_weight(fitted, rng, (_LEAST, n_draws))
        order, n = np.argsort(origin), sum(len(np.asarray(block.fit_draws)) for block in fitted)
        return ModelDraws(
            target, x[order], origin[order] * _GROUPS // n, evidence[0], _spent(record)
        )
    alive = [block for block in blocks if block.draws is not None]
    x, group = drawn_by_island(alive, rng)
    return ModelDraws(target, x, group, evidence[0], _spent(record))


def _check_complete(record: RunRecord) -> None:
    """Raise KeyboardInterrupt if Ctrl-C has ended a run: one model alone gives no Bayes factor."""
    if was_interrupted(record):
        raise KeyboardInterrupt


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


def _spent(record: RunRecord) -> int:
    return int(record.info.get("n_evaluations", 0))
