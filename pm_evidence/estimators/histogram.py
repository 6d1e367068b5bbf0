"""The density of the work from forward and reverse paths together, and log Z from it."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_count
from pm_evidence.core.numerics import log_sum_exp
from pm_evidence.core.random import resolve_seed
from pm_evidence.core.records import LogEvidence
from pm_evidence.estimators.bar import bar, checked_pair, overlap

__all__ = ["histogram", "histogram_draws", "histogram_posterior", "work_density"]

Floats = NDArray[np.float64]

_BURN_IN = 200
_MOST_DRAWS = 10_000_000


def work_density(work_forward: ArrayLike, work_reverse: ArrayLike) -> tuple[Floats, Floats]:
    """Return the most likely distribution of forward work, given work of both directions.

    Parameters
    ----------
    work_forward : array_like of float64, shape (n_forward,)
        Work of forward paths in nats; ``inf`` is legal.
    work_reverse : array_like of float64, shape (n_reverse,)
        Work in nats that the *forward* direction does on the paths that reverse runs took.

    Returns
    -------
    work : ndarray, shape (n_forward + n_reverse,)
        All work values.
    log_probability : ndarray, same shape
        Log of the probability of each under the forward direction; they sum to one.

    Raises
    ------
    ValueError
        As `bar`.

    Notes
    -----
    Habeck (2017), Eq. 15. The fixed point of the histogram iterations is the root of Bennett's
    equation, so it is found by solving that.
    """
    forward, reverse = checked_pair(work_forward, work_reverse)
    work = np.concatenate([forward, reverse])
    return work, _log_probability(work, len(forward), _log_evidence(forward, reverse))


def _log_evidence(forward: Floats, reverse: Floats) -> float:
    """Return Bennett's estimate; raise ValueError if no forward path has any weight."""
    if not np.isfinite(forward).any():
        raise ValueError(
            "work_forward must hold a finite value, got none: every forward path has weight zero. "
            "Use more draws or more stages."
        )
    return overlap(forward, reverse).log_evidence


def _log_probability(work: Floats, n_forward: int, log_z: float) -> Floats:
    log_p: Floats = -np.logaddexp(np.log(n_forward), np.log(work.size - n_forward) - work - log_z)
    return log_p


def histogram(
    work_forward: ArrayLike,
    work_reverse: ArrayLike,
    *,
    forward_blocks: ArrayLike | None = None,
    reverse_blocks: ArrayLike | None = None,
) -> LogEvidence:
    """Estimate log Z by the mean weight under the pooled density of the work.

    Parameters
    ----------
    work_forward, work_reverse, forward_blocks, reverse_blocks
        As for `bar`.

    Returns
    -------
    LogEvidence
        Estimate with a Student interval.

    Raises
    ------
    ValueError
        As `bar`.

    Notes
    -----
    Habeck (2017), Eq. 16. The histogram is the nonparametric maximum likelihood estimate with two
    "temperatures", the two directions, so its log Z is Bennett's, and so are its error and status.
    In addition there are the density itself (`work_density`) and a posterior of log Z
    (`histogram_posterior`).
    """
    return bar(
        work_forward,
        work_reverse,
        forward_blocks=forward_blocks,
        reverse_blocks=reverse_blocks,
        name="histogram",
    )


def histogram_draws(
    work_forward: ArrayLike,
    work_reverse: ArrayLike,
    *,
    draws: int = 1000,
    random_seed: int | np.random.Generator | None = None,
) -> Floats:
    """Draw log Z from its posterior given the work of both directions.

    Parameters
    ----------
    work_forward : array_like of float64, shape (n_forward,)
        Work of independent forward paths in nats; ``inf`` is legal.
    work_reverse : array_like of float64, shape (n_reverse,)
        Work in nats that the *forward* direction does on independent reverse paths.
    draws : int
        Number of draws after burn-in.
    random_seed : int or numpy.random.Generator, optional
        Source of the draws.

    Returns
    -------
    ndarray, shape (draws,)
        Log Z in nats.

    Raises
    ------
    ValueError
        As `bar`; or if ``draws`` is not a positive integer.

    Notes
    -----
    Habeck (2017), section 5.3 and supplement: the probabilities of the observed work values are
    unknown, and a Gibbs sampler draws them under a flat prior on their logarithms, with two gamma
    variables that make them independent of each other. The sampler mixes slowly if the directions
    hardly overlap, in which case the status of `bar` is ``"no_overlap"``.
    """
    forward, reverse = checked_pair(work_forward, work_reverse)
    check_count("draws", draws, 1, _MOST_DRAWS)
    rng = np.random.default_rng(resolve_seed(random_seed))
    work = np.concatenate([forward, reverse])
    log_p = _log_probability(work, len(forward), _log_evidence(forward, reverse))
    log_z = np.empty(_BURN_IN + draws)
    for sweep in range(log_z.size):
        log_sum, log_weighted = log_sum_exp(log_p), log_sum_exp(log_p - work)
        log_u = np.log(rng.gamma(len(forward))) - log_sum
        log_v = np.log(rng.gamma(len(reverse))) - log_weighted
        log_p = np.log(rng.standard_exponential(work.size)) - np.logaddexp(log_u, log_v - work)
        # only ratios of probabilities matter
        log_p -= log_sum_exp(log_p)
        log_z[sweep] = log_sum_exp(log_p - work)
    return log_z[_BURN_IN:]


def histogram_posterior(
    work_forward: ArrayLike,
    work_reverse: ArrayLike,
    *,
    draws: int = 1000,
    random_seed: int | np.random.Generator | None = None,
) -> LogEvidence:
    """Estimate log Z by its posterior given the work of both directions.

    Parameters
    ----------
    work_forward, work_reverse, draws, random_seed
        As for `histogram_draws`.

    Returns
    -------
    LogEvidence
        Posterior mean, standard deviation and central 95 % interval.

    Raises
    ------
    ValueError
        As `histogram_draws`.

    Notes
    -----
    Habeck (2017), section 5.3. All paths are assumed to be independent; use `bar` with blocks if
    they are not.
    """
    log_z = histogram_draws(work_forward, work_reverse, draws=draws, random_seed=random_seed)
    asymptotic = bar(work_forward, work_reverse)
    low, high = np.quantile(log_z, (0.025, 0.975))
    return LogEvidence(
        float(log_z.mean()),
        float(log_z.std(ddof=1)) if draws > 1 else float("nan"),
        "histogram_posterior",
        asymptotic.status,
        float(low),
        float(high),
        asymptotic.message,
    )
