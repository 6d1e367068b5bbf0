"""95 % intervals around an estimate with a standard error."""

from dataclasses import replace
from math import hypot

from pm_evidence.core.records import LogEvidence
from pm_evidence.estimators.standard_errors import Spread

__all__ = ["half_width", "interval", "widened", "with_error"]


def interval(value: float, spread: Spread) -> tuple[float, float]:
    """Return a 95 % Student interval around ``value`` (nats)."""
    half = half_width(spread)
    return value - half, value + half


def half_width(spread: Spread) -> float:
    """Return half the length of a 95 % Student interval; normal for infinite ``dof``."""
    # SciPy is imported where it is used: it takes as long as the rest of the package
    from scipy.special import ndtri, stdtrit

    if spread.dof == float("inf"):
        return float(ndtri(0.975)) * spread.mcse
    return float(stdtrit(max(spread.dof, 1.0), 0.975)) * spread.mcse


def widened(estimate: LogEvidence, error: float) -> LogEvidence:
    """Return an estimate with a further, independent error in nats."""
    return with_error(estimate, hypot(estimate.mcse, error), estimate.dof)


def with_error(estimate: LogEvidence, mcse: float, dof: float) -> LogEvidence:
    """Return an estimate with another error in nats, and its degrees of freedom."""
    lower, upper = interval(estimate.value, Spread(mcse, dof))
    return replace(estimate, mcse=mcse, dof=dof, lower=lower, upper=upper)
