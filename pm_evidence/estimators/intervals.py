"""95 % intervals around an estimate with a standard error."""

from pm_evidence.estimators.errors import Spread

__all__ = ["interval"]


def interval(value: float, spread: Spread) -> tuple[float, float]:
    """Return a 95 % Student interval around ``value`` (nats)."""
    # SciPy is imported where it is used: it takes as long as the rest of the package
    from scipy.special import stdtrit

    half = float(stdtrit(max(spread.dof, 1.0), 0.975)) * spread.mcse
    return value - half, value + half
