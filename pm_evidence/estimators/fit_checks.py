"""Checks whether islands and a density fitted to them describe the same posterior."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.numerics import normalised
from pm_evidence.estimators.pareto import pareto_k

__all__ = ["MOMENTS_EXCLUDED", "chain_correlation", "moment_distance", "uncovered", "unseen_share"]

Floats = NDArray[np.float64]

# Chains with fewer states than this say nothing on how fast they move.
_SHORTEST_CHAIN = 4
# Numerator of the share of a region that no draw has shown.
_UNSEEN = 3.0
# Standard errors by which the share must exceed zero.
_SIGNIFICANT = 2.0
# A moment of the islands contradicts importance sampling beyond this number of standard errors, or
# more if there are so many moments, or so few islands, that one of them is as far off by chance
# with this probability.
MOMENTS_EXCLUDED, _BY_CHANCE = 5.0, 0.003


def uncovered(works: Sequence[tuple[Floats, Floats]]) -> float:
    """Return the share of posterior draws with more weight than any draw from the fitted density.

    Parameters
    ----------
    works : sequence of tuple of two ndarray
        For every island, ``log q(x) - log f(x)`` in nats at draws from the fitted density ``q`` and
        at its draws from the posterior ``f / Z``.

    Returns
    -------
    float
        The share, from 0 to 1; 0 if it does not exceed two of its standard errors, or if there is
        no work at draws from the posterior.

    Notes
    -----
    Let ``w = f / (q Z)``, and ``t`` be the largest weight of ``n`` draws from ``q``. Importance
    sampling misses about ``P(w > t)`` of the evidence, with the probability taken under the
    posterior. Where weights have a Pareto tail of shape ``k < 1``, this is about
    ``t / (n (1 - k))``, and the error of importance sampling is at least ``t / n``. If the share is
    many times this error, the draws from ``q`` did not reach the tail at all.
    """
    least = min(float(forward.min()) for forward, _ in works)
    share = np.array([float(np.mean(reverse < least)) for _, reverse in works if len(reverse)])
    if not len(share):
        return 0.0
    error = float(share.std(ddof=1)) / len(share) ** 0.5 if len(share) > 1 else 0.0
    mean = float(share.mean())
    return mean if mean > _SIGNIFICANT * error else 0.0


def unseen_share(works: Sequence[tuple[Floats, Floats]]) -> float:
    """Return the share of the posterior that a fitted density may miss, although no draw shows it.

    Parameters
    ----------
    works : sequence of tuple of two ndarray
        As in `uncovered`.

    Returns
    -------
    float
        ``3 / n``, where ``n`` is the number of draws from the posterior, times twice the Pareto
        shape of the weights within 0 and 1.

    Notes
    -----
    If none of ``n`` independent draws lies in a region, its share is at most about ``3 / n`` with
    a probability of 95 %. Weights whose Pareto shape is not positive are bounded: there is no such
    region beside the fitted density.
    """
    n = sum(len(reverse) for _, reverse in works)
    k = pareto_k(-np.concatenate([forward for forward, _ in works]))
    return float(np.clip(2.0 * k, 0.0, 1.0)) * _UNSEEN / max(n, 1) if np.isfinite(k) else 0.0


def chain_correlation(draws: Sequence[Floats], chains: Sequence[NDArray[np.int64]]) -> float:
    """Return the mean correlation between two states of a chain, in the slowest coordinate.

    Islands move their particles in chains that start from resampled particles. If the states of a
    chain are alike, the kernel has hardly moved them, and whatever the islands lost at an earlier
    stage is still missing. All islands then miss the same, and agree with each other.

    Parameters
    ----------
    draws : sequence of ndarray, shape (n, d)
        Draws of each island, with equal weights.
    chains : sequence of ndarray, shape (n,)
        Chain of each draw within its island, from 0.

    Returns
    -------
    float
        From 0, for independent states, to 1; NaN if chains have fewer than four states.
    """
    counts = [np.bincount(chain) for chain in chains]
    if max(int(count.max()) for count in counts) < _SHORTEST_CHAIN:
        return float("nan")
    n = sum(len(x) for x in draws)
    centre = np.sum([x.sum(axis=0) for x in draws], axis=0) / n
    square, between = np.zeros(len(centre)), np.zeros(len(centre))
    for x, chain, count in zip(draws, chains, counts, strict=True):
        apart = x[np.argsort(chain, kind="stable")] - centre
        starts = np.cumsum(count)[:-1]
        square += np.sum(apart**2, axis=0)
        between += sum(np.sum(part, axis=0) ** 2 for part in np.split(apart, starts))
    pairs = sum(float(np.sum(count * (count - 1.0))) for count in counts)
    with np.errstate(invalid="ignore", divide="ignore"):  # a coordinate may be constant
        correlation = (between - square) / pairs / (square / n)
    largest = np.max(correlation, where=np.isfinite(correlation), initial=0.0)
    return float(np.clip(largest, 0.0, 1.0))


def moment_distance(draws: Sequence[Floats], fit_draws: Floats, log_weight: Floats) -> float:
    """Return how far the means and mean squares of islands are from those of importance sampling.

    If they are far apart, the modes have wrong weights in the islands, although the islands may
    agree with each other.

    Parameters
    ----------
    draws : sequence of ndarray, shape (n, d)
        Draws of each island, with equal weights.
    fit_draws : ndarray, shape (m, d)
        Draws from the fitted density.
    log_weight : ndarray, shape (m,)
        Their log weights in nats.

    Returns
    -------
    float
        The largest distance, in standard errors, of any coordinate; `MOMENTS_EXCLUDED` or more says
        that the two exclude each other. Where chance alone may lead to such a distance, because
        there are many coordinates or few islands, it is reduced in proportion.
    """
    weight = normalised(log_weight)
    centre = weight @ fit_draws
    found = _moments(fit_draws, centre)
    mean = weight @ found
    error = np.sqrt((weight**2) @ (found - mean) ** 2)
    islands = np.array([_moments(x, centre).mean(axis=0) for x in draws])
    island_error = islands.std(axis=0, ddof=1) / len(islands) ** 0.5
    distance = np.abs(mean - islands.mean(axis=0))
    with np.errstate(divide="ignore", invalid="ignore"):  # a coordinate may have no error
        standardised = distance / np.hypot(error, island_error)
    largest = float(np.max(standardised, where=standardised > 0.0, initial=0.0))
    return largest / max(_by_chance(mean.size, len(islands)) / MOMENTS_EXCLUDED, 1.0)


def _by_chance(n_moments: int, n_islands: int) -> float:
    """Return how many standard errors the largest of some moments may be off by chance."""
    from scipy.special import stdtrit

    return -float(stdtrit(n_islands - 1, 0.5 * _BY_CHANCE / n_moments))


def _moments(x: Floats, centre: Floats) -> Floats:
    apart = x - centre
    return np.concatenate([apart, apart**2], axis=1)
