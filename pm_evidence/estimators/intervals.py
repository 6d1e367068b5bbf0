"""95 % intervals around an estimate with a standard error."""

__all__ = ["interval"]


def interval(value: float, mcse: float, n_units: int) -> tuple[float, float]:
    """Return a 95 % Student interval.

    Parameters
    ----------
    value, mcse : float
        Estimate and standard error in nats.
    n_units : int
        Number of independent units that the standard error comes from.
    """
    # SciPy is imported where it is used: it takes as long as the rest of the package
    from scipy.special import stdtrit

    half = float(stdtrit(max(n_units - 1, 1), 0.975)) * mcse
    return value - half, value + half
