"""A reference and a model in one density: for numba, which calls the model's, NumPy and JAX."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log, log1p, pi
from typing import Any

import numpy as np
import scipy
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
from pm_evidence.core.shape import SparseShape
from pm_evidence.references.given import Mixture, Normal, StudentT
from pm_evidence.references.mixture import StudentFit, StudentMixture
from pm_evidence.targets.compile.numba_density import CompiledDensity
from pm_evidence.targets.compile.numpy_density import NumpyDensity

Floats = NDArray[np.float64]


# Numbers before the components of a packed mixture, before the arrays of a component, and the forms
# of a factor: scales; a lower factor of the covariance; a sparse lower factor of its inverse.
N_OF_MIXTURE, N_OF_COMPONENT = 4, 4
SCALES, DENSE, SPARSE = 0, 1, 2
# Words before the addresses of further factors of the reference, and words of each of these.
_N_WORDS, _N_OF_FACTOR = 10, 3


def numbers_of(fit: StudentFit, log_weight: float = 0.0) -> Floats:
    """Return a component of a mixture as compiled code reads it.

    Log density at the location, degrees of freedom, form and size of the factor; location, centre
    and scale; the factor. A sparse one is the order of coordinates, the first elements of columns
    and the rows, as the bits of integers, then the diagonal and the elements.
    """
    shape = fit.shape
    # centre and scale are 0 where coordinates are not stretched
    centre, scale = np.zeros((2, shape.mean.size))
    if fit.stretch is not None:
        heavy = fit.stretch.heavy
        centre[heavy], scale[heavy] = fit.stretch.centre[heavy], fit.stretch.scale[heavy]
    log_peak = log_weight + fit.log_constant - float(np.log(scale[scale > 0.0]).sum())
    if isinstance(shape, SparseShape):
        indices = np.concatenate([shape.order, shape.pattern.start, shape.pattern.row])
        factor = np.concatenate([indices.view(float), shape.diagonal, shape.below])
        form = SPARSE
    else:
        form = DENSE if shape.mean.size > 1 and shape.is_dense else SCALES
        factor = shape.factor.ravel()
    head = [log_peak, fit.dof, form, factor.size]
    return np.concatenate([head, shape.mean, centre, scale, factor])


@dataclass(frozen=True, slots=True)
class Packed:
    """A mixture of Student-t densities over some coordinates of a point."""

    constant: float  # a number that is added to its log density
    components: tuple[tuple[StudentFit, float], ...]  # with log weights; none if it is uniform
    positions: NDArray[np.int64]  # shape (d,): positions of the coordinates in a point


def packed(reference: Any, positions: NDArray[np.int64], n_circular: int = 0) -> Packed | None:
    """Return the parts of a reference, or None if it is none of the densities of this package."""
    constant = -n_circular * log(2.0 * pi)
    if reference is None:
        return Packed(constant, (), np.array([], np.int64))
    fit = reference.fitted if isinstance(reference, Normal | StudentT | Mixture) else reference
    mixture = fit if isinstance(fit, StudentMixture) else StudentMixture((fit,), np.zeros(1))
    parts = [part for part in mixture.components if isinstance(part, StudentFit)]
    if len(parts) < len(mixture.components):
        return None
    components = zip(parts, map(float, mixture.log_weight), strict=True)
    return Packed(constant, tuple(components), np.ascontiguousarray(positions, np.int64))


def pointers(*arrays: NDArray[Any]) -> list[int]:
    """Return address and size of each array, for compiled code; the arrays have to be kept."""
    return [word for array in arrays for word in (array.ctypes.data, array.size)]


@njit
def doubles(words, k):
    """Return the array of doubles whose address and size are words ``k`` and ``k + 1``."""
    return nb.carray(view_address(words[k]), (words[k + 1],), nb.float64)


@njit
def integers(words, k):
    """Return the array of integers whose address and size are words ``k`` and ``k + 1``."""
    return nb.carray(view_address(words[k]), (words[k + 1],), nb.int64)


def annealed_from(
    model: CompiledDensity,
    packed: Packed,
    factors: Sequence[CompiledDensity],
    n_dim: int,
    log_mass: float,
    prior_share: float = 0.0,
) -> CompiledDensity:
    """Return ``(log reference, log target - log reference)`` as a compiled density."""
    head = [len(packed.components), packed.constant, log_mass, prior_share]
    numbers = np.concatenate([head, *(numbers_of(*part) for part in packed.components)])
    positions = packed.positions
    words = [model.address, *pointers(model.data), n_dim, *pointers(numbers, positions)]
    words += [int(model.has_gradient), len(factors)]
    for factor in factors:
        words += [factor.address, *pointers(factor.data)]
    slow_ops = (*model.slow_ops, *(op for factor in factors for op in factor.slow_ops))
    return CompiledDensity(
        _c_function().address,
        np.array(words, np.int64),
        model.has_gradient,
        slow_ops,
        # what the words point to has to outlive the density
        (_c_function(), (model, numbers, positions, tuple(factors))),
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
        if call_density(words[at], x, values, no_gradient, integers(words, at + 1)) != 0:
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
    status = call_density(words[0], x, out, gradient, integers(words, 1))
    if status != 0:
        return status
    numbers, positions, with_gradient = doubles(words, 4), integers(words, 6), words[8] != 0
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


# In more dimensions whitening matrices are kept sparse where most of their elements are zero.
_DENSE = 200


def annealed_from_by_numpy(
    model: NumpyDensity, packed: Packed, log_mass: float, prior_share: float
) -> NumpyDensity:
    """Return ``(log reference, log target - log reference)`` as a density that NumPy evaluates."""
    mixture = _arrays(packed, model.n_dim, log_mass, prior_share)

    def annealed(x: Floats, arrays: Any, with_gradient: bool) -> tuple[Floats, Floats | None]:
        values, gradient = model.function(x, arrays, with_gradient)
        with np.errstate(all="ignore"):
            return _annealed(mixture, x, values, gradient)

    return replace(model, function=annealed)


def _arrays(packed: Packed, n_dim: int, log_mass: float, prior_share: float) -> list[Any]:
    """Return a mixture of K components, of which there are one or more, as arrays.

    Logs of the prior's mass and share, and of the other share; constant, constants of components
    and degrees of freedom, shape ``(K, 1)``; location, centre and scale, shape ``(K, 1, d)``, the
    last two None if no coordinate is stretched; positions; for each coordinate of a point, its
    index among these, or ``d``; whitening matrices, see `_whitening`.
    """
    parts, d = [fit for fit, _ in packed.components], packed.positions.size
    shares = np.log1p(-prior_share), np.log(prior_share) if prior_share > 0.0 else -np.inf
    first, size = N_OF_COMPONENT, N_OF_COMPONENT + 3 * d
    known = np.array([numbers_of(*part)[:size] for part in packed.components])
    log_peak, dof = known[:, :2].T[:, :, None]
    location, centre, scale = known[:, first:].reshape(-1, 3, 1, d).swapaxes(0, 1)
    stretch = (centre, scale) if (scale > 0.0).any() else (None, None)
    place = np.full(n_dim, d)
    place[packed.positions] = np.arange(d)
    head = np.array([log_mass, *shares, packed.constant])
    arrays = [head, log_peak, dof, location, *stretch, packed.positions, place]
    return [*arrays, _whitening(parts, d)]


def _whitening(parts: Sequence[StudentFit], d: int) -> Any:
    """Return what deviations from the locations, as rows, are multiplied by.

    These are matrices, shape ``(K, d, d)``; or, if most elements are zero, one sparse matrix of
    ``K d`` rows with them along its diagonal.
    """
    found = []
    for part in parts:
        shape = part.shape
        if isinstance(shape, SparseShape):
            pattern = shape.pattern
            rows = np.concatenate([shape.order, shape.order[pattern.row]])
            columns = np.concatenate([np.arange(d), pattern.column])
            found.append((rows, columns, np.concatenate([shape.diagonal, shape.below])))
        elif shape.is_dense and d > 1:
            inverse = scipy.linalg.solve_triangular(shape.factor, np.eye(d), lower=True).T
            rows, columns = np.triu_indices(d)
            found.append((rows, columns, inverse[rows, columns]))
        else:
            found.append((np.arange(d), np.arange(d), 1.0 / shape.factor[:, 0]))
    if d <= _DENSE or sum(each[0].size for each in found) > len(parts) * d * d // 4:
        matrices = np.zeros((len(parts), d, d))
        for matrix, (rows, columns, elements) in zip(matrices, found, strict=True):
            matrix[rows, columns] = elements
        return matrices
    rows, columns = (np.concatenate([k * d + e[i] for k, e in enumerate(found)]) for i in (0, 1))
    elements = np.concatenate([each for _, _, each in found])
    return scipy.sparse.csr_array((elements, (rows, columns)), shape=(len(parts) * d,) * 2)


def _annealed(
    mixture: list[Any], x: Floats, values: Floats, gradient: Floats | None
) -> tuple[Floats, Floats | None]:
    """Return log densities of reference and target, and gradients, from those of the model."""
    log_mass, of_fit, of_prior, _ = mixture[0]
    log_fit, slope = _log_mixture(mixture, x, with_gradient=gradient is not None)
    first, second = log_fit + of_fit, values[:, 0] - log_mass + of_prior
    log_reference = np.logaddexp(first, second)
    log_target = values.sum(axis=1) - log_mass
    densities = np.stack([log_reference, log_target - log_reference], axis=1)
    if gradient is None:
        return densities, None
    share = np.where(second == -np.inf, 0.0, np.exp(second - log_reference))[:, None]
    of_reference = np.where(share > 0.0, share * gradient[:, 0], 0.0) + (1.0 - share) * slope
    both = gradient.sum(axis=1)
    return densities, np.stack([of_reference, both - of_reference], axis=1)


def _log_mixture(mixture: list[Any], x: Floats, *, with_gradient: bool) -> tuple[Floats, Floats]:
    """Return log densities of a mixture, shape ``(n,)``, and gradients, shape ``(n, n_dim)``."""
    head, log_peak, dof, location, centre, scale, positions, place, whitening = mixture
    x = x[:, positions]
    value, log_parts = x, log_peak
    if scale is not None:
        is_stretched = scale > 0.0
        length = np.where(is_stretched, scale, 1.0)
        far = np.where(is_stretched, (x - centre) / length, 0.0)
        long = np.hypot(1.0, far)
        value = np.where(is_stretched, np.arcsinh(far), x)
        log_parts = log_parts - np.log(long).sum(axis=2)
    whitened = _times(value - location, whitening)
    squares = (whitened**2).sum(axis=2)
    is_normal = np.isinf(dof)
    finite = np.where(is_normal, 1.0, dof)
    student = 0.5 * (finite + positions.size) * np.log1p(squares / finite)
    log_parts = log_parts - np.where(is_normal, 0.5 * squares, student)
    total = np.logaddexp.reduce(log_parts, axis=0)
    if not with_gradient:
        return head[3] + total, x
    pull = np.where(is_normal, 1.0, (finite + positions.size) / (finite + squares))
    slope = -pull[:, :, None] * _times(whitened, whitening, transposed=True)
    if scale is not None:
        slope = np.where(is_stretched, (slope - far / long) / (length * long), slope)
    share = np.exp(log_parts - np.where(total == -np.inf, 0.0, total))[:, :, None]
    own = np.where(share > 0.0, share * slope, 0.0).sum(axis=0)
    return head[3] + total, np.concatenate([own, np.zeros((len(x), 1))], axis=1)[:, place]


def _times(rows: Floats, whitening: Any, *, transposed: bool = False) -> Floats:
    """Return rows of all components, shape ``(K, n, d)``, times their whitening matrices."""
    if whitening.ndim == 3:
        return np.asarray(rows @ (whitening.swapaxes(1, 2) if transposed else whitening))
    n_parts, n, d = rows.shape
    together = rows.swapaxes(0, 1).reshape(n, n_parts * d)
    found = together @ (whitening.T if transposed else whitening)
    return np.asarray(found.reshape(n, n_parts, d).swapaxes(0, 1))
