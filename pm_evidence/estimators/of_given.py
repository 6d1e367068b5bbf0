"""All estimates from posterior draws that the user gave, and whether these can be relied on."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pm_evidence.core.records import LogEvidence, Role, RunRecord
from pm_evidence.core.statuses import Status
from pm_evidence.estimators.bridge import bridge
from pm_evidence.estimators.fit_checks import MOMENTS_EXCLUDED, uncovered
from pm_evidence.estimators.islands import of_small_islands
from pm_evidence.estimators.jarzynski import importance
from pm_evidence.estimators.pareto import pareto_k
from pm_evidence.estimators.recommend import recommend
from pm_evidence.estimators.verdicts import DISAGREEMENT, ROUNDING, of_uncovered

__all__ = ["TOLERATED", "of_given"]

# Share of divergent draws that importance sampling with weights of a light tail may confirm: it
# reaches regions that a trajectory could not enter.
TOLERATED = 0.005
# Pareto shape of such weights.
_LIGHT = 0.5
# Combined standard errors by which importance sampling may differ from the bridge. Both use the
# same draws from the fitted density: they are nearer to each other than independent estimates.
_DIFFERENT = 3.0

_REMEDY = (
    "Sample again with a higher target_accept, more draws, or more chains from dispersed starts, "
    "or use pe.sample_evidence(model)."
)


def of_given(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of a run with given draws, the recommended one first.

    Parameters
    ----------
    record : RunRecord
        Forward blocks are the islands of a small annealing from the prior. Facts: ``doubt``, why
        the draws may not be from the posterior (empty if there is no sign of it), and
        ``moment_distance``.

    Notes
    -----
    A sign that the draws are not from the posterior gives all estimates from them its status, also
    the one that does not need it: it is the posterior that has to be sampled again.
    """
    works = [block.bridge for block in record.of(Role.GIVEN) if block.bridge is not None]
    forward = np.concatenate([forward for forward, _ in works])
    bridged, drawn = bridge(works), of_uncovered(importance(forward), uncovered(works))
    smc = of_small_islands(record.of(Role.FORWARD))
    found = recommend([bridged, drawn])
    confirmed = drawn.status == Status.OK and not pareto_k(-forward) > _LIGHT
    status, message = _verdict(bridged, drawn, smc, record.info, confirmed)
    if status != Status.OK:
        found = [_with(estimate, status, message) for estimate in found]
    return [*found, smc]


def _verdict(
    bridged: LogEvidence,
    drawn: LogEvidence,
    smc: LogEvidence,
    info: Mapping[str, Any],
    confirmed: bool,
) -> tuple[Status, str]:
    """Return what contradicts the given draws, as a status and a message."""
    for other, name, most in (
        (drawn, "importance sampling from the fitted density", _DIFFERENT),
        (smc, "a small annealing from the prior", DISAGREEMENT),
    ):
        if other.value > bridged.value and _apart(bridged, other, most):
            return Status.MISSED_MASS, (
                f"{name} gives {other.value:.2f}, and the bridge to the given draws only "
                f"{bridged.value:.2f}: the draws have missed a part of the posterior. {_REMEDY}"
            )
    doubt = info["doubt"]
    if info["n_divergent"] and not doubt and not confirmed:
        doubt = (
            f"{info['n_divergent']} draws ended in a divergence, and the weights of importance "
            "sampling, which could confirm them, have a heavy tail"
        )
    if doubt:
        message = f"the given draws may not be from the posterior: {doubt}. {_REMEDY}"
        return Status.DOUBTFUL_DRAWS, message
    if drawn.status == Status.OK:
        seen = ""
        if _apart(bridged, drawn, _DIFFERENT):
            seen = f"it gives {drawn.value:.3f}, and the bridge to the draws {bridged.value:.3f}"
        elif info.get("moment_distance", 0.0) > MOMENTS_EXCLUDED:
            seen = "a mean or a variance of the draws differs significantly from its value"
        if seen:
            return Status.INCONSISTENT, (
                "the given draws contradict importance sampling from the density that is fitted "
                f"to them: {seen}. Modes have wrong weights, or the draws are of another model or "
                f"data. {_REMEDY}"
            )
    return Status.OK, ""


def _apart(bridged: LogEvidence, other: LogEvidence, most: float) -> bool:
    """Return whether another estimate is more than ``most`` errors from the bridge."""
    distance = abs(bridged.value - other.value)
    return distance > most * float(np.hypot(bridged.mcse, other.mcse)) + ROUNDING


def _with(estimate: LogEvidence, status: Status, message: str) -> LogEvidence:
    """Return an estimate with a status, and with what its own status says."""
    if estimate.status != Status.OK:
        message = f"{message} In addition, {estimate.message}"
    return replace(estimate, status=status, message=message)
