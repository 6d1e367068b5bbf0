"""Mean and variance of the energy at every temperature, from states drawn there or from all."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen.fast_math import fast_exp
from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.sums import dot, total
from pm_evidence.estimators.tempered import Tempered
from pm_evidence.estimators.tempered_weights import Shares

__all__ = ["EnergyMoments", "OfAll", "OfDrawn"]

Floats = NDArray[np.float64]


class EnergyMoments(Protocol):
    """Moments of the energy along a ladder; states of likelihood zero are left out of them."""

    @property
    def beta(self) -> Floats:
        """Temperatures where the moments are known, shape ``(n_known,)``."""
        ...

    @property
    def mean(self) -> Floats:
        """Mean of the finite energies there in nats, shape ``(n_known,)``."""
        ...

    @property
    def variance(self) -> Floats:
        """Variance of the finite energies there in square nats, shape ``(n_known,)``."""
        ...

    @property
    def log_alive(self) -> float:
        """Log of the share of the density at ``beta = 0`` where the likelihood is not zero.

        In nats: log Z has this jump at ``beta = 0``, which no integral of mean energies shows.
        """
        ...

    def influence(self, of_mean: Floats, of_variance: Floats) -> Floats:
        """Return the influence of every state on a sum of moments and ``log_alive``.

        Parameters
        ----------
        of_mean, of_variance : ndarray, shape (n_known,)
            Weights of minus the means and of the variances in the sum.
        """
        ...


@dataclass(frozen=True, slots=True)
class OfDrawn:
    """Moments of the energies of the states that were drawn at each temperature.

    Parameters
    ----------
    states : Tempered
        The states.
    beta, mean, variance, log_alive
        See `EnergyMoments`; temperatures without a state of finite energy are left out.
    """

    states: Tempered
    beta: Floats
    mean: Floats
    variance: Floats
    log_alive: float

    @classmethod
    def of(cls, states: Tempered) -> "OfDrawn":
        """Return the moments at the temperatures that have a state of finite energy."""
        alive = np.isfinite(states.energy)
        size, rung = len(states.beta), states.rung
        energy = np.where(alive, states.energy, 0.0)
        n = np.bincount(rung, alive, minlength=size)
        seen = np.flatnonzero(n)
        mean = np.bincount(rung, energy, minlength=size) / np.maximum(n, 1.0)
        square = np.where(alive, (energy - mean[rung]) ** 2, 0.0)
        variance = np.bincount(rung, square, minlength=size) / np.maximum(n - 1.0, 1.0)
        drawn = states.counts[0]
        with np.errstate(divide="ignore"):
            log_alive = float(np.log(n[0] / drawn)) if drawn else 0.0
        return cls(states, states.beta[seen], mean[seen], variance[seen], log_alive)

    def influence(self, of_mean: Floats, of_variance: Floats) -> Floats:
        """Return the influence of every state on a sum of moments; see `EnergyMoments`."""
        states = self.states
        alive = np.isfinite(states.energy)
        known = np.searchsorted(self.beta, states.beta[states.rung])
        known = np.minimum(known, len(self.beta) - 1)  # of states that are not alive
        n = np.bincount(known, alive, minlength=len(self.beta))
        energy = np.where(alive, states.energy, self.mean[known])
        rest = energy - self.mean[known]
        mean_square = self.variance * (n - 1.0) / n
        square = np.where(alive, rest**2 - mean_square[known], 0.0)
        values: Floats = (of_variance[known] * square - of_mean[known] * rest) / n[known]
        zero = states.rung == 0
        if zero.any():
            values += zero * (alive / max((zero & alive).sum(), 1) - 1.0 / zero.sum())
        return values


@dataclass(frozen=True, slots=True)
class OfAll:
    """Moments over all states, weighted by the probability of each temperature given the state.

    Parameters
    ----------
    shares : Shares
        The states, and their probabilities of the temperatures.
    alive : ndarray of bool, shape (n,)
        Which states have a finite energy.
    log_density : ndarray, shape (n_alive,)
        Log marginal density of those, as in `Shares`.
    log_sums : ndarray, shape (n_temperatures,)
        Log of the sums over those of the shares, as in `Shares`.
    beta, mean, variance, log_alive
        See `EnergyMoments`.
    """

    shares: Shares
    alive: NDArray[np.bool_]
    log_density: Floats
    log_sums: Floats
    beta: Floats
    mean: Floats
    variance: Floats
    log_alive: float

    @classmethod
    def of(cls, shares: Shares) -> "OfAll":
        """Return the moments at all temperatures."""
        alive = np.isfinite(shares.energy)
        energy, log_density = shares.energy[alive], shares.log_density[alive]
        log_sums, size = shares.log_sums.copy(), len(shares.beta)
        at_zero = np.exp(shares.relative(0))
        share = float(at_zero[alive].sum())
        log_sums[0] += np.log(share)
        mean, variance = np.empty((2, size))
        _moments(shares.beta, energy, log_density, log_sums, mean, variance)
        return cls(
            shares,
            alive,
            log_density,
            log_sums,
            shares.beta,
            mean,
            variance,
            float(np.log(share)),
        )

    def influence(self, of_mean: Floats, of_variance: Floats) -> Floats:
        """Return the influence of every state on a sum of moments; see `EnergyMoments`."""
        at_zero = np.exp(self.shares.relative(0))
        values = -at_zero
        values[self.alive] += at_zero[self.alive] / np.exp(self.log_alive)
        added = np.zeros(int(self.alive.sum()))
        energy = self.shares.energy[self.alive]
        for_each = np.stack([self.mean, self.variance, of_mean, of_variance])
        _influence(self.beta, energy, self.log_density, self.log_sums, for_each, added)
        values[self.alive] += added
        return values - values.mean()


@njit
def _moments(
    beta: Any, energy: Any, log_density: Any, log_sums: Any, mean: Any, variance: Any
) -> None:
    weight, rest = np.empty(energy.size), np.empty(energy.size)
    for k in range(beta.size):
        for n in range(energy.size):
            weight[n] = fast_exp(-beta[k] * energy[n] - log_density[n] - log_sums[k])
        mean[k] = dot(weight, energy) / total(weight)
        for n in range(energy.size):
            rest[n] = (energy[n] - mean[k]) ** 2
        variance[k] = dot(weight, rest) / total(weight)


@njit
def _influence(
    beta: Any, energy: Any, log_density: Any, log_sums: Any, for_each: Any, out: Any
) -> None:
    for k in range(beta.size):
        mean, variance, of_mean, of_variance = for_each[:, k]
        for n in range(energy.size):
            weight = fast_exp(-beta[k] * energy[n] - log_density[n] - log_sums[k])
            rest = energy[n] - mean
            out[n] += weight * (of_variance * (rest * rest - variance) - of_mean * rest)
