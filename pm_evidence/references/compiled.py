"""A reference and a model in one compiled density, which calls that of the model by address."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log, log1p, pi
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import described
from pm_evidence.core.codegen.numba import (
    call_density,
    cfunc,
    density_signature,
    nb,
    njit,
    view_address,
)
from pm_evidence.core.numerics import dot, multiply, multiply_by_transposed
from pm_evidence.core.shape import Shape, SparseShape
from pm_evidence.references.given import Mixture, Normal, StudentT
from pm_evidence.references.mixture import StretchedFit, StudentFit, StudentMixture
from pm_evidence.targets.compile.numba_density import CompiledDensity

Floats = NDArray[np.float64]


# Numbers before the components (their count, a constant that is added to the log density, the log
# of the mass that is taken off the target, the share of the prior), and before the arrays of a
# component (its constant, its degrees of freedom, the form of its factor, and how many numbers that
# has).
N_OF_MIXTURE, N_OF_COMPONENT = 4, 4
# Forms: scales; a lower factor of the covariance; a sparse lower factor of its inverse.
SCALES, DENSE, SPARSE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Packed:
    """A mixture of Student-t densities over some coordinates of a point."""

    # Four numbers of the mixture: the number of components, a constant that is added to its log
    # density, the log mass of the prior, and its share. Then for each component: its log density at
    # the location with its log weight, in nats, its degrees of freedom, the form and the size of
    # its factor, and arrays: location, centre and scale of the stretched coordinates, shape
    # ``(d,)`` each (scales are 0 where a coordinate is not stretched), and the factor. That is the
    # scales, shape ``(d,)``; the lower factor of the covariance, shape ``(d, d)``; or for that of
    # its inverse, with ``n`` elements below the diagonal, the order of coordinates, shape ``(d,)``,
    # the first elements of columns, ``(d + 1,)``, rows, ``(n,)``, diagonal, ``(d,)``, and elements,
    # ``(n,)``. The first three of these hold the bits of integers.
    numbers: Floats
    positions: NDArray[np.int64]  # shape (d,): positions of the coordinates in a point

    def beside_prior(self, log_mass: float, share: float) -> "Packed":
        """Return it with the log mass of the prior, and the share of the prior in the reference."""
        numbers = self.numbers.copy()
        numbers[2:4] = log_mass, share
        return replace(self, numbers=numbers)


@dataclass(frozen=True, slots=True)
class Component:
    """A Student-t density in stretched coordinates, as it is found in ``Packed``."""

    log_peak: float  # its log density at the location with its log weight, in nats
    dof: float  # degrees of freedom
    location: Floats  # shape (d,): location, and centre and scale of the stretched coordinates
    centre: Floats
    scale: Floats
    # shape (d,) or (d, d): scales, or the lower factor of the covariance; empty where ``sparse`` is
    # given
    factor: Floats
    # Order of the coordinates, rows, columns, diagonal and elements of the lower factor of the
    # inverse of the covariance
    sparse: tuple[NDArray[Any], ...] | None


def unpacked(packed: Packed) -> tuple[float, list[Component]]:
    """Return the constant and the components of a mixture."""
    numbers, d = packed.numbers, packed.positions.size
    start, parts = N_OF_MIXTURE, list[Component]()
    for _ in range(int(numbers[0])):
        log_peak, dof, form, size = numbers[start : start + N_OF_COMPONENT]
        start += N_OF_COMPONENT
        arrays, factor = np.split(numbers[start : start + 3 * d + int(size)], [3 * d])
        start += arrays.size + factor.size
        sparse = _packed_sparse(factor, d) if form == SPARSE else None
        factor = factor.reshape(d, d) if form == DENSE else factor
        location, centre, scale = arrays.reshape(3, d)
        head = float(log_peak), float(dof)
        parts.append(Component(*head, location, centre, scale, factor, sparse))
    return float(numbers[1]), parts


def _packed_sparse(factor: Floats, d: int) -> tuple[NDArray[Any], ...]:
    """Return order, rows, columns, diagonal and elements of a sparse factor."""
    n = (factor.size - 3 * d - 1) // 2
    order, start, row = np.split(factor[: 2 * d + 1 + n].view(np.int64), [d, 2 * d + 1])
    diagonal, below = np.split(factor[2 * d + 1 + n :], [d])
    return order, row, np.repeat(np.arange(d), np.diff(start)), diagonal, below


def packed(reference: Any, positions: NDArray[np.int64], n_circular: int = 0) -> Packed | None:
    """Return a reference as arrays, or None if it is none of the densities of this package."""
    constant = -n_circular * log(2.0 * pi)
    if reference is None:
        empty = np.array([], np.int64)
        return Packed(np.array([0.0, constant, 0.0, 0.0]), empty)
    fit = reference.fitted if isinstance(reference, Normal | StudentT | Mixture) else reference
    if isinstance(fit, StudentMixture):
        parts, weights = fit.components, fit.log_weight
    else:
        parts, weights = (fit,), np.zeros(1)
    if not all(isinstance(part, StudentFit | StretchedFit) for part in parts):
        return None
    rows = [np.array([len(parts), constant, 0.0, 0.0])]
    for part, log_weight in zip(parts, weights, strict=True):
        rows += _component(part, float(log_weight))
    return Packed(np.concatenate(rows), np.ascontiguousarray(positions, np.int64))


def _component(part: Any, log_weight: float) -> list[Floats]:
    fit = part.fit if isinstance(part, StretchedFit) else part
    mean = fit.shape.mean
    centre, scale = np.zeros(mean.size), np.zeros(mean.size)
    if isinstance(part, StretchedFit):
        heavy = part.stretch.heavy
        centre[heavy], scale[heavy] = part.stretch.centre[heavy], part.stretch.scale[heavy]
    constant = log_weight + fit.log_constant - float(np.log(scale[scale > 0.0]).sum())
    form, factor = _factor(fit.shape)
    head = np.array([constant, fit.dof, form, factor.size])
    return [head, mean, centre, scale, factor]


def _factor(shape: Shape | SparseShape) -> tuple[int, Floats]:
    """Return the form of a factor and its numbers."""
    if isinstance(shape, SparseShape):
        indices = np.concatenate([shape.order, shape.pattern.start, shape.pattern.row])
        return SPARSE, np.concatenate([indices.view(float), shape.diagonal, shape.below])
    return DENSE if shape.mean.size > 1 and shape.is_dense else SCALES, shape.factor.ravel()


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
    """Return ``(log reference, log target - log reference)`` as a compiled density."""
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


_DOUBLES, _WORDS = ctypes.POINTER(ctypes.c_double), ctypes.POINTER(ctypes.c_int64)
_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int64, _DOUBLES, _DOUBLES, _DOUBLES, _WORDS)
_TRIALS = 100


def density_in_python(reference: Any, positions: NDArray[np.int64], n_dim: int) -> CompiledDensity:
    """Return the log density of a user's object as a function without gradient.

    Compiled loops call it for one point at a time, under Python's lock. An exception in it counts
    as a density of NaN: the proposal is rejected, and the run warns of it.
    """

    def call(x: Any, out: Any, gradient: Any, data: Any) -> int:
        try:
            point = np.ctypeslib.as_array(x, (n_dim,))[positions]
            out[0] = float(np.asarray(reference.log_density(point[None]))[0])
        except Exception:  # which must not leave a function that machine code has called
            return 1
        return 0

    function = _SIGNATURE(call)
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    data = np.zeros(1, np.int64)
    return CompiledDensity(address, data, False, (type(reference).__name__,), (function,))


def check_reference(reference: Any, d: int) -> None:
    """Raise an error unless an object draws and has a log density in ``d`` coordinates."""
    x = np.asarray(reference.draw(_TRIALS, np.random.default_rng(0)))
    if x.shape != (_TRIALS, d) or x.dtype.kind not in "iuf" or not np.isfinite(x).all():
        raise ValueError(
            f"reference.draw(n, rng) must return finite draws of shape (n, {d}), one column for "
            f"each continuous coordinate that is not circular, got {described(x)} for n={_TRIALS};"
            " correct its draw."
        )
    values = np.asarray(reference.log_density(x.astype(float)))
    if values.shape != (_TRIALS,) or not np.isfinite(values).all():
        raise ValueError(
            f"reference.log_density(x) must return a finite number for each of its own draws, got "
            f"{described(values)} for {_TRIALS} draws; return the normalised log density of every "
            "row of x in nats."
        )
