"""Resampling schemes, all of which are unbiased.

Every scheme returns member ``i`` of weight ``w_i`` on average ``m w_i`` times. They differ in the
variance of this number: it is largest for multinomial resampling. SSP is the Srinivasan sampling
process (Gerber, Chopin and Whiteley 2019), which is consistent whatever the order of
the members.

Compiled code calls ``count_uniforms`` and ``resample_into`` with its own random numbers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice
from pm_evidence.core.codegen.numba import njit

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

# Members up to which pairing them one after the other is not worth compiling.
_FEW = 1000


def resample(weight: Floats, m: int, rng: np.random.Generator, scheme: str) -> Indices:
    """Draw ``m`` indices of members with the given normalised weights."""
    return SCHEMES[check_choice("resampling", scheme, SCHEMES)](weight, m, rng)


def _systematic(weight: Floats, m: int, rng: np.random.Generator) -> Indices:
    return _chosen(weight, (np.arange(m) + rng.random(1)) / m)


def _stratified(weight: Floats, m: int, rng: np.random.Generator) -> Indices:
    return _chosen(weight, (np.arange(m) + rng.random(m)) / m)


def _multinomial(weight: Floats, m: int, rng: np.random.Generator) -> Indices:
    return _chosen(weight, np.sort(rng.random(m)))


def _residual(weight: Floats, m: int, rng: np.random.Generator) -> Indices:
    sure = np.floor(m * weight)
    residue = m * weight - sure
    index = np.repeat(np.arange(weight.size), sure.astype(np.int64))[:m]
    n_rest = m - index.size
    uniforms = np.sort(rng.random(n_rest))
    rest = _chosen(residue / residue.sum(), uniforms) if n_rest else index[:0]
    return np.sort(np.concatenate([index, rest]))


def _ssp(weight: Floats, m: int, rng: np.random.Generator) -> Indices:
    expected, draws = m * np.asarray(weight, float), rng.random(weight.size)
    count = _ssp_counts.py_func if weight.size <= _FEW else _ssp_counts
    index = np.empty(m, np.int64)
    _repeat.py_func(count(expected, draws), expected, index)
    return index


def _chosen(weight: Floats, points: Floats) -> Indices:
    """Return the index of the weight interval that each point in [0, 1) falls into.

    By rounding, the last edge may lie below a point, which then belongs to the last member whose
    weight is positive: members of weight zero must not be drawn.
    """
    last = int(np.flatnonzero(weight)[-1]) if weight.any() else 0
    return np.searchsorted(np.cumsum(weight)[:last], points, side="right")


SCHEMES: dict[str, Callable[[Floats, int, np.random.Generator], Indices]] = {
    "systematic": _systematic,
    "stratified": _stratified,
    "residual": _residual,
    "ssp": _ssp,
    "multinomial": _multinomial,
}
# The number of each scheme in compiled code. The usual one has none: then no other is compiled,
# which would take a quarter of the time that a first particle filter needs.
CODES = {scheme: code or None for code, scheme in enumerate(SCHEMES)}
_, _STRATIFIED, _RESIDUAL, _SSP, _MULTINOMIAL = CODES.values()


# in compiled code ------------------------------------------------------------------------------


@njit
def count_uniforms(scheme: Any, weight: Any, m: Any) -> Any:
    """Return how many uniform draws a scheme (its code) needs for ``m`` indices."""
    if scheme is None:
        return 1
    if scheme == _SSP:
        return weight.size
    if scheme == _RESIDUAL:
        rest = m
        for w in weight:
            rest -= int(np.floor(m * w))
        return max(rest, 0)
    return m


@njit
def resample_into(scheme: Any, weight: Any, uniforms: Any, index: Any) -> None:
    """Fill ``index`` with indices in rising order."""
    m = index.size
    if scheme is None:
        index[:] = _invert(weight, (np.arange(m) + uniforms) / m)
    elif scheme == _SSP:
        _repeat(_ssp_counts(m * weight, uniforms), m * weight, index)
    elif scheme == _RESIDUAL:
        _residual_into(weight, uniforms, index)
    elif scheme == _MULTINOMIAL:
        index[:] = _invert(weight, np.sort(uniforms))
    else:
        index[:] = _invert(weight, (np.arange(m) + uniforms) / m)


@njit
def _invert(weight: Floats, points: Floats) -> Indices:
    """Return the index of the weight interval that each sorted point in [0, 1) falls into."""
    index = np.empty(points.size, np.int64)
    last = _last_positive(weight)
    j, edge = 0, weight[0]
    for k in range(points.size):
        while edge <= points[k] and j < last:
            j += 1
            edge += weight[j]
        index[k] = j
    return index


@njit
def _last_positive(weight: Floats) -> int:
    """Return the last member whose weight is positive.

    By rounding, the last edge may lie below a point, or a point may be 1. The point then belongs to
    this member, because members of weight zero must not be drawn.
    """
    last = weight.size - 1
    while last > 0 and weight[last] == 0.0:
        last -= 1
    return last


@njit
def _residual_into(weight: Floats, uniforms: Floats, index: Indices) -> None:
    m = index.size
    residue = m * weight
    start = 0
    for i in range(weight.size):
        sure = int(np.floor(residue[i]))
        residue[i] -= sure
        stop = min(start + sure, m)
        index[start:stop] = i
        start = stop
    if start < m:
        uniforms.sort()
        residue /= residue.sum()
        index[start:] = _invert(residue, uniforms[: m - start])
        index.sort()


@njit
def _repeat(counts: Indices, expected: Floats, index: Indices) -> None:
    """Write every index as many times as its count says."""
    # rounding of the cumulated fractions can leave one too many or too few
    spare = index.size - counts.sum()
    if spare > 0:
        counts[np.argmax(expected - counts)] += spare
    elif spare < 0:
        counts[np.argmax(counts - expected)] += spare
    start = 0
    for i in range(counts.size):
        index[start : start + counts[i]] = i
        start += counts[i]


@njit
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
