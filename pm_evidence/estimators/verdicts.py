"""Verdicts on estimates: what they say of each other, and what the facts of their run say."""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from pm_evidence.core.contracts import NOISY_VARIANCE
from pm_evidence.core.records import LogEvidence

__all__ = [
    "DISAGREEMENT",
    "ROUNDING",
    "agreeing",
    "apart",
    "of_noise",
    "of_uncovered",
    "short_of",
    "times",
    "unbounded",
    "unfinished",
]

# Combined errors by which two estimates exclude each other, and nats that rounding may cost.
DISAGREEMENT, ROUNDING = 5.0, 1e-9
_BROKEN = ("unbounded", "missed_mass")
_MOST_PARTICLES = 1_000_000  # that a message advises


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


def unbounded(estimate: LogEvidence) -> LogEvidence:
    """Return an estimate with the status of an evidence that is probably infinite."""
    message = (
        "the posterior grows along a ridge, and its mass with it, as far as it was followed: the "
        "evidence is infinite, or concentrated where no draw came. Look for a scale that may go to "
        "zero where data coincide; give it a prior that excludes zero."
    )
    return replace(estimate, status="unbounded", message=message)


def unfinished(estimate: LogEvidence, limit: str, target_mcse: float) -> LogEvidence:
    """Return an estimate whose status, if it was ``"ok"``, names the limit that ended the run.

    Parameters
    ----------
    estimate : LogEvidence
        The recommended estimate of the run.
    limit : str
        ``"max_time"`` or ``"max_draws"``.
    target_mcse : float
        The error in nats that was asked for.
    """
    if estimate.status != "ok":
        return estimate
    message = (
        f"the error is {estimate.mcse:.3g} nats and not {target_mcse:.3g}, because {limit} was "
        "reached; allow more, or take the error as it is."
    )
    return replace(estimate, status=limit, message=message)


def of_noise(estimate: LogEvidence, facts: Mapping[str, Any]) -> LogEvidence:
    """Return an estimate, with a status where the estimated likelihood is too noisy to trust it.

    Another status stays, and the noise, which may be its reason, is added to its message.

    Parameters
    ----------
    estimate : LogEvidence
        An estimate of the run.
    facts : mapping
        Of the run: ``log_likelihood_variance`` in square nats, ``n_particles`` of each estimator
        and ``noise_acceptance``, the largest acceptance probability that the noise leaves.
    """
    variance, numbers = facts["log_likelihood_variance"], facts["n_particles"]
    if variance <= NOISY_VARIANCE:
        return estimate
    enough = max(numbers) * variance
    wanted = f"about {ceil(enough)}" if enough < _MOST_PARTICLES else "many more"
    message = (
        f"the estimated log likelihood has a variance of {variance:.1f} with n_particles="
        f"{', '.join(map(str, numbers))}: moves are accepted at a rate of "
        f"{facts['noise_acceptance']:.1g} at best, and the error is not to be trusted. Use "
        f"{wanted} particles, or n_particles='auto'."
    )
    if estimate.status != "ok":
        return replace(estimate, message=f"{estimate.message} Besides, {message}")
    return replace(estimate, status="noisy_likelihood", message=message)


def times(distance: float, error: float) -> str:
    """Return how many errors a distance is, as text; an error may be exactly 0."""
    return f"{distance / error:.1f}" if error > 0.0 else "more than any number"
