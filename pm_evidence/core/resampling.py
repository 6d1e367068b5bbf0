"""Resampling: indices of the members that live on, unbiased for their weights.

Every scheme returns each member ``m w_i`` times on average. They differ in the noise
that they add: multinomial the most, the others less. SSP is the Srinivasan sampling
process (Gerber, Chopin and Whiteley 2019), which is consistent whatever the order of
the members.
"""

from collections.abc import Callable

import numba as nb
import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice

__all__ = ["SCHEMES", "resample"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


def resample(weight: Floats, m: int, rng: np.random.Generator, scheme: str) -> Indices:
    """Draw ``m`` indices of members with the given normalised weights.

    Parameters
    ----------
    weight : ndarray, shape (n,)
        Weights that sum to one.
    m : int
        Number of indices.
    rng : numpy.random.Generator
        Source of the draws.
    scheme : str
        One of ``SCHEMES``.

    Returns
    -------
    ndarray of int64, shape (m,)
        Indices in rising order.

    Raises
    ------
    ValueError
        If ``scheme`` is unknown.
    """
    return SCHEMES[check_choice("resampling", scheme, SCHEMES)](weight, m, rng)


def _invert(weight: Floats, points: Floats) -> Indices:
    """Return the index of the weight interval that each sorted point in [0, 1) falls into."""
    edges = np.cumsum(weight)
    # rounding may leave the last edge below a point, or a point at 1, and a member of weight zero
    # is never drawn
    edges[np.flatnonzero(weight)[-1] :] = np.inf
    return np.searchsorted(edges, points, side="right").astype(np.int64)


def _multinomial(weight: Floats, m: int, rng: np.random.Generator) -> Indices:
    return _invert(weight, np.sort(rng.random(m)))


def _stratified(weight: Floats, m: int, rng: np.random.Generator) -> Indices:
    return _invert(weight, (np.arange(m) + rng.random(m)) / m)


def _systematic(weight: Floats, m: int, rng: np.random.Generator) -> Indices:
    return _invert(weight, (np.arange(m) + rng.random()) / m)


def _residual(weight: Floats, m: int, rng: np.random.Generator) -> Indices:
    expected = m * weight
    sure = np.floor(expected).astype(np.int64)
    rest = m - int(sure.sum())
    kept = np.repeat(np.arange(weight.size), sure)
    if rest == 0:
        return kept
    residue = expected - sure
    drawn = _multinomial(residue / residue.sum(), rest, rng)
    return np.sort(np.concatenate([kept, drawn]))


def _ssp(weight: Floats, m: int, rng: np.random.Generator) -> Indices:
    counts = _ssp_counts(m * weight, rng.random(weight.size))
    # rounding of the cumulated fractions can leave one too many or too few
    spare = m - int(counts.sum())
    if spare > 0:
        counts[int(np.argmax(m * weight - counts))] += spare
    elif spare < 0:
        counts[int(np.argmax(counts - m * weight))] += spare
    return np.repeat(np.arange(weight.size), counts)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _ssp_counts(expected: Floats, draws: Floats) -> Indices:
    """Round expected numbers to integers by pairing fractions until each is 0 or 1."""
    n = expected.size
    counts = np.floor(expected).astype(np.int64)
    fraction = expected - counts
    i, j = 0, 1
    while j < n:
        up = min(1.0 - fraction[i], fraction[j])
        down = min(fraction[i], 1.0 - fraction[j])
        total = up + down
        if total == 0.0:
            j += 1
            continue
        if draws[j] < down / total:
            fraction[i] += up
            fraction[j] -= up
        else:
            fraction[i] -= down
            fraction[j] += down
        if fraction[i] > 1.0 - 1e-12:
            counts[i] += 1
            i = j
        elif fraction[i] < 1e-12:
            i = j
        elif fraction[j] > 1.0 - 1e-12:
            counts[j] += 1
        j += 1
    if i < n and fraction[i] > 0.5:
        counts[i] += 1
    return counts


SCHEMES: dict[str, Callable[[Floats, int, np.random.Generator], Indices]] = {
    "systematic": _systematic,
    "stratified": _stratified,
    "residual": _residual,
    "ssp": _ssp,
    "multinomial": _multinomial,
}
