"""A reference and a model in one compiled density, which calls that of the model by address.

The function is compiled once in all, and kept on disk: what differs between models and references
is data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, log, log1p
from typing import Any

import numpy as np

from pm_evidence.core.codegen.native import call_density, density_signature, view_address
from pm_evidence.core.codegen.numba import cfunc, nb, njit
from pm_evidence.core.sums import dot
from pm_evidence.core.triangular import multiply, multiply_by_transposed
from pm_evidence.references.packed import (
    DENSE,
    N_OF_COMPONENT,
    N_OF_MIXTURE,
    SPARSE,
    Packed,
)
from pm_evidence.targets.compile.density import CompiledDensity

__all__ = ["annealed_from", "component_density"]

# Words before the addresses of further factors of the reference, and words of each of these.
_N_WORDS, _N_OF_FACTOR = 10, 3


@dataclass(frozen=True, slots=True)
class _Pointers:
    """What the words of a compiled density point to, which has to outlive it."""

    model: CompiledDensity
    packed: Packed
    factors: tuple[Any, ...]


def annealed_from(
    model: CompiledDensity,
    packed: Packed,
    factors: Sequence[CompiledDensity],
    n_dim: int,
    log_mass: float,
    prior_share: float = 0.0,
) -> CompiledDensity:
    """Return ``(log reference, log target - log reference)`` as a compiled density.

    Parameters
    ----------
    model : CompiledDensity
        Log prior and log likelihood.
    packed : Packed
        The reference of some coordinates.
    factors : sequence of CompiledDensity
        Further factors of the reference: the first value of each is added to its log density. They
        have no gradient.
    n_dim : int
        Number of coordinates of a point.
    log_mass : float
        Log of the mass of the prior of ``model``, in nats, which is taken off the log target.
    prior_share : float
        Share of the prior in the reference, from 0 to 1.
    """
    packed = packed.beside_prior(log_mass, prior_share)
    words = [
        model.address,
        model.data.ctypes.data,
        model.data.size,
        n_dim,
        packed.numbers.ctypes.data,
        packed.numbers.size,
        packed.positions.ctypes.data,
        packed.positions.size,
        int(model.has_gradient),
        len(factors),
    ]
    for factor in factors:
        words += [factor.address, factor.data.ctypes.data, factor.data.size]
    slow_ops = (*model.slow_ops, *(op for factor in factors for op in factor.slow_ops))
    return CompiledDensity(
        _c_function().address,
        np.array(words, np.int64),
        model.has_gradient,
        slow_ops,
        (_c_function(), _Pointers(model, packed, tuple(factors))),
    )


@njit
def _whiten(form, factor, residual):
    """Bring a deviation from the location to scale 1, in place."""
    if form == SPARSE:
        order, start, row, diagonal, below = _sparse(factor, residual.size)
        ordered = residual[order]
        multiply_by_transposed(start, row, diagonal, below, ordered)
        residual[:] = ordered
        return
    for i in range(residual.size):
        if form == DENSE:
            residual[i] -= dot(factor[i * residual.size : i * residual.size + i], residual[:i])
            residual[i] /= factor[i * residual.size + i]
        else:
            residual[i] /= factor[i]


@njit
def _pull_back(form, factor, scaled):
    """Replace what `_whiten` has made by half the gradient of its square, in place."""
    if form == SPARSE:
        order, start, row, diagonal, below = _sparse(factor, scaled.size)
        multiply(start, row, diagonal, below, scaled)
        scaled[order] = scaled.copy()
        return
    for back in range(scaled.size):
        i = scaled.size - 1 - back
        if form != DENSE:
            scaled[i] /= factor[i]
            continue
        scaled[i] /= factor[i * scaled.size + i]
        for j in range(i):
            scaled[j] -= factor[i * scaled.size + j] * scaled[i]


@njit
def _sparse(factor, d):
    """Return the parts of a sparse factor."""
    n = (factor.size - 3 * d - 1) // 2
    indices = factor[: 2 * d + 1 + n].view(np.int64)
    values = factor[2 * d + 1 + n :]
    return indices[:d], indices[d : 2 * d + 1], indices[2 * d + 1 :], values[:d], values[d:]


@njit
def component_density(part, x, positions, with_gradient, slope):
    """Return the log density of one component and set ``slope`` to its gradient."""
    d = positions.size
    dof, form = part[1], int(part[2])
    first = N_OF_COMPONENT
    mean, centre = part[first : first + d], part[first + d : first + 2 * d]
    stretch, factor = part[first + 2 * d : first + 3 * d], part[first + 3 * d :]
    log_density = part[0]
    for j in range(d):
        value = x[positions[j]]
        if stretch[j] > 0.0:
            far = (value - centre[j]) / stretch[j]
            value = np.arcsinh(far)
            log_density -= log(np.hypot(1.0, far))
        slope[j] = value - mean[j]
    _whiten(form, factor, slope)
    squares = dot(slope, slope)
    if dof == np.inf:
        log_density -= 0.5 * squares
        pull = 1.0
    else:
        log_density -= 0.5 * (dof + d) * log1p(squares / dof)
        pull = (dof + d) / (dof + squares)
    if not with_gradient:
        return log_density
    _pull_back(form, factor, slope)
    for j in range(d):
        slope[j] *= -pull
        if stretch[j] > 0.0:
            far = (x[positions[j]] - centre[j]) / stretch[j]
            long = np.hypot(1.0, far)
            slope[j] = (slope[j] - far / long) / (stretch[j] * long)
    return log_density


@njit
def _mixture(numbers, x, positions, with_gradient, slope, of_part):
    """Return the log density of a mixture and set ``slope`` to its gradient."""
    d, start = positions.size, N_OF_MIXTURE
    top, total = -np.inf, 0.0
    slope[:] = 0.0
    for _ in range(int(numbers[0])):
        size = N_OF_COMPONENT + 3 * d + int(numbers[start + 3])
        log_part = component_density(
            numbers[start : start + size], x, positions, with_gradient, of_part
        )
        start += size
        if np.isnan(log_part):
            return np.nan
        if log_part == -np.inf:
            continue
        if log_part > top:
            kept, added = exp(top - log_part), 1.0
            top = log_part
        else:
            kept, added = 1.0, exp(log_part - top)
        total = kept * total + added
        if with_gradient:
            for j in range(d):
                slope[j] = kept * slope[j] + added * of_part[j]
    if with_gradient:
        for j in range(d):
            slope[j] /= total
    return numbers[1] + (top + log(total) if numbers[0] > 0.0 else 0.0)


@njit
def _of_factors(words, x):
    """Return the sum of the log densities of the further factors; NaN if one fails."""
    total, n_dim = 0.0, x.size
    if words[9] == 0:
        return total
    values, no_gradient = np.empty(2), np.empty((2, n_dim))
    for k in range(words[9]):
        at = _N_WORDS + _N_OF_FACTOR * k
        data = nb.carray(view_address(words[at + 1]), (words[at + 2],), nb.int64)
        if call_density(words[at], x, values, no_gradient, data) != 0:
            return np.nan
        total += values[0]
    return total


@njit
def _beside_prior(log_reference, log_prior, share):
    """Return the log density of the reference with a share of the prior, and its part in that."""
    if share == 0.0 or log_prior == -np.inf:
        return log_reference + log1p(-share), 0.0
    first, second = log_reference + log1p(-share), log_prior + log(share)
    if first == -np.inf:
        return second, 1.0
    together = max(first, second) + log1p(exp(-abs(first - second)))
    return together, exp(second - together)


@njit
def _evaluate(words, x, out, gradient):
    data = nb.carray(view_address(words[1]), (words[2],), nb.int64)
    status = call_density(words[0], x, out, gradient, data)
    if status != 0:
        return status
    numbers = nb.carray(view_address(words[4]), (words[5],), nb.float64)
    positions = nb.carray(view_address(words[6]), (words[7],), nb.int64)
    with_gradient = words[8] != 0
    slope, of_part = np.empty(positions.size), np.empty(positions.size)
    log_reference = _mixture(numbers, x, positions, with_gradient, slope, of_part)
    log_reference += _of_factors(words, x)
    log_reference, of_prior = _beside_prior(log_reference, out[0] - numbers[2], numbers[3])
    out[1] = out[0] + out[1] - numbers[2] - log_reference
    out[0] = log_reference
    if with_gradient:
        for j in range(x.size):
            both = gradient[0, j] + gradient[1, j]
            gradient[0, j] = of_prior * gradient[0, j] if of_prior > 0.0 else 0.0
            gradient[1, j] = both - gradient[0, j]
        for j in range(positions.size):
            gradient[0, positions[j]] += (1.0 - of_prior) * slope[j]
            gradient[1, positions[j]] -= (1.0 - of_prior) * slope[j]
    return status


def _density(x_: Any, out_: Any, gradient_: Any, data_: Any) -> Any:
    head = nb.carray(data_, (_N_WORDS,))
    words = nb.carray(data_, (_N_WORDS + _N_OF_FACTOR * head[9],))
    x, out = nb.carray(x_, (head[3],)), nb.carray(out_, (2,))
    return _evaluate(words, x, out, nb.carray(gradient_, (2, head[3])))


@cache
def _c_function() -> Any:
    return cfunc(density_signature(), _density)
