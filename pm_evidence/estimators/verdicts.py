"""Comparisons between estimates of the same evidence, which can change their statuses."""

from dataclasses import replace

import numpy as np

from pm_evidence.core.records import LogEvidence
from pm_evidence.core.statuses import Status

__all__ = ["DISAGREEMENT", "ROUNDING", "agreeing", "apart", "of_uncovered", "short_of", "times"]

# Two estimates contradict each other if they differ by more than this number of combined standard
# errors and by more than this rounding error in nats.
DISAGREEMENT, ROUNDING = 5.0, 1e-9
_BROKEN = (Status.UNBOUNDED, Status.MISSED_MASS)


def apart(one: LogEvidence, other: LogEvidence) -> bool:
    """Return whether two estimates contradict each other; False if one has no error estimate."""
    distance = abs(one.value - other.value)
    return bool(distance > DISAGREEMENT * float(np.hypot(one.mcse, other.mcse)) + ROUNDING)


def agreeing(
    one: LogEvidence, other: LogEvidence, name: str, other_name: str, remedy: str
) -> tuple[LogEvidence, LogEvidence]:
    """Return two independent estimates, both ``"inconsistent"`` if they contradict each other."""
    error = float(np.hypot(one.mcse, other.mcse))
    distance = abs(one.value - other.value)
    if not (one.status == other.status == Status.OK and distance > DISAGREEMENT * error + ROUNDING):
        return one, other
    message = (
        f"{name} gives {one.value:.3f} and {other_name} gives {other.value:.3f}; they differ by "
        f"{times(distance, error)} combined standard errors: {remedy}"
    )
    return tuple(replace(e, status=Status.INCONSISTENT, message=message) for e in (one, other))  # type: ignore[return-value]


def short_of(estimate: LogEvidence, drawn: LogEvidence) -> LogEvidence:
    """Return an estimate, as ``"missed_mass"`` if importance sampling finds more evidence.

    Parameters
    ----------
    estimate : LogEvidence
        The estimate to be checked.
    drawn : LogEvidence
        The importance sampling estimate of the same run.
    """
    if estimate.status in _BROKEN or not apart(estimate, drawn):
        return estimate
    if estimate.value > drawn.value:
        return estimate
    message = (
        f"importance sampling from the fitted density gives {drawn.value:.3f}, and "
        f"{estimate.estimator} only {estimate.value:.3f}: annealing missed a part of the "
        "posterior. Use the estimate 'importance'."
    )
    return replace(estimate, status=Status.MISSED_MASS, message=message)


def of_uncovered(drawn: LogEvidence, share: float) -> LogEvidence:
    """Return an importance sampling estimate, as ``"missed_mass"`` if its draws miss a region.

    Parameters
    ----------
    drawn : LogEvidence
        The importance sampling estimate.
    share : float
        Share of the posterior draws that lie in this region; see ``fit_checks.uncovered``.
    """
    if drawn.status != Status.OK or share <= DISAGREEMENT * drawn.mcse:
        return drawn
    message = (
        f"{share:.1%} of the islands' draws lie in a region where the fitted density is so low "
        "that it produced no draws there. Use the estimate 'bridge', or more draws."
    )
    return replace(drawn, status=Status.MISSED_MASS, message=message)


def times(distance: float, error: float) -> str:
    """Return a distance in units of its standard error as text; the error may be exactly 0."""
    return f"{distance / error:.1f}" if error > 0.0 else "infinitely many"
