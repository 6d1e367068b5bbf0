"""Hamiltonian trajectories of a whole population at once, by JAX."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.jax import load_jax
from pm_evidence.core.random import normals, uniforms
from pm_evidence.core.shape import Shape
from pm_evidence.targets.compile.jax_density import JaxDensity

__all__ = ["move_together"]

Floats = NDArray[np.float64]


def move_together(
    compiled: JaxDensity,
    x: Floats,
    log_density: Floats,
    gradient: Floats,
    beta: float,
    shape: Shape,
    step: float,
    n_leapfrogs: NDArray[np.int64],
    streams: NDArray[np.uint64],
    explores: bool,
    report: Floats,
) -> None:
    """Move every row in place, and add to ``report``, as the compiled trajectories of `HMC` do.

    Every row draws the same random numbers from its stream as there, in the same order. All
    coordinates are moved.
    """
    momentum, draws = normals(streams, x.shape[1]), uniforms(streams, 2)
    sizes = step * (0.8 + 0.4 * draws[:, 0])
    rows = (x, log_density, gradient, momentum, sizes, n_leapfrogs)
    proposal, new_density, new_gradient, last = compiled.on_rows(
        _leapfrog, rows, (beta, shape.factor), is_long=True
    )
    start = log_density[:, 0] + beta * log_density[:, 1]
    with np.errstate(invalid="ignore", over="ignore"):
        log_ratio = new_density[:, 0] + beta * new_density[:, 1] - start
        failed = np.isnan(log_ratio) | (log_ratio == np.inf)
        log_ratio += 0.5 * ((momentum**2).sum(axis=1) - (last**2).sum(axis=1))
    moving = np.isfinite(start)  # a path of weight zero is not moved
    report[:, 1] += moving & failed & np.isfinite(proposal.sum(axis=1))
    possible = moving & ~failed & ~np.isnan(log_ratio)
    acceptance = np.where(possible, np.exp(np.minimum(log_ratio, 0.0)), 0.0)
    report[:, 0] += acceptance
    if explores:
        before = shape.squared_distances(x)
        report[:, 3] += np.where(moving & ~failed, before, 0.0)
        some = acceptance > 0.0
        after = shape.squared_distances(proposal[some])
        report[some, 2] += acceptance[some] * (after - before[some]) ** 2
    accepted = possible & (np.log(draws[:, 1]) < log_ratio)
    x[accepted], log_density[accepted] = proposal[accepted], new_density[accepted]
    gradient[accepted] = new_gradient[accepted]


def _leapfrog(
    density: Any,
    x: Any,
    log_density: Any,
    gradient: Any,
    momentum: Any,
    sizes: Any,
    n_leapfrogs: Any,
    beta: Any,
    factor: Any,
) -> tuple[Any, ...]:
    """Return positions, log densities, gradients and momenta at the ends of trajectories.

    A trajectory that leaves the support stops there.
    """
    jax = load_jax()
    jnp = jax.numpy
    is_dense = factor.shape[1] == factor.shape[0]

    def force(gradient: Any) -> Any:
        slope = gradient[:, 0] + beta * gradient[:, 1]
        return slope @ factor if is_dense else slope * factor[:, 0]

    def along(momentum: Any) -> Any:
        return momentum @ factor.T if is_dense else momentum * factor[:, 0]

    def goes_on(state: Any) -> Any:
        leap, moving = state[0], state[1]
        return jnp.any(moving & (leap < n_leapfrogs))

    def one_leap(state: Any) -> Any:
        leap, moving, x, log_density, gradient, momentum = state
        moves = moving & (leap < n_leapfrogs)
        kick = jnp.where(leap == 0, 0.5, 1.0) * sizes[:, None]
        new_momentum = momentum + kick * force(gradient)
        new_x = x + sizes[:, None] * along(new_momentum)
        new_density, new_gradient = density(new_x)
        finite = jnp.isfinite(new_density[:, 0] + beta * new_density[:, 1])
        return (
            leap + 1,
            moving & (finite | ~moves),
            jnp.where(moves[:, None], new_x, x),
            jnp.where(moves[:, None], new_density, log_density),
            jnp.where(moves[:, None, None], new_gradient, gradient),
            jnp.where(moves[:, None], new_momentum, momentum),
        )

    moving = jnp.isfinite(log_density[:, 0] + beta * log_density[:, 1])
    start = (jnp.zeros((), n_leapfrogs.dtype), moving, x, log_density, gradient, momentum)
    _, _, x, log_density, gradient, momentum = jax.lax.while_loop(goes_on, one_leap, start)
    return x, log_density, gradient, momentum + 0.5 * sizes[:, None] * force(gradient)
