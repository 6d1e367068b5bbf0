"""All estimates of a run of independent paths, in one direction or in both."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.records import LogEvidence, RunRecord
from pm_evidence.estimators.bar import bar
from pm_evidence.estimators.bridge import bridge
from pm_evidence.estimators.cumulant import (
    cumulant,
    cumulant_forward,
    cumulant_reverse,
    lower_bound,
    upper_bound,
)
from pm_evidence.estimators.fit_checks import uncovered
from pm_evidence.estimators.histogram import histogram
from pm_evidence.estimators.jarzynski import importance, jarzynski, jarzynski_reverse
from pm_evidence.estimators.verdicts import ROUNDING, agreeing, of_uncovered, short_of, times

__all__ = ["one_sided", "two_sided"]

Floats = NDArray[np.float64]

# Fewer effective paths than this, as the other direction tells, may hide the heaviest.
_LEAST_EFFECTIVE_PATHS = 50.0
# Standard errors by which an estimate may differ from Bennett's, and the least such error in its.
_EXCLUDED, _LEAST_DIFFERENCE = 3.0, 0.1
# Where paths fail in these ways, importance sampling from a fitted density may still be right.
# Where they contradict each other, that is to be known first.
_REPLACED = ("missed_mass", "no_overlap", "dominated", "heavy_tail", "high_variance", "no_error")


def one_sided(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of forward paths alone."""
    work = record.work_forward
    mean, drawn = _with_check(jarzynski(work), record)
    instead = _first_of(mean, drawn)
    if instead is not None:
        return [instead, mean, lower_bound(work), *drawn[:-1]]
    return [mean, lower_bound(work), *drawn]


def two_sided(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of forward and reverse paths."""
    forward, reverse, origin = record.work_forward, record.work_reverse, record.origin
    both = bar(forward, reverse, reverse_blocks=origin)
    met = forward[np.isfinite(forward)]  # reverse paths never take those of weight zero
    there = _seen_from_behind(jarzynski(forward), -forward, -reverse, both)
    back = _seen_from_behind(jarzynski_reverse(reverse, blocks=origin), reverse, met, both)
    remedy = "the moves do not mix. Use more stages, better starts or another kernel."
    there, back = agreeing(there, back, "forward annealing", "reverse annealing", remedy)
    if record.islands:
        # small islands are there to start from: their own weights are too uneven to report
        smc = jarzynski(np.concatenate([block.work for block in record.islands]), name="smc")
        both, _ = agreeing(both, smc, "annealing both ways", "its islands", remedy)
    both, drawn = _with_check(both, record)
    if "inconsistent" in (there.status, back.status) and both.status == "ok":
        both = replace(both, status="inconsistent", message=there.message)
    others = [histogram(forward, reverse, reverse_blocks=origin), there, back]
    if np.isfinite(forward).all():
        others += [
            cumulant(forward, reverse, reverse_blocks=origin),
            cumulant_forward(forward),
        ]
    others.append(cumulant_reverse(reverse, blocks=origin))
    checked = [_checked_by(both, other) for other in others]
    exact = record.info.get("reverse_start") == "exact"
    bounds = lower_bound(forward), upper_bound(reverse, blocks=origin, exact=exact)
    instead = _first_of(both, drawn)
    if instead is not None:
        return [instead, both, *checked, *bounds, *drawn[:-1]]
    return [both, *checked, *bounds, *drawn]


def _with_check(estimate: LogEvidence, record: RunRecord) -> tuple[LogEvidence, list[LogEvidence]]:
    """Return an estimate, judged by importance sampling from a fitted density where there is one.

    And the estimates of the islands that reverse paths started from, or of the fitted density.
    """
    blocks = record.islands or record.forward
    works = [block.bridge for block in blocks if block.bridge is not None]
    if not works:
        return estimate, []
    drawn = importance(np.concatenate([forward for forward, _ in works]))
    if record.islands:
        drawn = of_uncovered(drawn, uncovered(works))
    if drawn.status == "ok":
        remedy = "the fitted density leaves out what the paths met. Use more draws."
        estimate = short_of(estimate, drawn)
        estimate, drawn = agreeing(estimate, drawn, "annealing", "importance sampling", remedy)
    others = [bridge(works)] if record.islands else []
    return estimate, [*others, drawn]


def _first_of(estimate: LogEvidence, drawn: list[LogEvidence]) -> LogEvidence | None:
    """Return importance sampling if it is to be recommended instead of an estimate of paths."""
    if not drawn or drawn[-1].status != "ok" or estimate.status not in _REPLACED:
        return None
    message = (
        f"importance is recommended because the status of {estimate.estimator} is "
        f"{estimate.status}."
    )
    return replace(drawn[-1], message=message)


def _seen_from_behind(
    estimate: LogEvidence, log_weight: Floats, log_other: Floats, both: LogEvidence
) -> LogEvidence:
    """Return an exponential average with a verdict from paths of the other direction.

    Their mean weight over this direction's is the inverse of the effective share of paths: a run
    that never met its heaviest paths cannot know it, but the other direction starts from them.
    """
    if estimate.status != "ok" or not np.isfinite(both.value):
        return estimate
    value = log_mean_exp(log_weight)
    effective = len(log_weight) * float(np.exp(value - log_mean_exp(log_other)))
    if effective >= min(_LEAST_EFFECTIVE_PATHS, 0.5 * len(log_weight)):
        return estimate
    message = (
        f"paths of the other direction show that only about {effective:.1f} of "
        f"{len(log_weight)} paths carry the weight: the error is not to be trusted. Use bar, or "
        "more stages."
    )
    return replace(estimate, status="heavy_tail", message=message)


def _checked_by(both: LogEvidence, other: LogEvidence) -> LogEvidence:
    """Return an estimate from the same work, with a status where Bennett's excludes it.

    Hausman's (1978) test: what an efficient estimate and another one differ by has the difference
    of their variances.
    """
    if other.status != "ok":
        return other
    if both.status != "ok":
        return replace(other, status=both.status, message=both.message)
    least = _LEAST_DIFFERENCE * both.mcse
    error = float(np.sqrt(max(other.mcse**2 - both.mcse**2, least**2)))
    distance = abs(both.value - other.value)
    if distance <= _EXCLUDED * error + ROUNDING:
        return other
    message = (
        f"it differs from bar by {distance:.3f} nats, {times(distance, error)} standard errors "
        "of the difference: it rests on paths that were not met. Use bar."
    )
    return replace(other, status="inconsistent", message=message)
