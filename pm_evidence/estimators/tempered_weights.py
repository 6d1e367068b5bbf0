"""Shares of states among temperatures, as simulated tempering sees them; verdicts on weights."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import float_array
from pm_evidence.core.statuses import Status
from pm_evidence.estimators.mixture import finite_potentials, log_columns, log_mixture
from pm_evidence.estimators.pareto import is_heavy, pareto_k
from pm_evidence.estimators.tempered import check_size

__all__ = ["LIGHT", "Shares", "checked_log_z", "checked_prior", "verdict_of_weights"]

Floats = NDArray[np.float64]

# With fewer effective states than this, the variance of the weights does not estimate the error.
_LEAST_EFFECTIVE = 5.0
# Weights of which none is, or none can be, above this multiple of their mean, or of the largest of
# them, have no heavy tail.
LIGHT = 10.0


@dataclass(frozen=True)
class Shares:
    """Conditional probabilities of the temperatures at every state of simulated tempering.

    Parameters
    ----------
    beta : ndarray, shape (n_temperatures,)
        Inverse temperatures.
    energy : ndarray, shape (n,)
        Energies of the states in nats.
    log_weight : ndarray, shape (n_temperatures,)
        ``log r_k - log_z[k]`` with the prior ``r`` over temperatures and the log normalising
        constants that the sampler assumed, in nats.

    Notes
    -----
    Carlson, Stinson, Pakman and Paninski (2016), Eq. 7: ``q(beta_k | x)`` is proportional to
    ``exp(log_weight[k] - beta[k] * energy(x))``.
    """

    beta: Floats
    energy: Floats
    log_weight: Floats

    @cached_property
    def base(self) -> Floats:
        """Finite energies in one row, as the functions of `mixture` take them."""
        return finite_potentials(self.energy)[None]

    @cached_property
    def log_density(self) -> Floats:
        """Log of the marginal density of every state relative to ``beta = 0``, shape ``(n,)``."""
        return log_mixture(self.beta, self.base, self.log_weight)

    @cached_property
    def log_sums(self) -> Floats:
        """Log of the sums over states of the shares, without ``log_weight``; one per temperature.

        Their differences are the log ratios of the normalising constants.
        """
        return log_columns(self.beta, self.base, self.log_density)

    def relative(self, k: int) -> Floats:
        """Return the shares of temperature ``k`` divided by their sum over states, in logs."""
        log_weight: Floats = -self.beta[k] * self.base[0] - self.log_density - self.log_sums[k]
        if self.beta[k] > 0.0:
            log_weight[np.isposinf(self.energy)] = -np.inf
        return log_weight

    def verdict(self) -> tuple[Status, str]:
        """Return whether the states reach both ends of the ladder."""
        for k in (0, len(self.beta) - 1):
            where = f"of beta={self.beta[k]:.4g} among all states"
            logs = self.relative(k)
            largest = float(logs.max() + self.log_sums[k] + self.log_weight[k])
            logs = logs + np.log(self.energy.size)
            found = verdict_of_weights(logs, where, bounded=largest > -np.log(LIGHT))
            if found[0] != Status.OK:
                return found
        return Status.OK, ""


def verdict_of_weights(log_weight: Floats, where: str, bounded: bool = False) -> tuple[Status, str]:
    """Return whether the mean of weights can be relied on.

    Parameters
    ----------
    log_weight : ndarray, shape (n,)
        Log of the weights, which have a mean of 1, in nats.
    where : str
        What the weights are, for the message.
    bounded : bool
        Whether no weight can be more than ten times as large as the largest of them. This holds for
        probabilities if one of them is above 0.1.
    """
    n, weight = log_weight.size, np.exp(log_weight)
    effective = float(n**2 / np.sum(weight**2))
    if effective < min(_LEAST_EFFECTIVE, 0.5 * n):
        return Status.DOMINATED, (
            f"a few states carry nearly all of the weight {where} (effective number "
            f"{effective:.1f} of {n}): the error cannot be trusted. Use more temperatures or "
            "longer chains."
        )
    light = bounded or weight.max() <= LIGHT
    k = float("nan") if light else pareto_k(log_weight)
    if is_heavy(k, n):
        return Status.HEAVY_TAIL, (
            f"the weights {where} have a heavy tail (Pareto k {k:.2f} with {n} states), so that "
            "the largest may not have occurred: the error cannot be trusted. Use more temperatures "
            "or longer chains."
        )
    return Status.OK, ""


def checked_log_z(log_z: ArrayLike, size: int | None = None, name: str = "log_z") -> Floats:
    """Return log normalising constants; raise ValueError unless they are finite and fit."""
    values = float_array(name, log_z)
    least = values.ndim == 1 and values.size >= 2
    if not least or (size is not None and values.size != size):
        wanted = f"({size},)" if size is not None else "(n_temperatures,) with two or more"
        raise ValueError(
            f"{name} must have one value for each temperature, shape {wanted}, got shape "
            f"{values.shape}; pass the constants that the sampler used."
        )
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise ValueError(
            f"{name} must be finite, got {values[bad[0]]} at temperature {bad[0]}; pass the "
            "constants that the sampler used, zeros if it used none."
        )
    check_size(name, values)
    return values


def checked_prior(prior: ArrayLike | None, size: int) -> Floats:
    """Return the log of a prior over temperatures, normalised; raise ValueError if it is none."""
    if prior is None:
        return np.full(size, -np.log(size))
    values = float_array("prior", prior)
    if values.shape != (size,):
        raise ValueError(
            f"prior must have one probability for each temperature, shape ({size},), got shape "
            f"{values.shape}; leave it out if it is uniform."
        )
    bad = np.flatnonzero(~((values > 0.0) & np.isfinite(values)))
    if bad.size:
        raise ValueError(
            f"prior must be positive and finite, got {values[bad[0]]} at temperature {bad[0]}; "
            "leave temperatures of probability zero out of the ladder."
        )
    logs: Floats = np.log(values / values.sum())
    return logs
