"""Verdicts that estimates of one evidence pass on each other."""

from dataclasses import replace

import numpy as np

from pm_evidence.core.records import LogEvidence

__all__ = ["DISAGREEMENT", "ROUNDING", "agreeing", "apart", "of_uncovered", "short_of", "times"]

# Combined errors by which two estimates exclude each other, and nats that rounding may cost.
DISAGREEMENT, ROUNDING = 5.0, 1e-9
_BROKEN = ("unbounded", "missed_mass")


def apart(one: LogEvidence, other: LogEvidence) -> bool:
    """Whether two estimates exclude each other; never where one has no error."""
    distance = abs(one.value - other.value)
    return bool(distance > DISAGREEMENT * float(np.hypot(one.mcse, other.mcse)) + ROUNDING)


def agreeing(
    one: LogEvidence, other: LogEvidence, name: str, other_name: str, remedy: str
) -> tuple[LogEvidence, LogEvidence]:
    """Return two independent estimates, with their status changed where they exclude each other."""
    error = float(np.hypot(one.mcse, other.mcse))
    distance = abs(one.value - other.value)
    if not (one.status == other.status == "ok" and distance > DISAGREEMENT * error + ROUNDING):
        return one, other
    message = (
        f"{name} gives {one.value:.3f} and {other_name} {other.value:.3f}, "
        f"{times(distance, error)} of their combined errors apart: {remedy}"
    )
    return tuple(replace(e, status="inconsistent", message=message) for e in (one, other))  # type: ignore[return-value]


def short_of(estimate: LogEvidence, drawn: LogEvidence) -> LogEvidence:
    """Return an estimate with a status where importance sampling finds more."""
    if estimate.status in _BROKEN or not apart(estimate, drawn):
        return estimate
    if estimate.value > drawn.value:
        return estimate
    message = (
        f"importance sampling from the fitted density gives {drawn.value:.3f}, more than "
        f"{estimate.value:.3f} of {estimate.estimator}: annealing missed a part of the posterior. "
        "Use importance."
    )
    return replace(estimate, status="missed_mass", message=message)


def of_uncovered(drawn: LogEvidence, share: float) -> LogEvidence:
    """Return importance sampling with a status where it misses many of its errors."""
    if drawn.status != "ok" or share <= DISAGREEMENT * drawn.mcse:
        return drawn
    message = (
        f"{share:.1%} of the islands' draws lie where the fitted density is so low that none of "
        "its own draws came. Use bridge, or more draws."
    )
    return replace(drawn, status="missed_mass", message=message)


def times(distance: float, error: float) -> str:
    """Return how many errors a distance is, as text; an error may be exactly 0."""
    return f"{distance / error:.1f}" if error > 0.0 else "more than any number"
