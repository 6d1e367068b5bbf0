"""A reference and a model in one density that JAX evaluates; see ``compiled`` for that of numba."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.jax import load_jax
from pm_evidence.references.packed import Packed, unpacked
from pm_evidence.targets.compile.jax_density import JaxDensity

__all__ = ["annealed_from_by_jax"]

Floats = NDArray[np.float64]


def annealed_from_by_jax(
    model: JaxDensity, packed: Packed, log_mass: float, prior_share: float
) -> JaxDensity:
    """Return ``(log reference, log target - log reference)`` as a density that JAX evaluates.

    Parameters
    ----------
    model : JaxDensity
        Log prior and log likelihood.
    packed : Packed
        The reference of some coordinates.
    log_mass : float
        Log of the mass of the prior of ``model``, in nats, which is taken off the log target.
    prior_share : float
        Share of the prior in the reference, from 0 to 1.
    """

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
