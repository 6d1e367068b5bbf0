"""Hamiltonian trajectories of a whole population at once, by NumPy or JAX."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.jax import load_jax
from pm_evidence.core.random import normals, uniforms
from pm_evidence.core.shape import Shape
from pm_evidence.targets.compile.jax_density import JaxDensity
from pm_evidence.targets.compile.numpy_density import NumpyDensity

__all__ = ["move_together"]

Floats = NDArray[np.float64]


def move_together(
    compiled: JaxDensity | NumpyDensity,
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
    if isinstance(compiled, JaxDensity):
        ends = compiled.on_rows(_by_jax, rows, (beta, shape.factor), is_long=True)
    else:
        with np.errstate(all="ignore"):
            ends = _leapfrog(np, _while, compiled.evaluate, *rows, beta, shape.factor)
    proposal, new_density, new_gradient, last = ends
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


def _by_jax(density: Any, *arguments: Any) -> tuple[Any, ...]:
    jax = load_jax()
    return _leapfrog(jax.numpy, jax.lax.while_loop, density, *arguments)


def _while(goes_on: Callable[[Any], Any], step: Callable[[Any], Any], state: Any) -> Any:
    """Return the state after the last step of a loop, as ``jax.lax.while_loop`` does."""
    while goes_on(state):
        state = step(state)
    return state


def _leapfrog(
    xp: Any,
    loop: Callable[..., Any],
    density: Callable[[Any], tuple[Any, Any]],
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

    A trajectory that leaves the support stops there. Arrays are those of ``xp``, NumPy or JAX.
    """
    is_dense = factor.shape[1] == factor.shape[0]

    def force(gradient: Any) -> Any:
        slope = gradient[:, 0] + beta * gradient[:, 1]
        return slope @ factor if is_dense else slope * factor[:, 0]

    def along(momentum: Any) -> Any:
        return momentum @ factor.T if is_dense else momentum * factor[:, 0]

    def goes_on(state: Any) -> Any:
        leap, moving = state[0], state[1]
        return xp.any(moving & (leap < n_leapfrogs))

    def one_leap(state: Any) -> Any:
        leap, moving, x, log_density, gradient, momentum = state
        moves = moving & (leap < n_leapfrogs)
        kick = xp.where(leap == 0, 0.5, 1.0) * sizes[:, None]
        new_momentum = momentum + kick * force(gradient)
        new_x = x + sizes[:, None] * along(new_momentum)
        new_density, new_gradient = density(new_x)
        finite = xp.isfinite(new_density[:, 0] + beta * new_density[:, 1])
        return (
            leap + 1,
            moving & (finite | ~moves),
            xp.where(moves[:, None], new_x, x),
            xp.where(moves[:, None], new_density, log_density),
            xp.where(moves[:, None, None], new_gradient, gradient),
            xp.where(moves[:, None], new_momentum, momentum),
        )

    moving = xp.isfinite(log_density[:, 0] + beta * log_density[:, 1])
    start = (xp.zeros((), n_leapfrogs.dtype), moving, x, log_density, gradient, momentum)
    _, _, x, log_density, gradient, momentum = loop(goes_on, one_leap, start)
    return x, log_density, gradient, momentum + 0.5 * sizes[:, None] * force(gradient)
