"""Compiled sums over a mixture of states: the arithmetic of MBAR and of tempering.

A mixture has the density ``sum_k exp(offset[k] - u_k(x))`` with reduced potentials ``u_k(x)``,
minus the log densities of its states. On a ladder of temperatures ``u_k(x) = beta[k] * energy(x)``,
and the table of potentials is never stored: all functions take ``scale`` (n_states,) and ``base``,
whose row ``min(k, len(base) - 1)`` multiplied by ``scale[k]`` holds the potentials of state ``k``.
So ``base`` is one row of energies for a ladder, and the whole table for general potentials.

Potentials are finite here; `finite_potentials` replaces infinite ones by numbers so large that
every exponential of them is zero. All quantities are in nats.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen.fast_math import fast_exp
from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.sums import dot, total

__all__ = [
    "cluster_sums",
    "finite_potentials",
    "log_columns",
    "log_mixture",
    "moments",
    "projections",
]

Floats = NDArray[np.float64]

# A potential for infinity: exp(-x) is zero from 750 on, and sums of such numbers stay finite.
_HUGE = 1e300
_TILE = 256  # points at a time: a tile of 100 states fits into the second level of the cache
# Shares of a point below exp(-45) are left out: a billion of them add up to less than 1e-10.
_NEGLIGIBLE = -45.0


def finite_potentials(potential: Floats) -> Floats:
    """Return potentials with infinity replaced by a huge number, in contiguous memory."""
    return np.ascontiguousarray(np.where(np.isposinf(potential), _HUGE, potential))


def moments(
    scale: Floats, base: Floats, offset: Floats, member: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return the sums over points of the shares of the states of a mixture, and their products.

    The share of state ``k`` at point ``n`` is ``p[n, k] = exp(offset[k] - u_k(x_n)) / D_n``, where
    ``D_n`` is the sum of the numerators.

    Parameters
    ----------
    scale, base : ndarray, shapes (n_states,) and (1 or n_states, n)
        Potentials, see above. Points with similar potentials should be neighbours: a state that
        has no share in any of 256 points in a row is left out.
    offset : ndarray, shape (n_states,)
        Log weights of the states, finite.
    member : ndarray, shape (n_states,), optional
        1 for states of the mixture, by default all, and 0 for others, which do not count in
        ``D_n``.

    Returns
    -------
    sums : ndarray, shape (n_states,)
        ``sum_n p[n, k]``.
    products : ndarray, shape (n_states, n_states)
        ``sum_n p[n, j] p[n, k]``.
    """
    n_states = len(scale)
    sums, products = np.zeros(n_states), np.zeros((n_states, n_states))
    within = np.ones(n_states) if member is None else member
    _moments(scale, base, offset, within, sums, products)
    return sums, products


def log_mixture(scale: Floats, base: Floats, offset: Floats) -> Floats:
    """Return ``log sum_k exp(offset[k] - u_k(x_n))`` of every point, shape ``(n,)``."""
    out = np.empty(base.shape[1])
    _log_mixture(scale, base, offset, out)
    return out


def log_columns(scale: Floats, base: Floats, log_density: Floats) -> Floats:
    """Return ``log sum_n exp(-u_k(x_n) - log_density[n])`` of every state, shape ``(n_states,)``.

    These are estimates of the log normalising constants if the points have that density, up to the
    number of points.
    """
    out = np.empty(len(scale))
    _log_columns(scale, base, log_density, out)
    return out


def cluster_sums(
    scale: Floats, base: Floats, offset: Floats, log_density: Floats, cluster: NDArray[np.int64]
) -> Floats:
    """Return ``sum_n exp(offset[k] - u_k(x_n) - log_density[n])`` over the points of each cluster.

    Parameters
    ----------
    scale, base, offset
        As for `moments`.
    log_density : ndarray, shape (n,)
        Log of the denominators.
    cluster : ndarray of int64, shape (n,)
        Cluster of each point, numbered from 0.

    Returns
    -------
    ndarray, shape (n_clusters, n_states)
    """
    out = np.zeros((int(cluster.max()) + 1, len(scale)))
    _cluster_sums(scale, base, offset, log_density, cluster, out)
    return out


def projections(
    scale: Floats, base: Floats, offset: Floats, log_density: Floats, vector: Floats
) -> Floats:
    """Return ``sum_k vector[k] exp(offset[k] - u_k(x_n) - log_density[n])``, shape ``(n,)``."""
    out = np.zeros(base.shape[1])
    _projections(scale, base, offset, log_density, vector, out)
    return out


@njit
def _row(base: Any, k: Any) -> Any:
    return base[min(k, base.shape[0] - 1)]


@njit
def _moments(scale: Any, base: Any, offset: Any, member: Any, sums: Any, products: Any) -> None:
    n_states, n = len(scale), base.shape[1]
    tile = np.empty((n_states, _TILE))
    top, density = np.empty(_TILE), np.empty(_TILE)
    bound = np.empty(n_states)
    for start in range(0, n, _TILE):
        stop = min(start + _TILE, n)
        low, high = _active_states(scale, base, offset, start, stop, bound)
        _fill(scale, base, offset, member, start, stop, low, high, tile, top, density)
        m = stop - start
        for i in range(low, high):
            row = tile[i, :m]
            sums[i] += total(row)
            for j in range(low, i + 1):
                products[i, j] += dot(row, tile[j, :m])
    for i in range(n_states):
        for j in range(i):
            products[j, i] = products[i, j]


@njit
def _active_states(scale: Any, base: Any, offset: Any, start: Any, stop: Any, bound: Any) -> Any:
    """Return the range of states outside of which all shares of a tile are negligible.

    The log share of state ``k`` is at most the difference of its log weight and that of any other
    state, here the one with the largest share in the middle of the tile.
    """
    n_states = len(scale)
    middle = (start + stop) // 2
    best, most = 0, -np.inf
    for k in range(n_states):
        weight = offset[k] - scale[k] * _row(base, k)[middle]
        if weight > most:
            best, most = k, weight
    low, high = best, best + 1
    if len(base) == 1:  # the ratio of two shares is monotone in the energy
        row = base[0, start:stop]
        least, largest = row[0], row[0]
        for n in range(1, row.size):
            least, largest = min(least, row[n]), max(largest, row[n])
        for k in range(n_states):
            rate = scale[k] - scale[best]
            bound[k] = offset[k] - offset[best] - min(rate * least, rate * largest)
    else:
        reference = base[best]
        for k in range(n_states):
            row, bound[k] = base[k], -np.inf
            for n in range(start, stop):
                ratio = offset[k] - offset[best] - (scale[k] * row[n] - scale[best] * reference[n])
                bound[k] = max(bound[k], ratio)
    for k in range(n_states):
        if bound[k] > _NEGLIGIBLE:
            low, high = min(low, k), max(high, k + 1)
    return low, high


@njit
def _fill(
    scale: Any,
    base: Any,
    offset: Any,
    member: Any,
    start: Any,
    stop: Any,
    low: Any,
    high: Any,
    tile: Any,
    top: Any,
    density: Any,
) -> None:
    """Fill rows ``low`` to ``high`` of a tile with shares."""
    m = stop - start
    for n in range(m):
        top[n], density[n] = -np.inf, 0.0
    for k in range(low, high):
        row = _row(base, k)
        for n in range(m):
            weight = offset[k] - scale[k] * row[start + n]
            tile[k, n] = weight
            top[n] = max(top[n], weight)
    for k in range(low, high):
        for n in range(m):
            share = fast_exp(tile[k, n] - top[n])
            tile[k, n] = share
            density[n] += member[k] * share
    for n in range(m):
        density[n] = 1.0 / density[n]
    for k in range(low, high):
        for n in range(m):
            tile[k, n] *= density[n]


@njit
def _log_mixture(scale: Any, base: Any, offset: Any, out: Any) -> None:
    n = base.shape[1]
    density = np.empty(_TILE)
    for start in range(0, n, _TILE):
        m = min(start + _TILE, n) - start
        top = out[start : start + m]
        for i in range(m):
            top[i], density[i] = -np.inf, 0.0
        for k in range(len(scale)):
            row = _row(base, k)[start : start + m]
            for i in range(m):
                top[i] = max(top[i], offset[k] - scale[k] * row[i])
        for k in range(len(scale)):
            row = _row(base, k)[start : start + m]
            for i in range(m):
                density[i] += fast_exp(offset[k] - scale[k] * row[i] - top[i])
        for i in range(m):
            top[i] += np.log(density[i])


@njit
def _log_columns(scale: Any, base: Any, log_density: Any, out: Any) -> None:
    weight = np.empty(base.shape[1])
    for k in range(len(scale)):
        row, top = _row(base, k), -np.inf
        for n in range(weight.size):
            weight[n] = -scale[k] * row[n] - log_density[n]
            top = max(top, weight[n])
        for n in range(weight.size):
            weight[n] = fast_exp(weight[n] - top)
        out[k] = top + np.log(total(weight))


@njit
def _cluster_sums(
    scale: Any, base: Any, offset: Any, log_density: Any, cluster: Any, out: Any
) -> None:
    weight = np.empty(base.shape[1])
    for k in range(len(scale)):
        row = _row(base, k)
        for n in range(weight.size):
            weight[n] = fast_exp(offset[k] - scale[k] * row[n] - log_density[n])
        for n in range(weight.size):
            out[cluster[n], k] += weight[n]


@njit
def _projections(
    scale: Any, base: Any, offset: Any, log_density: Any, vector: Any, out: Any
) -> None:
    for k in range(len(scale)):
        row = _row(base, k)
        for n in range(out.size):
            out[n] += vector[k] * fast_exp(offset[k] - scale[k] * row[n] - log_density[n])
