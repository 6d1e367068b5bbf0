"""The posterior densities of two models in one compiled density, which calls both by address."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen.native import call_density, density_signature, view_address
from pm_evidence.core.codegen.numba import cfunc, nb, njit
from pm_evidence.core.sums import dot
from pm_evidence.references.alignment import Alignment
from pm_evidence.references.compiled import component_density
from pm_evidence.references.linking import LinkingDensity
from pm_evidence.references.packed import N_OF_MIXTURE
from pm_evidence.targets.compile.density import CompiledDensity

__all__ = ["Side", "pair_density"]

# Words of each side, after the number of coordinates and whether there is a gradient.
_N_HEAD, _N_OF_SIDE = 2, 16


@dataclass(frozen=True, slots=True)
class Side:
    """One of two models.

    Parameters
    ----------
    density : CompiledDensity
        Its log prior and log likelihood.
    positions : ndarray of int64
        Position of each of its coordinates in the vector of both models.
    log_mass : float
        Log of the mass of its prior, in nats, which is taken off.
    linking : LinkingDensity
        Density of the coordinates that it does not have.
    mapped : ndarray of int64, shape (m,)
        Indices of its coordinates that are an affine map of those in the vector.
    alignment : Alignment
        This map, of ``m`` coordinates.
    """

    density: CompiledDensity
    positions: NDArray[np.int64]
    log_mass: float
    linking: LinkingDensity
    mapped: NDArray[np.int64]
    alignment: Alignment


def pair_density(sides: Sequence[Side], n_dim: int) -> CompiledDensity:
    """Return ``(log f_a, log f_b - log f_a)`` as a compiled density of all coordinates.

    ``f`` is prior times likelihood of a model times the linking density of the coordinates that it
    lacks.

    Parameters
    ----------
    sides : sequence of two Side
        The models ``a`` and ``b``.
    n_dim : int
        Number of coordinates.
    """
    has_gradient = all(side.density.has_gradient for side in sides)
    words, kept = [n_dim, int(has_gradient)], []
    for side in sides:
        mapping = side.alignment
        # the volume of the map belongs to the density
        log_mass = np.array([side.log_mass - mapping.log_volume])
        matrix = np.ascontiguousarray(mapping.matrix)
        linking = side.linking.arrays()
        arrays = (side.positions, side.mapped, mapping.origin, mapping.location, matrix, *linking)
        kept.append((side, log_mass, arrays))
        words += [side.density.address, side.density.data.ctypes.data, side.density.data.size]
        words += [log_mass.ctypes.data, side.positions.size, side.mapped.size]
        words += [int(mapping.is_dense), *(array.ctypes.data for array in arrays)]
        words += [array.size for array in linking]
    slow_ops = tuple(op for side in sides for op in side.density.slow_ops)
    return CompiledDensity(
        _c_function().address,
        np.array(words, np.int64),
        has_gradient,
        slow_ops,
        (_c_function(), tuple(kept)),
    )


@njit
def _add_linking(numbers, positions, x, gradient, with_gradient):
    """Return the log of a linking density and add its gradient."""
    d, g = positions[0], positions[1]
    if d == 0:
        return numbers[0]
    own, given = positions[2 : 2 + d], positions[2 + d : 2 + d + g]
    location, slopes = numbers[1 : 1 + d], numbers[1 + d : 1 + d + d * g]
    rest, pull, here = np.empty(d), np.empty(d), np.empty(g)
    for k in range(g):
        here[k] = x[given[k]]
    for j in range(d):
        rest[j] = x[own[j]] - location[j] - dot(slopes[j * g : (j + 1) * g], here)
    part = numbers[1 + d + d * g + N_OF_MIXTURE :]
    log_density = component_density(part, rest, np.arange(d), with_gradient, pull)
    if with_gradient:
        for j in range(d):
            gradient[own[j]] += pull[j]
            for k in range(g):
                gradient[given[k]] -= slopes[j * g + k] * pull[j]
    return numbers[0] + log_density


@njit
def _map(words, own):
    """Map some of the coordinates of a model, in place."""
    m, dense = words[5], words[6] != 0
    mapped = nb.carray(view_address(words[8]), (m,), nb.int64)
    origin = nb.carray(view_address(words[9]), (m,), nb.float64)
    location = nb.carray(view_address(words[10]), (m,), nb.float64)
    matrix = nb.carray(view_address(words[11]), (m * m if dense else m,), nb.float64)
    apart = np.empty(m)
    for i in range(m):
        apart[i] = own[mapped[i]] - origin[i]
    for i in range(m):
        moved = (
            dot(matrix[i * m : i * m + i + 1], apart[: i + 1]) if dense else matrix[i] * apart[i]
        )
        own[mapped[i]] = location[i] + moved


@njit
def _map_gradient(words, slope):
    """Replace the gradient at mapped coordinates by that at the coordinates before, in place."""
    m, dense = words[5], words[6] != 0
    mapped = nb.carray(view_address(words[8]), (m,), nb.int64)
    matrix = nb.carray(view_address(words[11]), (m * m if dense else m,), nb.float64)
    before = np.zeros(m)
    for i in range(m):
        pull = slope[mapped[i]]
        if dense:
            for j in range(i + 1):
                before[j] += matrix[i * m + j] * pull
        else:
            before[i] = matrix[i] * pull
    for i in range(m):
        slope[mapped[i]] = before[i]


@njit
def _side(words, x, gradient, with_gradient):
    """Return whether a model failed, and its log density; ``gradient`` receives its gradient."""
    data = nb.carray(view_address(words[1]), (words[2],), nb.int64)
    log_mass = nb.carray(view_address(words[3]), (1,), nb.float64)
    positions = nb.carray(view_address(words[7]), (words[4],), nb.int64)
    numbers = nb.carray(view_address(words[12]), (words[14],), nb.float64)
    linked = nb.carray(view_address(words[13]), (words[15],), nb.int64)
    own, out, slopes = np.empty(words[4]), np.empty(2), np.empty((2, words[4]))
    for j in range(own.size):
        own[j] = x[positions[j]]
    _map(words, own)
    status = call_density(words[0], own, out, slopes, data)
    if status != 0:
        return status, np.nan
    gradient[:] = 0.0
    if with_gradient:
        for j in range(own.size):
            slopes[0, j] += slopes[1, j]
        _map_gradient(words, slopes[0])
        for j in range(own.size):
            gradient[positions[j]] = slopes[0, j]
    linking = _add_linking(numbers, linked, x, gradient, with_gradient)
    return status, out[0] + out[1] - log_mass[0] + linking


@njit
def _evaluate(words, x, out, gradient):
    with_gradient = words[1] != 0
    slopes, first = np.empty((2, x.size)), words[_N_HEAD : _N_HEAD + _N_OF_SIDE]
    status, of_first = _side(first, x, slopes[0], with_gradient)
    if status != 0:
        return status
    status, of_second = _side(words[_N_HEAD + _N_OF_SIDE :], x, slopes[1], with_gradient)
    if status != 0:
        return status
    out[0], out[1] = of_first, of_second - of_first
    if with_gradient:
        for j in range(x.size):
            gradient[0, j] = slopes[0, j]
            gradient[1, j] = slopes[1, j] - slopes[0, j]
    return status


def _density(x_: Any, out_: Any, gradient_: Any, data_: Any) -> Any:
    words = nb.carray(data_, (_N_HEAD + 2 * _N_OF_SIDE,))
    x, out = nb.carray(x_, (words[0],)), nb.carray(out_, (2,))
    return _evaluate(words, x, out, nb.carray(gradient_, (2, words[0])))


@cache
def _c_function() -> Any:
    return cfunc(density_signature(), _density)
