"""Rao-Blackwellized tempered sampling: log Z from how states are shared among temperatures."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_positive
from pm_evidence.core.records import LogEvidence
from pm_evidence.core.statuses import Status
from pm_evidence.estimators.clusters import Clusters, clusters, merged
from pm_evidence.estimators.mixture import cluster_sums
from pm_evidence.estimators.tempered import (
    LogZCurve,
    checked_beta,
    checked_energy,
    checked_rung,
    concluded,
    no_support,
)
from pm_evidence.estimators.tempered_weights import Shares, checked_log_z, checked_prior

__all__ = ["rts", "rts_curve", "shares_of", "ts"]

Floats = NDArray[np.float64]


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
    shares, dependence = shares_of(beta, energy, log_z, prior, groups)
    if not np.isfinite(shares.energy).any():
        return no_support("rts")
    last = len(shares.beta) - 1
    influence = np.exp(shares.relative(last)) - np.exp(shares.relative(0))
    value = float(shares.log_sums[last] - shares.log_sums[0])
    return concluded("rts", value, dependence.spread(influence), *shares.verdict())


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
    shares, dependence = shares_of(beta, energy, log_z, prior, groups)
    if not np.isfinite(shares.energy).any():
        raise ValueError(
            "energy must be finite at one state or more, got inf at all; use longer chains, or "
            "check the support of the likelihood."
        )
    curve = shares.log_sums - shares.log_sums[0]
    influence = np.exp(shares.relative(-1)) - np.exp(shares.relative(0))
    index = merged(dependence.index(influence))
    n, size = int(index.max()) + 1, len(curve)
    if n < 2:
        return LogZCurve(curve, np.full((size, size), np.nan), 1.0, np.full(size, np.nan))
    sums = cluster_sums(shares.beta, shares.base, -shares.log_sums, shares.log_density, index)
    sums -= np.bincount(index)[:, None] / index.size
    relative = np.sum(sums**2, axis=0) * n / (n - 1)  # variance of c[k] over its square
    values = sums - sums[:, :1]
    covariance = values.T @ values * n / (n - 1)
    return LogZCurve(curve, covariance, n - 1.0, 0.5 * (relative[0] - relative))


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
    status, message = Status.OK, ""
    empty = [k for k in (0, size - 1) if counts[k] == extra]
    if empty:
        status, message = (
            Status.NO_OVERLAP,
            (
                f"temperature {empty[0]} was never visited: the estimate consists of the "
                "pseudo-count. Use rts, longer chains or better log_z."
            ),
        )
    found = dependence.spread(ends - ends.mean())
    return concluded("ts", float(curve[-1] - curve[0]), found, status, message)


def shares_of(
    beta: ArrayLike,
    energy: ArrayLike,
    log_z: ArrayLike,
    prior: ArrayLike | None,
    groups: ArrayLike | None,
) -> tuple[Shares, Clusters]:
    """Return the shares of the states, and which of them depend on each other."""
    ladder, values = checked_beta(beta), checked_energy(energy)
    log_weight = checked_prior(prior, len(ladder)) - checked_log_z(log_z, len(ladder))
    return Shares(ladder, values.ravel(), log_weight), clusters(values.shape, groups)
