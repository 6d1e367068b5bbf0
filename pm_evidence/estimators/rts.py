"""Rao-Blackwellized tempered sampling: log Z from how states are shared among temperatures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_positive, float_array
from pm_evidence.core.numerics import log_sum_exp
from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.estimators.errors import (
    Clusters,
    Verdict,
    checked_pairs,
    clusters,
    merged,
    of_weights,
    unbiased,
)
from pm_evidence.estimators.mbar import (
    cluster_sums,
    finite_potentials,
    laplacian,
    log_columns,
    log_mixture,
    minimise,
    projections,
)
from pm_evidence.estimators.tempered import (
    LogZCurve,
    check_potentials,
    checked_energy,
    checked_rung,
    concluded,
    no_support,
    without_curve,
)
from pm_evidence.schedules import rising

Floats = NDArray[np.float64]


# Weights of which none is, or none can be, above this multiple of their mean, or of the largest of
# them, have no heavy tail.
LIGHT = 10.0


@dataclass(frozen=True)
class Shares:
    """Conditional probabilities of the temperatures at every state of simulated tempering.

    Carlson, Stinson, Pakman and Paninski (2016), Eq. 7: ``q(beta_k | x)`` is proportional to
    ``exp(log_weight[k] - beta[k] * energy(x))``.
    """

    beta: Floats  # shape (n_temperatures,): inverse temperatures
    energy: Floats  # shape (n,): energies of the states in nats
    # shape (n_temperatures,): ``log r_k - log_z[k]`` with the prior ``r`` over temperatures and the
    # log normalising constants that the sampler assumed, in nats
    log_weight: Floats

    @cached_property
    def base(self) -> Floats:
        """Finite energies in one row, as the functions of `mixture` take them."""
        return finite_potentials(self.energy)[None]

    @cached_property
    def log_density(self) -> Floats:
        """Log of the marginal density of every state relative to ``beta = 0``, shape ``(n,)``."""
        found: Floats = log_mixture(self.beta, self.base, self.log_weight)
        return found

    @cached_property
    def log_sums(self) -> Floats:
        """Log of the sums over states of the shares, without ``log_weight``; one per temperature.

        Their differences are the log ratios of the normalising constants.
        """
        found: Floats = log_columns(self.beta, self.base, self.log_density)
        return found

    def relative(self, k: int) -> Floats:
        """Return the shares of temperature ``k`` divided by their sum over states, in logs."""
        log_weight: Floats = -self.beta[k] * self.base[0] - self.log_density - self.log_sums[k]
        if self.beta[k] > 0.0:
            log_weight[np.isposinf(self.energy)] = -np.inf
        return log_weight


def of_states(log_weight: Floats, where: str, bounded: bool = False) -> Iterator[Verdict]:
    """Yield the verdicts on the mean of weights of states, whose mean is 1."""
    weight = np.exp(log_weight)
    effective = float(weight.size**2 / np.sum(weight**2))
    light = bounded or bool(weight.max() <= LIGHT)
    remedy = "more temperatures or longer chains"
    return of_weights(log_weight, effective, light, "states", f" {where}", remedy)


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
    check_potentials(name, values)
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


def rts(
    beta: ArrayLike,
    energy: ArrayLike,
    log_z: ArrayLike,
    *,
    prior: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> LogEvidence:
    """Estimate log Z from simulated tempering.

    Parameters
    ----------
    beta : array_like of float64, shape (n_temperatures,)
        Inverse temperatures, rising from 0 to 1.
    energy : array_like of float64, shape (n_iterations, n_chains) or (n,)
        Minus the derivative of the log density by ``beta`` at every state, in nats; ``inf``
        (likelihood zero) is legal.
    log_z : array_like of float64, shape (n_temperatures,)
        Log normalising constants in nats that the sampler assumed at each temperature.
    prior : array_like of float64, shape (n_temperatures,), optional
        Prior over temperatures that the sampler used, up to a constant; uniform by default.
    groups : array_like of int, shape (n_chains,) or (n,), optional
        Independent group of each chain, or of each state of a flat array. By default every chain
        is a group; the states of a flat array are taken as independent.

    Returns
    -------
    LogEvidence
        Estimate of the log normalising constant at ``beta = 1`` relative to ``beta = 0``, with a
        Student interval from the groups.

    Raises
    ------
    ValueError
        If ``beta`` does not rise from 0 to 1, an energy is NaN or minus infinity, ``log_z`` is not
        finite or ``prior`` not positive, or a shape does not fit.

    See Also
    --------
    rts_curve : The constants at all temperatures, with the estimated bias.
    rts_combined : The same for rounds with different ``log_z``.

    Notes
    -----
    Carlson, Stinson, Pakman and Paninski (2016), Eq. 12:
    ``log_z[k] + log(r[0] c[k]) - log(r[k] c[0])``, where ``r`` is the prior over temperatures and
    ``c[k]`` the mean over states of the conditional probability of temperature ``k``. Consistent if
    the states come from simulated tempering with exactly these ``log_z`` and ``prior``: with others
    the estimate converges to a wrong value, and nothing in the energies shows it. States of
    parallel tempering have other shares; use `mbar` for them.

    The error is that of Eq. 16 with covariances from sums over groups or, if there are fewer than
    eight, over batches that are long compared with the autocorrelation time. It cannot be trusted
    if a few states carry nearly all of the weight of one end of the ladder (status
    ``"dominated"``): then the chains hardly reached that end, and ``log_z`` needs another round.

    Examples
    --------
    With the right ``log_z`` the temperatures of simulated tempering have the prior as their
    distribution.

    >>> import numpy as np
    >>> rng, beta = np.random.default_rng(1), np.linspace(0.0, 1.0, 5)
    >>> log_z = -0.5 * np.log(1.0 + 9.0 * beta)
    >>> x = rng.normal(size=5000) / np.sqrt(1.0 + 9.0 * beta[rng.integers(5, size=5000)])
    >>> rts(beta, 4.5 * x**2, log_z)  # exactly -0.5 log(10) = -1.151
    LogEvidence(value=-1.134, mcse=0.020, estimator="rts", status="ok")
    """
    return _estimate("rts", *shares_of(beta, energy, log_z, prior, groups))


def rts_curve(
    beta: ArrayLike,
    energy: ArrayLike,
    log_z: ArrayLike,
    *,
    prior: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> LogZCurve:
    """Estimate the log normalising constants at all temperatures; see `rts`.

    Parameters
    ----------
    beta, energy, log_z, prior, groups
        As for `rts`.

    Returns
    -------
    LogZCurve
        Log normalising constants relative to ``beta = 0`` in nats, with their covariance (Carlson
        et al. 2016, Eq. 16) and their estimated bias (Eq. 15), which has no definite sign. The bias
        is not subtracted: it is of the order of the variance, and its estimate is as noisy.

    Raises
    ------
    ValueError
        As `rts`, and if every energy is infinite.
    """
    return _curve(*shares_of(beta, energy, log_z, prior, groups), "energy")


def ts(
    rung: ArrayLike,
    log_z: ArrayLike,
    *,
    prior: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    pseudocount: float = 0.1,
) -> LogEvidence:
    """Estimate log Z from how often simulated tempering visited each temperature.

    Parameters
    ----------
    rung : array_like of int, shape (n_iterations, n_chains) or (n,)
        Index of the temperature of every state.
    log_z, prior, groups
        As for `rts`.
    pseudocount : float
        Number that is added to the count of every temperature.

    Returns
    -------
    LogEvidence
        Estimate of the log normalising constant at ``beta = 1`` relative to ``beta = 0``, with a
        Student interval from the groups.

    Raises
    ------
    ValueError
        If an index is out of range, ``log_z`` is not finite, ``prior`` or ``pseudocount`` not
        positive, or a shape does not fit.

    Notes
    -----
    Carlson et al. (2016), Eq. 8 and section 4.3: `rts` with visits instead of their conditional
    probabilities, which has a larger variance for the same states; it serves comparisons.
    Consistent under the conditions of `rts`; biased by the pseudo-count if visits are rare.

    Examples
    --------
    >>> ts([0, 1, 1, 0, 1, 0, 0, 0], [0.0, -2.0])  # -2 + log(3.1 / 5.1)
    LogEvidence(value=-2.498, mcse=0.759, estimator="ts", status="high_variance")
    """
    constants = checked_log_z(log_z)
    size = len(constants)
    log_prior = checked_prior(prior, size)
    visits = checked_rung(rung, size)
    if visits.ndim not in (1, 2):
        raise ValueError(
            "rung must have shape (n,) or (n_iterations, n_chains), got shape "
            f"{visits.shape}; pass one index for every state."
        )
    extra = check_positive("pseudocount", pseudocount)
    dependence, visits = clusters(visits.shape, groups), visits.ravel()
    counts = np.bincount(visits, minlength=size) + extra
    curve = constants - log_prior + np.log(counts)
    ends = (visits == size - 1) / counts[-1] - (visits == 0) / counts[0]
    problems = [
        (
            Status.NO_OVERLAP,
            f"temperature {k} was never visited: the estimate consists of the pseudo-count. Use "
            "rts, longer chains or better log_z.",
        )
        for k in (0, size - 1)
        if counts[k] == extra
    ]
    found = dependence.spread(ends - ends.mean())
    return concluded("ts", float(curve[-1] - curve[0]), found, problems)


def shares_of(
    beta: ArrayLike,
    energy: ArrayLike,
    log_z: ArrayLike,
    prior: ArrayLike | None,
    groups: ArrayLike | None,
) -> tuple["JointShares", Clusters]:
    """Return the shares of the states of one round, and which of them depend on each other."""
    ladder, values = rising("beta", beta), checked_energy(energy)
    log_weight = checked_prior(prior, len(ladder)) - checked_log_z(log_z, len(ladder))
    shares = Shares(ladder, values.ravel(), log_weight)
    return JointShares((shares,)), clusters(values.shape, groups)


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
    return _estimate("rts_combined", *_joint(beta, rounds, prior, groups))


def _estimate(name: str, joint: "JointShares", dependence: Clusters) -> LogEvidence:
    if not joint.alive:
        return no_support(name)
    found = dependence.spread(joint.influence(-1))
    value = float(joint.log_z[-1] - joint.log_z[0])
    return concluded(name, value, found, joint.verdicts())


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
    return _curve(*_joint(beta, rounds, prior, groups), "rounds")


def _curve(joint: "JointShares", dependence: Clusters, parameter: str) -> LogZCurve:
    """Return the constants at all temperatures, with their covariance and bias."""
    if not joint.alive:
        raise without_curve(parameter)
    index = merged(dependence.index(joint.influence(-1)))
    score, n = joint.scores(index), int(index.max()) + 1
    values = score @ joint.response.T
    values = values - values.mean(axis=0)
    # variance of the mean probability of each temperature over its square
    relative = np.sum((score / np.exp(joint.log_counts)) ** 2, axis=0) * unbiased(n)
    covariance, curve = values.T @ values * unbiased(n), joint.log_z - joint.log_z[0]
    return LogZCurve(curve, covariance, max(n - 1.0, 1.0), 0.5 * (relative[0] - relative))


@dataclass(frozen=True)
class JointShares:
    """The likelihood of all rounds, and its maximum."""

    rounds: tuple[Shares, ...]  # shares of the states of every round among the temperatures

    @property
    def alive(self) -> bool:
        """Whether the likelihood of any state is above zero."""
        return any(bool(np.isfinite(part.energy).any()) for part in self.rounds)

    @cached_property
    def n(self) -> Floats:
        """Number of states of every round, shape ``(n_rounds,)``."""
        return np.array([part.energy.size for part in self.rounds], dtype=np.float64)

    @cached_property
    def log_weights(self) -> Floats:
        """Log weights of the temperatures in every round, shape ``(n_rounds, n_temperatures)``."""
        return np.array([part.log_weight for part in self.rounds])

    @cached_property
    def log_counts(self) -> Floats:
        """Log of the expected number of states at every temperature, given the states."""
        return _log_sums(self.log_weights + [part.log_sums for part in self.rounds])

    @cached_property
    def reached(self) -> NDArray[np.intp]:
        """Temperatures that take part in the equations."""
        return np.flatnonzero(self.log_counts > _OUT_OF_REACH)

    @cached_property
    def log_z(self) -> Floats:
        """The maximum: log normalising constants in nats, shape ``(n_temperatures,)``."""
        if len(self.rounds) == 1:  # the solution is explicit (Carlson et al. 2016, Eq. 12)
            return self.rounds[0].log_sums
        k, weights = self.reached, self.log_weights
        log_z: Floats = -(self.n @ weights) / self.n.sum()

        def expected(minus: Floats) -> tuple[Floats, Floats]:
            p = self._probabilities(-minus, k)
            return self.n @ p, p.T @ (self.n[:, None] * p)

        log_z[k] = -minimise(expected, np.exp(self.log_counts[k]), -log_z[k])[0]
        # the equation of one temperature, given the others, which is exact for a single round
        totals = _log_sums((weights + log_z)[:, k].T)
        solution: Floats = self.log_counts - _log_sums((np.log(self.n) - totals)[:, None] + weights)
        return solution

    def _probabilities(self, log_z: Floats, k: NDArray[np.intp]) -> Floats:
        """Return the distribution of the temperatures in every round, ``(n_rounds, n_k)``."""
        logs = self.log_weights[:, k] + log_z
        p = np.exp(logs - logs.max(axis=1, keepdims=True))
        shares: Floats = p / p.sum(axis=1, keepdims=True)
        return shares

    @cached_property
    def response(self) -> Floats:
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
        values, vector = [], self.response[k]
        everywhere = np.arange(len(self.log_z))
        p = self._probabilities(self.log_z, everywhere)
        for part, own in zip(self.rounds, p, strict=True):
            weighted = projections(part.beta, part.base, part.log_weight, part.log_density, vector)
            values.append(weighted - vector @ own)
        influence = np.concatenate(values)
        centred: Floats = influence - influence.mean()
        return centred

    def scores(self, index: NDArray[np.int64]) -> Floats:
        """Return the sums over clusters of shares less their means, ``(n, n_temperatures)``."""
        n, size = int(index.max()) + 1, len(self.log_z)
        score, start = np.zeros((n, size)), 0
        p = self._probabilities(self.log_z, np.arange(size))
        for part, own in zip(self.rounds, p, strict=True):
            at = index[start : start + part.energy.size]
            start += part.energy.size
            sums = cluster_sums(part.beta, part.base, part.log_weight, part.log_density, at)
            score[: len(sums)] += sums
            score -= np.bincount(at, minlength=n)[:, None] * own
        return score

    def verdicts(self) -> Iterator[Verdict]:
        """Yield the verdicts on whether all rounds together reach both ends of the ladder."""
        for k in (0, len(self.log_z) - 1):
            where = f"beta={self.rounds[0].beta[k]:.4g}"
            if k not in self.reached:
                yield (
                    Status.DOMINATED,
                    f"no state is near {where}: its probability given the states is below exp("
                    f"{_OUT_OF_REACH:.0f}). Use more rounds, each with the constants of the last "
                    "one.",
                )
            shares = np.concatenate(
                [part.relative(k) + part.log_weight[k] + part.log_sums[k] for part in self.rounds]
            )
            log_weight = shares - self.log_counts[k] + np.log(self.n.sum())
            bounded = float(shares.max()) > -np.log(LIGHT)
            yield from of_states(log_weight, f"of {where} among all states", bounded)


def _log_sums(logs: Floats) -> Floats:
    """Return the log of the sums over rows of exponentials of every column."""
    return np.array([log_sum_exp(column) for column in logs.T])


def _joint(
    beta: ArrayLike, rounds: Any, prior: ArrayLike | None, groups: ArrayLike | None
) -> tuple[JointShares, Clusters]:
    """Return the likelihood of all rounds, and which states depend on each other."""
    ladder = rising("beta", beta)
    log_prior = checked_prior(prior, len(ladder))
    remedy, parts, energies = "pass the energies and the constants of every round", [], []
    for t, pair in enumerate(checked_pairs("rounds", rounds, "(energy, log_z)", remedy)):
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
    return JointShares(tuple(parts)), clusters(shape, groups)
