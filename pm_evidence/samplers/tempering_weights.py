"""The weights by which chains of simulated tempering draw their temperatures."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import float_array
from pm_evidence.core.contracts import Plan

__all__ = ["Redraw", "TemperingPlan", "checked_weights", "log_probabilities", "prior_over"]

Floats = NDArray[np.float64]
Rungs = NDArray[np.int16]

_EXPONENT = 2.0  # of the exponential prior: Carlson et al. (2016), section 4.4
_LEAST_SHARE = 1e-12  # of a temperature relative to that of the largest weight: none is visited


@dataclass(frozen=True, slots=True)
class TemperingPlan(Plan):
    """A plan with the weights of the temperatures.

    Parameters
    ----------
    log_z : ndarray, shape (n_temperatures,)
        Approximate log normalising constants, in nats.
    prior : ndarray, shape (n_temperatures,)
        Prior over temperatures; it sums to 1.
    """

    log_z: Floats = field(default_factory=lambda: np.zeros(0))
    prior: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def log_weight(self) -> Floats:
        """Log of prior over normalising constant, in nats."""
        weight: Floats = np.log(self.prior) - self.log_z
        return weight


@dataclass
class Redraw:
    """Draws of temperatures given states (Carlson et al. 2016, Eq. 7).

    Parameters
    ----------
    beta : ndarray, shape (n_temperatures,)
        Inverse temperatures.
    log_weight : ndarray, shape (n_temperatures,)
        See ``TemperingPlan``.
    rng : numpy.random.Generator
        Source of the draws.
    """

    beta: Floats
    log_weight: Floats
    rng: np.random.Generator

    def changed(self, rung: Rungs, energy: Floats) -> Rungs:
        """Return the temperatures of the next iteration; see ``tempered_chains.Rule``."""
        log_p = log_probabilities(self.beta, self.log_weight, energy)
        cumulative = np.cumsum(np.exp(log_p), axis=1)
        bound = self.rng.random(len(rung)) * cumulative[:, -1]
        return (cumulative <= bound[:, None]).sum(axis=1).astype(np.int16)


def log_probabilities(beta: Floats, log_weight: Floats, energy: Floats) -> Floats:
    """Return the log probability of every temperature given a state.

    Parameters
    ----------
    beta, log_weight : ndarray, shape (n_temperatures,)
        Inverse temperatures, and log weights in nats.
    energy : ndarray, shape (n,)
        Energies of the states, in nats; infinite where the target has no mass.

    Returns
    -------
    ndarray, shape (n, n_temperatures)

    Notes
    -----
    Carlson et al. (2016), Eq. 7.
    """
    log_p = np.empty((len(energy), len(beta)))
    log_p[:, 0] = log_weight[0]
    np.multiply.outer(energy, -beta[1:], out=log_p[:, 1:])
    log_p[:, 1:] += log_weight[1:]
    log_p -= log_p.max(axis=1, keepdims=True)
    log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
    return log_p


def prior_over(given: Any, beta: Floats) -> Floats:
    """Return the prior over temperatures that a user asks for, which sums to 1.

    Parameters
    ----------
    given : str or array_like, shape (n_temperatures,)
        See ``pe.SimulatedTempering``.
    beta : ndarray, shape (n_temperatures,)
        Inverse temperatures.

    Raises
    ------
    ValueError
        If there is not one positive weight for each temperature.
    """
    if isinstance(given, str):
        weight = np.ones(len(beta)) if given == "uniform" else np.exp(_EXPONENT * beta)
        return weight / weight.sum()
    weight = checked_weights(given)
    if len(weight) != len(beta):
        raise ValueError(
            f"prior must have one weight for each of the {len(beta)} temperatures, got "
            f"{len(weight)} weights; pass n_temperatures={len(weight)}, or 'uniform'."
        )
    return weight / weight.sum()


def checked_weights(given: Any) -> Floats:
    """Return the weights of temperatures that a user gives, of which the largest is 1.

    Raises
    ------
    ValueError
        If they are not at least two positive, finite numbers, or differ too much.
    """
    weight = float_array("prior", given)
    if weight.ndim != 1 or weight.size < 2:
        raise ValueError(
            f"prior must be 'uniform', 'exponential' or a row of at least two weights, got shape "
            f"{weight.shape}; pass one weight for each temperature."
        )
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight > 0.0)))
    if bad.size:
        raise ValueError(
            f"prior must be positive and finite, got prior[{bad[0]}]={weight[bad[0]]}; leave out "
            "temperatures that chains should not visit."
        )
    if weight.min() < _LEAST_SHARE * weight.max():
        raise ValueError(
            f"prior must have weights that differ by a factor of at most {1.0 / _LEAST_SHARE:g}, "
            f"got weights from {weight.min():g} to {weight.max():g}; leave out temperatures that "
            "chains should not visit."
        )
    return weight / weight.max()
