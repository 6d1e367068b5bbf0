"""A reference and a model in one density that NumPy or JAX evaluates: ``xp`` is either module."""

from dataclasses import replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from pm_evidence.core.jax import load_jax
from pm_evidence.core.shape import SparseShape
from pm_evidence.references.compiled import Component, Packed
from pm_evidence.targets.compile.jax_density import JaxDensity
from pm_evidence.targets.compile.numpy_density import NumpyDensity

Floats = NDArray[np.float64]

# In more dimensions whitening matrices are kept sparse where most of their elements are zero.
_DENSE = 200


def annealed_from_by_numpy(
    model: NumpyDensity, packed: Packed, log_mass: float, prior_share: float
) -> NumpyDensity:
    """Return ``(log reference, log target - log reference)`` as a density that NumPy evaluates."""
    mixture = _arrays(packed, model.n_dim, log_mass, prior_share)
    if isinstance(mixture[-1], tuple):
        (rows, columns, elements), size = mixture[-1], mixture[3].size
        matrix = scipy.sparse.csr_array((elements, (rows, columns)), shape=(size, size))
        mixture = [*mixture[:-1], matrix]

    def annealed(x: Floats, arrays: Any, with_gradient: bool) -> tuple[Floats, Floats | None]:
        values, gradient = model.function(x, arrays, with_gradient)
        with np.errstate(all="ignore"):
            return _annealed(np, mixture, x, values, gradient)

    return replace(model, function=annealed)


def annealed_from_by_jax(
    model: JaxDensity, packed: Packed, log_mass: float, prior_share: float
) -> JaxDensity:
    """Return ``(log reference, log target - log reference)`` as a density that JAX evaluates."""

    def annealed(x: Any, arrays: Any) -> tuple[Any, Any]:
        values, gradient = model.function(x, arrays[0])
        gradients = None if gradient is None else gradient[None]
        found, slopes = _annealed(load_jax().numpy, arrays[1], x[None], values[None], gradients)
        return found[0], None if slopes is None else slopes[0]

    arrays = [list(model.arrays), _arrays(packed, model.n_dim, log_mass, prior_share)]
    return JaxDensity.of(annealed, model.n_dim, arrays, has_gradient=model.has_gradient)


def _arrays(packed: Packed, n_dim: int, log_mass: float, prior_share: float) -> list[Any]:
    """Return a mixture of K components as arrays.

    Logs of the prior's mass and share, and of the other share; constant, constants of components
    and degrees of freedom, shape ``(K, 1)``; location, centre and scale, shape ``(K, 1, d)``, the
    last two None if no coordinate is stretched; positions; for each coordinate of a point, its
    index among these, or ``d``; whitening matrices, see `_whitening`.
    """
    parts, d = packed.components, packed.positions.size
    shares = np.log1p(-prior_share), np.log(prior_share) if prior_share > 0.0 else -np.inf
    heads = np.array([(part.log_peak, part.dof) for part in parts]).reshape(-1, 2).T[:, :, None]
    rows = [(part.shape.mean, part.centre, part.scale) for part in parts]
    location, centre, scale = np.array(rows).reshape(-1, 3, 1, d).swapaxes(0, 1)
    stretch = (centre, scale) if (scale > 0.0).any() else (None, None)
    place = np.full(n_dim, d)
    place[packed.positions] = np.arange(d)
    known = [np.array([log_mass, *shares, packed.constant]), *heads, location, *stretch]
    return [*known, packed.positions, place, _whitening(parts, d)]


def _whitening(parts: tuple[Component, ...], d: int) -> Any:
    """Return what deviations from the locations, as rows, are multiplied by.

    These are matrices, shape ``(K, d, d)``; or, if most elements are zero, rows, columns and
    elements of one matrix of ``K d`` rows with them along its diagonal.
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
    return rows, columns, np.concatenate([elements for _, _, elements in found])


def _annealed(
    xp: Any, mixture: list[Any], x: Any, values: Any, gradient: Any
) -> tuple[Any, Any | None]:
    """Return log densities of reference and target, and gradients, from those of the model."""
    log_mass, of_fit, of_prior, _ = mixture[0]
    log_fit, slope = _log_mixture(xp, mixture, x, with_gradient=gradient is not None)
    first, second = log_fit + of_fit, values[:, 0] - log_mass + of_prior
    log_reference = xp.logaddexp(first, second)
    log_target = values.sum(axis=1) - log_mass
    densities = xp.stack([log_reference, log_target - log_reference], axis=1)
    if gradient is None:
        return densities, None
    share = xp.where(second == -xp.inf, 0.0, xp.exp(second - log_reference))[:, None]
    of_reference = xp.where(share > 0.0, share * gradient[:, 0], 0.0) + (1.0 - share) * slope
    both = gradient.sum(axis=1)
    return densities, xp.stack([of_reference, both - of_reference], axis=1)


def _log_mixture(xp: Any, mixture: list[Any], x: Any, *, with_gradient: bool) -> tuple[Any, Any]:
    """Return log densities of a mixture, shape ``(n,)``, and gradients, shape ``(n, n_dim)``."""
    head, log_peak, dof, location, centre, scale, positions, place, whitening = mixture
    if not len(location):
        return xp.zeros(len(x)) + head[3], xp.zeros(x.shape)
    x = x[:, positions]
    value, log_parts = x, log_peak
    if scale is not None:
        is_stretched = scale > 0.0
        length = xp.where(is_stretched, scale, 1.0)
        far = xp.where(is_stretched, (x - centre) / length, 0.0)
        long = xp.hypot(1.0, far)
        value = xp.where(is_stretched, xp.arcsinh(far), x)
        log_parts = log_parts - xp.log(long).sum(axis=2)
    whitened = _times(xp, value - location, whitening)
    squares = (whitened**2).sum(axis=2)
    is_normal = xp.isinf(dof)
    finite = xp.where(is_normal, 1.0, dof)
    student = 0.5 * (finite + positions.size) * xp.log1p(squares / finite)
    log_parts = log_parts - xp.where(is_normal, 0.5 * squares, student)
    total = xp.logaddexp.reduce(log_parts, axis=0)
    if not with_gradient:
        return head[3] + total, x
    pull = xp.where(is_normal, 1.0, (finite + positions.size) / (finite + squares))
    slope = -pull[:, :, None] * _times(xp, whitened, whitening, transposed=True)
    if scale is not None:
        slope = xp.where(is_stretched, (slope - far / long) / (length * long), slope)
    share = xp.exp(log_parts - xp.where(total == -xp.inf, 0.0, total))[:, :, None]
    own = xp.where(share > 0.0, share * slope, 0.0).sum(axis=0)
    return head[3] + total, xp.concatenate([own, xp.zeros((len(x), 1))], axis=1)[:, place]


def _times(xp: Any, rows: Any, whitening: Any, *, transposed: bool = False) -> Any:
    """Return rows of all components, shape ``(K, n, d)``, times their whitening matrices."""
    if not isinstance(whitening, tuple) and whitening.ndim == 3:
        return rows @ (whitening.swapaxes(1, 2) if transposed else whitening)
    n_parts, n, d = rows.shape
    together = rows.swapaxes(0, 1).reshape(n, n_parts * d)
    if xp is np:
        found = together @ (whitening.T if transposed else whitening)
    else:
        read, written, elements = whitening
        if transposed:
            read, written = written, read
        found = xp.zeros_like(together).at[:, written].add(together[:, read] * elements)
    return found.reshape(n, n_parts, d).swapaxes(0, 1)
