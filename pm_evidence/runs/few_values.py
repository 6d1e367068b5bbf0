"""Whether a likelihood takes only few values: a run then knows nothing of where it had no draw."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random import SeedSequence
from numpy.typing import NDArray

from pm_evidence.core.random import Phase, seed_of_run
from pm_evidence.core.records import LogEvidence, RunRecord
from pm_evidence.estimators.of_run import estimates
from pm_evidence.references.target import ReferencedTarget
from pm_evidence.runs.interruption import was_interrupted
from pm_evidence.runs.rounds import Run
from pm_evidence.targets.model.data_points import DataPointsTarget
from pm_evidence.targets.model.target import PyMCTarget

__all__ = ["with_few_values"]

Floats = NDArray[np.float64]

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

    Parameters
    ----------
    run : Run
        The resolved arguments.
    target : Target
        The target that the draws of the record belong to.
    record : RunRecord
        A finished run.
    found : list of LogEvidence
        Its estimates.

    Notes
    -----
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
    n_evaluations = record.info.get("n_evaluations", 0) + len(prior) + len(x)
    info = {**record.info, "n_evaluations": n_evaluations}
    is_indicator = len(values) == 2 and values[0] == -np.inf
    if len(values) <= _FEW and not is_indicator:
        info |= {"n_values": len(values), "n_prior_draws": len(prior)}
        found = estimates(replace(record, info=info))
    return replace(record, info=info), found


def _values(log_density: Floats) -> Floats:
    """Return the distinct values of the log likelihood, in rising order."""
    return np.unique(np.round(log_density[:, 1], _DIGITS))
