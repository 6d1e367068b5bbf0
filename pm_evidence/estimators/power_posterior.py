"""The power-posterior estimate: the mean log likelihood, integrated along the path."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import float_array
from pm_evidence.core.records import LogEvidence
from pm_evidence.core.statuses import Status
from pm_evidence.estimators.intervals import interval
from pm_evidence.estimators.quadrature import correction, trapezoid
from pm_evidence.estimators.standard_errors import spread

__all__ = ["power_posterior"]

Floats = NDArray[np.float64]

# Largest error of the trapezoidal rule, in standard errors, that the interval still covers.
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
        Variance of the energy there, from which the error of the trapezoidal rule is estimated.

    Returns
    -------
    LogEvidence
        The status is ``"coarse_schedule"`` if the error of the trapezoidal rule exceeds the Monte
        Carlo error.

    Raises
    ------
    ValueError
        If inverse temperatures do not rise, shapes do not fit, a value is not finite, or a variance
        is negative.

    Notes
    -----
    Friel and Pettitt (2008); with an estimated likelihood Tran et al., Eq. 9 to 11. The slope of
    the mean log likelihood is its variance, so the leading error of the trapezoidal rule is
    ``-sum (beta step)**2 (change of variance) / 12`` (Friel, Hurn and Wyse 2014, Eq. 6).

    Examples
    --------
    >>> import numpy as np
    >>> beta = np.linspace(0.0, 1.0, 11)
    >>> round(power_posterior(beta, np.stack([3.0 - beta, 3.1 - beta])).value, 6)
    -2.55
    """
    beta, energy, variance = _checked(beta, energy, variance)
    each = -energy @ trapezoid(beta)
    value = float(each.mean())
    error = spread(((each - value) / len(each), None))
    lower, upper = interval(value, error)
    status, message = Status.OK, ""
    if not np.isfinite(error.mcse):
        status = Status.NO_ERROR
        message = "a single population gives no error estimate. Use at least two."
    elif variance is not None:
        lacking = float(correction(beta) @ variance.mean(axis=0))
        if abs(lacking) > _COARSE * error.mcse:
            status = Status.COARSE_SCHEDULE
            message = (
                f"the trapezoidal rule over {beta.size - 1} stages is wrong by about "
                f"{-lacking:.2g} nats, which mcse does not include. Use more stages, or the "
                "estimate 'smc' of the same run."
            )
    return LogEvidence(
        value, error.mcse, "power_posterior", status, lower, upper, message, error.dof
    )


def _checked(
    beta: ArrayLike, energy: ArrayLike, variance: ArrayLike | None
) -> tuple[Floats, Floats, Floats | None]:
    """Return the arrays; raise ValueError where one is unusable."""
    beta = float_array("beta", beta)
    if beta.ndim != 1 or beta.size < 2:
        raise ValueError(
            f"beta must be a row of at least two inverse temperatures, got shape {beta.shape}; "
            "pass for example [0, 0.5, 1]."
        )
    _check_finite("beta", beta)
    given = {"energy": float_array("energy", energy)}
    if variance is not None:
        given["variance"] = float_array("variance", variance)
    for name, values in given.items():
        if values.ndim != 2 or values.shape[1] != beta.size or not len(values):
            raise ValueError(
                f"{name} must have shape (n_islands, {beta.size}), one value for each inverse "
                f"temperature, got {values.shape}; transpose it, or pass the same beta."
            )
        _check_finite(name, values)
    if not (np.diff(beta) > 0.0).all():
        raise ValueError(
            f"beta must rise, got {beta[np.argmin(np.diff(beta))]} before a value that is not "
            "larger; sort the stages."
        )
    if variance is not None and given["variance"].min() < 0.0:
        raise ValueError(
            f"variance must not be negative, got {given['variance'].min()}; pass variances of the "
            "energy, or leave it out."
        )
    return beta, given["energy"], given.get("variance")


def _check_finite(name: str, values: Floats) -> None:
    if not np.isfinite(values).all():
        raise ValueError(
            f"{name} must be finite, got {values[~np.isfinite(values)][0]}; find out why these "
            "stages failed."
        )
