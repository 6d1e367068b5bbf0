"""A reference and a model in one density that NumPy or JAX evaluates."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from pm_evidence.core.jax import load_jax
from pm_evidence.references.compiled import Component, Packed, unpacked
from pm_evidence.targets.compile.jax_density import JaxDensity
from pm_evidence.targets.compile.numpy_density import NumpyDensity

Floats = NDArray[np.float64]


# Whitening matrices of more rows than this are kept sparse where most of their elements are zero.
_DENSE = 200


def annealed_from_by_numpy(
    model: NumpyDensity, packed: Packed, log_mass: float, prior_share: float
) -> NumpyDensity:
    """Return ``(log reference, log target - log reference)`` as a density that NumPy evaluates."""
    mixture = _Mixture.of(packed)
    of_fit = np.log1p(-prior_share)
    of_prior = np.log(prior_share) if prior_share > 0.0 else -np.inf

    def annealed(x: Floats, arrays: Any, with_gradient: bool) -> tuple[Floats, Floats | None]:
        values, gradient = model.function(x, arrays, with_gradient)
        with np.errstate(all="ignore"):
            log_fit, slope = mixture.evaluate(x[:, packed.positions], with_gradient)
            first, second = log_fit + of_fit, values[:, 0] - log_mass + of_prior
            log_reference = np.logaddexp(first, second)
            log_target = values.sum(axis=1) - log_mass
            densities = np.stack([log_reference, log_target - log_reference], axis=1)
            if gradient is None:
                return densities, None
            share = np.where(second == -np.inf, 0.0, np.exp(second - log_reference))[:, None]
            both = gradient.sum(axis=1)
            of_reference = np.where(share > 0.0, share * gradient[:, 0], 0.0)
            of_reference[:, packed.positions] += (1.0 - share) * slope
            return densities, np.stack([of_reference, both - of_reference], axis=1)

    return replace(model, function=annealed)


@dataclass(frozen=True, slots=True)
class _Mixture:
    """A mixture of Student-t densities, evaluated at the rows of an array."""

    constant: float
    components: list[Component]
    whitening: list[Any]

    @classmethod
    def of(cls, packed: Packed) -> "_Mixture":
        """Return the mixture that an array of numbers describes."""
        constant, components = unpacked(packed)
        return cls(constant, components, [_whitening(part) for part in components])

    def evaluate(self, x: Floats, with_gradient: bool) -> tuple[Floats, Floats]:
        """Return log densities, shape ``(n,)``, and their gradients, shape ``(n, d)``."""
        if not self.components:
            return np.full(len(x), self.constant), np.zeros(x.shape)
        parts = [
            _component(part, matrix, x, with_gradient)
            for part, matrix in zip(self.components, self.whitening, strict=True)
        ]
        log_parts = np.array([log_part for log_part, _ in parts])
        total = np.logaddexp.reduce(log_parts, axis=0)
        slope = np.zeros(x.shape)
        if with_gradient:
            share = np.exp(log_parts - np.where(total == -np.inf, 0.0, total))
            for weight, (_, own) in zip(share, parts, strict=True):
                slope += np.where(weight[:, None] > 0.0, weight[:, None] * own, 0.0)
        return self.constant + total, slope


def _component(
    part: Component, whitening: Any, x: Floats, with_gradient: bool
) -> tuple[Floats, Floats]:
    """Return the log density of one component and its gradient at the rows of ``x``."""
    heavy = part.scale > 0.0
    value, log_density = x, np.full(len(x), part.log_peak)
    if heavy.any():
        far = (x[:, heavy] - part.centre[heavy]) / part.scale[heavy]
        long = np.hypot(1.0, far)
        value = x.copy()
        value[:, heavy] = np.arcsinh(far)
        log_density -= np.log(long).sum(axis=1)
    whitened = (value - part.location) @ whitening
    squares = (whitened**2).sum(axis=1)
    if part.dof == np.inf:
        log_density, pull = log_density - 0.5 * squares, np.ones(len(x))
    else:
        power = part.dof + x.shape[1]
        log_density -= 0.5 * power * np.log1p(squares / part.dof)
        pull = power / (part.dof + squares)
    if not with_gradient:
        return log_density, x
    slope = -pull[:, None] * (whitened @ whitening.T)
    if heavy.any():
        slope[:, heavy] = (slope[:, heavy] - far / long) / (part.scale[heavy] * long)
    return log_density, slope


def _whitening(part: Component) -> Any:
    """Return the matrix that deviations from the location, as rows, are multiplied by."""
    d = part.location.size
    if part.sparse is None:
        if part.factor.ndim == 1:
            return (
                np.diag(1.0 / part.factor)
                if d <= _DENSE
                else scipy.sparse.csr_array(np.diag(1 / part.factor))
            )
        return scipy.linalg.solve_triangular(part.factor, np.eye(d), lower=True).T
    order, row, column, diagonal, below = part.sparse
    rows = np.concatenate([order, order[row]])
    columns = np.concatenate([np.arange(d), column])
    matrix = scipy.sparse.csr_array(
        (np.concatenate([diagonal, below]), (rows, columns)), shape=(d, d)
    )
    return matrix.toarray() if d <= _DENSE else matrix


def annealed_from_by_jax(
    model: JaxDensity, packed: Packed, log_mass: float, prior_share: float
) -> JaxDensity:
    """Return ``(log reference, log target - log reference)`` as a density that JAX evaluates."""

    def annealed(x: Any, arrays: Any) -> tuple[Any, Any]:
        jax = load_jax()
        jnp = jax.numpy
        (log_prior, log_likelihood), gradient = _with_gradient(model, x, arrays[0])
        log_fit, slope = jax.value_and_grad(_log_mixture)(x, *arrays[1:])
        first, second = log_fit + np.log1p(-prior_share), log_prior - log_mass + np.log(prior_share)
        log_reference = jnp.logaddexp(first, second)
        log_target = log_prior + log_likelihood - log_mass
        densities = jnp.stack([log_reference, log_target - log_reference])
        if gradient is None:
            return densities, None
        of_prior = jnp.where(second == -jnp.inf, 0.0, jnp.exp(second - log_reference))
        prior_slope = jnp.where(of_prior > 0.0, of_prior * gradient[0], 0.0)
        reference_slope = prior_slope + (1.0 - of_prior) * slope
        return densities, jnp.stack([reference_slope, gradient.sum(axis=0) - reference_slope])

    arrays = [list(model.arrays), *_unpacked(packed)]
    return JaxDensity.of(annealed, model.n_dim, arrays, has_gradient=model.has_gradient)


def _with_gradient(model: JaxDensity, x: Any, arrays: Any) -> tuple[Any, Any]:
    log_density, gradient = model.function(x, arrays)
    return (log_density[0], log_density[1]), gradient


def _unpacked(packed: Packed) -> list[Any]:
    """Return the reference as arrays: positions, a constant, and those of all K components.

    These are constants and degrees of freedom, shape ``(K,)``; locations, centres and scales of the
    stretched coordinates, shape ``(K, d)``; and the factors. Components with sparse factors, which
    have equally many elements, come first.
    """
    d = packed.positions.size
    constant, parts = unpacked(packed)
    parts.sort(key=lambda part: part.sparse is None)
    sparse = [part.sparse for part in parts if part.sparse is not None]
    dense = [
        part.factor if part.factor.ndim == 2 else np.diag(part.factor)
        for part in parts[len(sparse) :]
    ]
    factors = [np.array(each) for each in zip(*sparse, strict=True)], np.array(dense)
    heads = [np.array([getattr(part, name) for part in parts]) for name in ("log_peak", "dof")]
    rows = [(part.location, part.centre, part.scale) for part in parts]
    arrays = np.array(rows).reshape(-1, 3, d).swapaxes(0, 1)
    return [packed.positions, constant, *heads, *arrays, factors]


def _log_mixture(
    x: Any,
    positions: Any,
    constant: Any,
    log_peak: Any,
    dof: Any,
    location: Any,
    centre: Any,
    scale: Any,
    factors: Any,
) -> Any:
    """Return the log density of a mixture of Student-t densities at a point; see `_unpacked`."""
    jax = load_jax()
    jnp = jax.numpy
    is_stretched = scale > 0.0
    far = jnp.where(is_stretched, (x[positions] - centre) / jnp.where(is_stretched, scale, 1.0), 0)
    value = jnp.where(is_stretched, jnp.arcsinh(far), x[positions])
    log_slope = jnp.where(is_stretched, 0.5 * jnp.log1p(far * far), 0.0).sum(axis=1)
    squares = _squares(value - location, *factors)
    is_normal = jnp.isinf(dof)
    finite_dof = jnp.where(is_normal, 1.0, dof)
    student = -0.5 * (finite_dof + positions.size) * jnp.log1p(squares / finite_dof)
    log_parts = log_peak - log_slope + jnp.where(is_normal, -0.5 * squares, student)
    return constant + jax.scipy.special.logsumexp(log_parts)


def _squares(apart: Any, sparse: Any, dense: Any) -> Any:
    """Return the squared distances from all components in units of their scales, shape ``(K,)``."""
    jax = load_jax()
    jnp = jax.numpy
    found = []
    n_sparse = len(apart) - len(dense)
    if n_sparse:
        order, row, column, diagonal, below = sparse
        ordered = jnp.take_along_axis(apart[:n_sparse], order, axis=1)
        moved = below * jnp.take_along_axis(ordered, row, axis=1)
        whole = jax.vmap(lambda sums, j, terms: sums.at[j].add(terms))
        found.append(whole(diagonal * ordered, column, moved))
    if n_sparse < len(apart):
        triangular = jax.scipy.linalg.solve_triangular
        found.append(triangular(dense, apart[n_sparse:, :, None], lower=True)[:, :, 0])
    return (jnp.concatenate(found) ** 2).sum(axis=1)
