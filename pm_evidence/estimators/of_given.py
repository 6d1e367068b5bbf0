"""All estimates from posterior draws that the user gave, and whether these can be relied on."""

from dataclasses import replace

import numpy as np

from pm_evidence.core.records import LogEvidence, Role, RunRecord
from pm_evidence.core.statuses import Status
from pm_evidence.estimators.bridge import bridge
from pm_evidence.estimators.fit_checks import MOMENTS_EXCLUDED, uncovered
from pm_evidence.estimators.jarzynski import importance, jarzynski
from pm_evidence.estimators.recommend import recommend
from pm_evidence.estimators.verdicts import apart, of_uncovered

__all__ = ["of_given"]

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
    smc = jarzynski(record.work(Role.FORWARD), name="smc")
    bridged = bridge(works)
    drawn = of_uncovered(
        importance(np.concatenate([forward for forward, _ in works])), uncovered(works)
    )
    found = recommend([bridged, drawn])
    status, message = _verdict(bridged, drawn, smc, record)
    if status != Status.OK:
        found = [_with(estimate, status, message) for estimate in found]
    return [*found, smc]


def _with(estimate: LogEvidence, status: Status, message: str) -> LogEvidence:
    """Return an estimate with a status, and with what its own status says."""
    if estimate.status != Status.OK:
        message = f"{message} In addition, {estimate.message}"
    return replace(estimate, status=status, message=message)


def _verdict(
    bridged: LogEvidence, drawn: LogEvidence, smc: LogEvidence, record: RunRecord
) -> tuple[Status, str]:
    """Return what the given draws are contradicted by."""
    info = record.info
    for other, name in (
        (drawn, "importance sampling from the fitted density"),
        (smc, "a small annealing from the prior"),
    ):
        if np.isfinite(other.mcse) and other.value > bridged.value and apart(bridged, other):
            return Status.MISSED_MASS, (
                f"{name} gives {other.value:.2f}, and the bridge to the given draws only "
                f"{bridged.value:.2f}: the draws have missed a part of the posterior. {_REMEDY}"
            )
    if info.get("doubt"):
        return Status.DOUBTFUL_DRAWS, (
            f"the given draws may not be from the posterior: {info['doubt']}. {_REMEDY}"
        )
    differ = info.get("moment_distance", 0.0) > MOMENTS_EXCLUDED
    if drawn.status == Status.OK and (differ or apart(bridged, drawn)):
        return Status.INCONSISTENT, (
            "the given draws contradict importance sampling from the density that is fitted to "
            f"them, which gives {drawn.value:.3f} beside {bridged.value:.3f} by the bridge: modes "
            f"have wrong weights, or the draws are of another model or data. {_REMEDY}"
        )
    return Status.OK, ""
