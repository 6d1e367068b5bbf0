"""A reference and a model in one density that JAX evaluates; see ``compiled`` for that of numba."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.jax import load_jax
from pm_evidence.references.packed import N_OF_COMPONENT, N_OF_MIXTURE, Packed
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


def _unpacked(packed: Packed) -> list[NDArray[Any]]:
    """Return the reference as arrays: positions, a constant, and those of all K components.

    These are constants and degrees of freedom, shape ``(K,)``; locations, centres and scales of the
    stretched coordinates, shape ``(K, d)``; lower factors, shape ``(K, d, d)``.
    """
    numbers, d = packed.numbers, packed.positions.size
    start, heads, rows, factors = N_OF_MIXTURE, list[Floats](), list[Floats](), list[Floats]()
    for _ in range(int(numbers[0])):
        head = numbers[start : start + N_OF_COMPONENT]
        start += N_OF_COMPONENT
        n_factor = d * d if head[2] else d
        arrays, factor = np.split(numbers[start : start + 3 * d + n_factor], [3 * d])
        start += 3 * d + n_factor
        heads.append(head)
        rows.append(arrays.reshape(3, d))
        factors.append(factor.reshape(d, d) if head[2] else np.diag(factor))
    head, row, factor = np.array(heads), np.array(rows), np.array(factors)
    return [packed.positions, numbers[1], head[:, 0], head[:, 1], *row.swapaxes(0, 1), factor]


def _log_mixture(
    x: Any,
    positions: Any,
    constant: Any,
    log_peak: Any,
    dof: Any,
    location: Any,
    centre: Any,
    scale: Any,
    factor: Any,
) -> Any:
    """Return the log density of a mixture of Student-t densities at a point; see `_unpacked`."""
    jax = load_jax()
    jnp = jax.numpy
    is_stretched = scale > 0.0
    far = jnp.where(is_stretched, (x[positions] - centre) / jnp.where(is_stretched, scale, 1.0), 0)
    value = jnp.where(is_stretched, jnp.arcsinh(far), x[positions])
    log_slope = jnp.where(is_stretched, 0.5 * jnp.log1p(far * far), 0.0).sum(axis=1)
    apart = (value - location)[:, :, None]
    solved = jax.scipy.linalg.solve_triangular(factor, apart, lower=True)[:, :, 0]
    squares = (solved * solved).sum(axis=1)
    is_normal = jnp.isinf(dof)
    finite_dof = jnp.where(is_normal, 1.0, dof)
    student = -0.5 * (finite_dof + positions.size) * jnp.log1p(squares / finite_dof)
    log_parts = log_peak - log_slope + jnp.where(is_normal, -0.5 * squares, student)
    return constant + jax.scipy.special.logsumexp(log_parts)
