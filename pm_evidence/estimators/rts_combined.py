"""Rounds of simulated tempering with different constants, in one likelihood."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import described
from pm_evidence.core.numerics import log_sum_exp
from pm_evidence.core.records import LogEvidence
from pm_evidence.core.statuses import Status
from pm_evidence.estimators.clusters import Clusters, clusters, merged
from pm_evidence.estimators.mixture import cluster_sums, projections
from pm_evidence.estimators.newton import laplacian, minimise
from pm_evidence.estimators.tempered import (
    LogZCurve,
    checked_beta,
    checked_energy,
    concluded,
    no_support,
)
from pm_evidence.estimators.tempered_weights import (
    LIGHT,
    Shares,
    checked_log_z,
    checked_prior,
    verdict_of_weights,
)

__all__ = ["rts_combined", "rts_combined_curve"]

Floats = NDArray[np.float64]
Rounds = Sequence[tuple[ArrayLike, ArrayLike]]

# Temperatures of which all states together have a smaller share than this (on the log scale) take
# no part in the equations: they are too far from the states to have a weight there.
_OUT_OF_REACH = -460.0


def rts_combined(
    beta: ArrayLike,
    rounds: Rounds,
    *,
    prior: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> LogEvidence:
    """Estimate log Z from rounds of simulated tempering that assumed different constants.

    Parameters
    ----------
    beta : array_like of float64, shape (n_temperatures,)
        Inverse temperatures, rising from 0 to 1.
    rounds : sequence of (energy, log_z)
        For every round, energies of its states in nats, shape ``(n_iterations, n_chains)`` or
        ``(n,)``, and the log normalising constants that the sampler assumed, shape
        ``(n_temperatures,)``. Rounds may have different lengths, but have the same chains.
    prior : array_like of float64, shape (n_temperatures,), optional
        Prior over temperatures that the sampler used in all rounds; uniform by default.
    groups : array_like of int, shape (n_chains,) or (n,), optional
        Independent group of each chain, or of each state of the flat arrays of all rounds, one
        round after another. By default every chain is a group; states of flat arrays are taken as
        independent.

    Returns
    -------
    LogEvidence
        Estimate of the log normalising constant at ``beta = 1`` relative to ``beta = 0``, with a
        Student interval from the groups.

    Raises
    ------
    ValueError
        As `rts`, and if there is no round, or rounds have different numbers of chains.

    Notes
    -----
    Carlson et al. (2016), Eq. 14, summed over rounds (their Appendix A): the constants ``Z``
    maximise ``sum_t n_t (sum_k c_tk log Z_k - log sum_k r_k Z_k / Z_tk)`` with the mean conditional
    probabilities ``c_t`` of round ``t`` and its constants ``Z_t``. The maximum is found by Newton's
    method; for a single round it is `rts`. Consistent. The error counts each round's constants as
    fixed, although they were estimated from earlier rounds. Rounds whose chains did not yet reach
    all temperatures add bias and error: leave the first ones out.

    Examples
    --------
    >>> import numpy as np
    >>> rng, beta = np.random.default_rng(1), np.array([0.0, 0.3, 1.0])
    >>> log_z, rounds = -0.5 * np.log(1.0 + 9.0 * beta), []
    >>> for wrong in (np.array([0.0, 0.5, 1.0]), np.zeros(3)):
    ...     share = np.exp(-wrong) / np.exp(-wrong).sum()  # of states at each temperature
    ...     k = rng.choice(3, size=3000, p=share)
    ...     x = rng.normal(size=3000) / np.sqrt(1.0 + 9.0 * beta[k])
    ...     rounds.append((4.5 * x**2, log_z + wrong))
    >>> rts_combined(beta, rounds)  # exactly -0.5 log(10) = -1.151
    LogEvidence(value=-1.143, mcse=0.015, estimator="rts_combined", status="ok")
    """
    joint, dependence = _joint(beta, rounds, prior, groups)
    if not joint.alive:
        return no_support("rts_combined")
    last = len(joint.log_z) - 1
    found = dependence.spread(joint.influence(last))
    value = float(joint.log_z[last] - joint.log_z[0])
    return concluded("rts_combined", value, found, *joint.verdict())


def rts_combined_curve(
    beta: ArrayLike,
    rounds: Rounds,
    *,
    prior: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> LogZCurve:
    """Estimate the log normalising constants at all temperatures; see `rts_combined`.

    Parameters
    ----------
    beta, rounds, prior, groups
        As for `rts_combined`.

    Returns
    -------
    LogZCurve
        Log normalising constants relative to ``beta = 0`` in nats, with their covariance.

    Raises
    ------
    ValueError
        As `rts_combined`, and if every energy is infinite.
    """
    joint, dependence = _joint(beta, rounds, prior, groups)
    if not joint.alive:
        raise ValueError(
            "rounds must hold a finite energy, got inf at every state; use longer chains, or check "
            "the support of the likelihood."
        )
    return LogZCurve(joint.log_z - joint.log_z[0], *joint.covariance(dependence))


@dataclass(frozen=True)
class _Joint:
    """The likelihood of all rounds, and its maximum.

    Parameters
    ----------
    rounds : tuple of Shares
        Shares of the states of every round among the temperatures.
    """

    rounds: tuple[Shares, ...]

    @property
    def alive(self) -> bool:
        """Whether the likelihood of any state is above zero."""
        return any(bool(np.isfinite(part.energy).any()) for part in self.rounds)

    @cached_property
    def n(self) -> Floats:
        """Number of states of every round, shape ``(n_rounds,)``."""
        return np.array([part.energy.size for part in self.rounds], dtype=np.float64)

    @cached_property
    def log_counts(self) -> Floats:
        """Log of the expected number of states at every temperature, given the states."""
        logs = np.array([part.log_weight + part.log_sums for part in self.rounds])
        return np.array([log_sum_exp(column) for column in logs.T])

    @cached_property
    def reached(self) -> NDArray[np.intp]:
        """Temperatures that take part in the equations."""
        return np.flatnonzero(self.log_counts > _OUT_OF_REACH)

    @cached_property
    def log_z(self) -> Floats:
        """The maximum: log normalising constants in nats, shape ``(n_temperatures,)``."""
        k = self.reached
        log_z = -self._mean_log_weight()
        log_z[k] = self._solved(k, log_z[k])
        # the equation of one temperature, given the others, which is exact for a single round
        weights = np.array([part.log_weight for part in self.rounds])
        logs = weights + log_z
        totals = np.array([log_sum_exp(row[k]) for row in logs])
        scale = (np.log(self.n) - totals)[:, None] + weights
        solution: Floats = self.log_counts - np.array([log_sum_exp(column) for column in scale.T])
        return solution

    def _mean_log_weight(self) -> Floats:
        weights: Floats = self.n @ np.array([part.log_weight for part in self.rounds])
        return weights / self.n.sum()

    def _solved(self, k: NDArray[np.intp], start: Floats) -> Floats:
        def expected(minus: Floats) -> tuple[Floats, Floats]:
            p = self._probabilities(-minus, k)
            return self.n @ p, p.T @ (self.n[:, None] * p)

        solution: Floats = -minimise(expected, np.exp(self.log_counts[k]), -start)[0]
        return solution

    def _probabilities(self, log_z: Floats, k: NDArray[np.intp]) -> Floats:
        """Return the distribution of the temperatures in every round, ``(n_rounds, n_k)``."""
        logs = np.array([part.log_weight[k] for part in self.rounds]) + log_z
        p = np.exp(logs - logs.max(axis=1, keepdims=True))
        shares: Floats = p / p.sum(axis=1, keepdims=True)
        return shares

    @cached_property
    def _response(self) -> Floats:
        """Change of ``log_z`` per unit of the score of every temperature, the first one held.

        Shape ``(n_temperatures, n_temperatures)``; NaN for temperatures out of reach.
        """
        k, size = self.reached, len(self.log_z)
        p = self._probabilities(self.log_z[k], k)
        inverse = np.zeros((len(k), len(k)))
        try:
            inverse[1:, 1:] = np.linalg.inv(laplacian(p.T @ (self.n[:, None] * p))[1:, 1:])
        except np.linalg.LinAlgError:
            inverse[:] = np.nan
        response = np.zeros((size, size))
        response[np.setdiff1d(np.arange(size), k)] = np.nan
        response[np.ix_(k, k)] = inverse
        relative: Floats = response - response[0]
        return relative

    def influence(self, k: int) -> Floats:
        """Return the influence of every state on ``log_z[k] - log_z[0]``, shape ``(n,)``."""
        values, vector = [], self._response[k]
        everywhere = np.arange(len(self.log_z))
        p = self._probabilities(self.log_z, everywhere)
        for part, own in zip(self.rounds, p, strict=True):
            weighted = projections(part.beta, part.base, part.log_weight, part.log_density, vector)
            values.append(weighted - vector @ own)
        influence = np.concatenate(values)
        centred: Floats = influence - influence.mean()
        return centred

    def covariance(self, dependence: Clusters) -> tuple[Floats, float]:
        """Return the covariance of ``log_z - log_z[0]`` and its degrees of freedom."""
        index = merged(dependence.index(self.influence(len(self.log_z) - 1)))
        n, size = int(index.max()) + 1, len(self.log_z)
        if n < 2:
            return np.full((size, size), np.nan), 1.0
        score = np.zeros((n, size))
        p, start = self._probabilities(self.log_z, np.arange(size)), 0
        for part, own in zip(self.rounds, p, strict=True):
            at = index[start : start + part.energy.size]
            start += part.energy.size
            sums = cluster_sums(part.beta, part.base, part.log_weight, part.log_density, at)
            score[: len(sums)] += sums
            score -= np.bincount(at, minlength=n)[:, None] * own
        values = score @ self._response.T
        values = values - values.mean(axis=0)
        return values.T @ values * n / (n - 1), n - 1.0

    def verdict(self) -> tuple[Status, str]:
        """Return whether the states of all rounds together reach both ends of the ladder."""
        for k in (0, len(self.log_z) - 1):
            where = f"beta={self.rounds[0].beta[k]:.4g}"
            if k not in self.reached:
                return Status.DOMINATED, (
                    f"no state is near {where}: its probability given the states is below exp("
                    f"{_OUT_OF_REACH:.0f}). Use more rounds, each with the constants of the "
                    "last one."
                )
            logs = [
                part.relative(k) + part.log_weight[k] + part.log_sums[k] for part in self.rounds
            ]
            shares = np.concatenate(logs)
            log_weight = shares - self.log_counts[k] + np.log(self.n.sum())
            bounded = float(shares.max()) > -np.log(LIGHT)
            found = verdict_of_weights(log_weight, f"of {where} among all states", bounded)
            if found[0] != Status.OK:
                return found
        return Status.OK, ""


def _joint(
    beta: ArrayLike, rounds: Any, prior: ArrayLike | None, groups: ArrayLike | None
) -> tuple[_Joint, Clusters]:
    """Return the likelihood of all rounds, and which states depend on each other."""
    ladder = checked_beta(beta)
    log_prior = checked_prior(prior, len(ladder))
    if not isinstance(rounds, list | tuple) or not rounds:
        raise ValueError(
            "rounds must be a list of at least one pair (energy, log_z), got "
            f"{described(rounds)}; pass the energies and the constants of every round."
        )
    parts, energies = [], []
    for t, pair in enumerate(rounds):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(
                f"rounds[{t}] must be a pair (energy, log_z), got {described(pair)}; pass the "
                "energies and the constants of every round."
            )
        energies.append(checked_energy(pair[0], f"rounds[{t}][0]"))
        log_z = checked_log_z(pair[1], len(ladder), f"rounds[{t}][1]")
        parts.append(Shares(ladder, energies[-1].ravel(), log_prior - log_z))
        if energies[-1].shape[1:] != energies[0].shape[1:]:
            raise ValueError(
                f"rounds[{t}][0] must have the chains of the rounds before it, got shape "
                f"{energies[-1].shape} after {energies[0].shape}; pass flat arrays and groups if "
                "the chains changed."
            )
    shape = np.concatenate(energies).shape
    return _Joint(tuple(parts)), clusters(shape, groups)
