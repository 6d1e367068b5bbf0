"""The power-posterior estimate: the mean log likelihood, integrated along the path."""

import numpy as np
from numpy.typing import ArrayLike

from pm_evidence.core.records import LogEvidence
from pm_evidence.estimators.errors import spread
from pm_evidence.estimators.intervals import interval

__all__ = ["power_posterior"]

# In standard errors: a larger error of the trapezoid than this is not covered by the interval.
_COARSE = 1.0


def power_posterior(
    beta: ArrayLike, energy: ArrayLike, variance: ArrayLike | None = None
) -> LogEvidence:
    """Estimate log Z as the integral of minus the mean energy over inverse temperature.

    Parameters
    ----------
    beta : array_like, shape (n_stages + 1,)
        Inverse temperatures, from 0 to 1.
    energy : array_like, shape (n_islands, n_stages + 1)
        Mean energy of each independent population at each inverse temperature, in nats; minus the
        mean log likelihood on a geometric path.
    variance : array_like, shape (n_islands, n_stages + 1), optional
        Variance of the energy there, which tells the error of the trapezoid.

    Returns
    -------
    LogEvidence
        Status ``"coarse_schedule"`` where the trapezoid's own error exceeds the Monte Carlo error.

    Raises
    ------
    ValueError
        If shapes do not fit, or a value is not finite.

    Notes
    -----
    Friel and Pettitt (2008); with an estimated likelihood Tran et al., Eq. 9 to 11. The slope of
    the mean log likelihood is its variance, so that the next term of the trapezoid's error is
    ``-sum (beta step)**2 (change of variance) / 12`` (Friel, Hurn and Wyse 2014, Eq. 6).

    Examples
    --------
    >>> import numpy as np
    >>> beta = np.linspace(0.0, 1.0, 11)
    >>> round(power_posterior(beta, np.stack([3.0 - beta, 3.1 - beta])).value, 6)
    -2.55
    """
    beta, energy = np.asarray(beta, float), np.asarray(energy, float)
    if energy.ndim != 2 or energy.shape[1] != beta.size:
        raise ValueError(
            f"energy must have shape (n_islands, {beta.size}), one value for each inverse "
            f"temperature, got {energy.shape}; transpose it, or pass the same beta."
        )
    for name, values in (("beta", beta), ("energy", energy)):
        if not np.isfinite(values).all():
            raise ValueError(
                f"{name} must be finite, got {values[~np.isfinite(values)][0]}; find out why those "
                "stages failed."
            )
    step = np.diff(beta)
    each = -(step * 0.5 * (energy[:, 1:] + energy[:, :-1])).sum(axis=1)
    value = float(each.mean())
    error = spread(((each - value) / len(each), None))
    lower, upper = interval(value, error)
    status, message = "ok", ""
    if not np.isfinite(error.mcse):
        status, message = "no_error", "one population has no error estimate; use at least two."
    elif variance is not None:
        mean = np.asarray(variance, float).mean(axis=0)
        correction = -float((step**2 * np.diff(mean)).sum() / 12.0)
        if abs(correction) > _COARSE * error.mcse:
            status = "coarse_schedule"
            message = (
                f"the trapezoid between {step.size} stages is off by about {-correction:.2g} nats, "
                "which the error does not count; use more stages, or smc from the same run."
            )
    return LogEvidence(
        value, error.mcse, "power_posterior", status, lower, upper, message, error.dof
    )
