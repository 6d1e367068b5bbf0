"""Importance sampling of the effects of all groups together, compiled once for all models.

Newton's method and the particles treat all groups in parallel: one call of the model's function
gives the joint density of every group at its own effect.
"""

from functools import lru_cache
from math import acos, cos, exp, log, log1p, sqrt

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen.native import call_frame
from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.random import seed_stream, uniform

__all__ = [
    "ANTITHETIC",
    "QUASI",
    "RANDOM",
    "estimate_rows",
    "evaluate_near_start",
    "lattice_generator",
]

RANDOM, ANTITHETIC, QUASI = range(3)

# First slot of arguments in a frame; those before are for generators (``targets.compile.calls``).
_FIRST = 4

# Newton's method ends one step after the log density can rise by less than half of this. The
# distance from the mode is then a hundredth of the proposal's width before that step, and about the
# square of it after the step.
_LAST_GAIN = 1e-4
_MAX_EVALUATIONS = 100
# A step has to gain this share of the gain that its first derivative predicts (Armijo's rule).
_ARMIJO = 1e-4
_SHORTEST_STEP = 2.0**-40

# With four degrees of freedom of the proposal, the variance of the weights of a normal density is
# smallest, 0.038 per dimension, at a width of 0.87. A slightly larger width costs hardly any
# precision and protects against skewness.
_WIDTH = 0.9
_LOG_PEAK = log(3.0 / 8.0)
_LEAST_PROBABILITY = 2.0**-54


@njit
def estimate_rows(
    x,
    seeds,
    addresses,
    parameter_frame,
    derivative_frame,
    value_frame,
    sizes,
    draws,
    lattice,
    log_likelihood,
    chosen,
    n_evaluations,
):
    """Estimate the log likelihood of every group at every row of ``x``.

    Parameters
    ----------
    x : float64 array, shape (n, n_dim)
        Flat vectors of free variables.
    seeds : uint64 array, shape (n, n_seeds)
        One seed for every block of groups.
    addresses : int64 array, shape (3,)
        Functions of ``random_effects.compile.compile_groups``: parameters, derivatives, values.
    parameter_frame, derivative_frame, value_frame : int64 array
        Their frames.
    sizes : tuple of int
        Number of parameters, groups, coordinates of an effect, and particles.
    draws : int
        ``RANDOM``, ``ANTITHETIC`` or ``QUASI``.
    lattice : int64 array, shape (n_effect_dim,)
        Generating vector of the lattice.
    log_likelihood : float64 array, shape (n, n_groups)
        Receives the estimates, in nats.
    chosen : float64 array, shape (n or 0, n_groups, n_effect_dim)
        Receives one particle of every group, drawn by its weight; not used if it is empty.
    n_evaluations : int64 array, shape (n,)
        Receives the number of evaluations of derivatives.
    """
    n_parameters, n_groups, n_effect_dim, n_particles = sizes
    parameters = np.empty(n_parameters)
    mode = np.empty((n_groups, n_effect_dim))
    factor = np.empty((n_groups, n_effect_dim, n_effect_dim))
    nobody = np.empty((0, n_effect_dim))
    frames = parameter_frame.copy(), derivative_frame.copy(), value_frame.copy()
    for r in range(x.shape[0]):
        frames[0][_FIRST] = x[r].ctypes.data
        frames[0][_FIRST + 1] = parameters.ctypes.data
        frames[0][_FIRST + 2] = mode.ctypes.data
        n_evaluations[r] = 0
        if call_frame(addresses[0], frames[0]) != 0:
            log_likelihood[r] = np.nan
            continue
        n_evaluations[r] = _find_modes(addresses[1], frames[1], parameters, mode, factor)
        picks = chosen[r] if chosen.shape[0] > 0 else nobody
        _weigh(
            addresses[2],
            frames[2],
            parameters,
            mode,
            factor,
            seeds[r],
            n_particles,
            draws,
            lattice,
            log_likelihood[r],
            picks,
        )


@njit
def _find_modes(address, frame, parameters, mode, factor):
    """Move ``mode`` uphill in every group; ``factor`` is the Cholesky factor of its precision."""
    n_groups, n_dim = mode.shape
    trial = mode.copy()
    value = np.empty(n_groups)
    gradient = np.empty((n_groups, n_dim))
    hessian = np.empty((n_dim, n_groups, n_dim))
    frame[_FIRST] = trial.ctypes.data
    frame[_FIRST + 1] = parameters.ctypes.data
    frame[_FIRST + 2] = value.ctypes.data
    frame[_FIRST + 3] = gradient.ctypes.data
    frame[_FIRST + 4] = hessian.ctypes.data
    best = np.full(n_groups, -np.inf)
    step = np.zeros((n_groups, n_dim))
    gain = np.zeros(n_groups)
    share = np.ones(n_groups)
    active = np.ones(n_groups, np.bool_)
    for g in range(n_groups):
        factor[g] = np.eye(n_dim)
    for evaluation in range(1, _MAX_EVALUATIONS + 1):
        if call_frame(address, frame) != 0:
            break
        n_active = 0
        for g in range(n_groups):
            if not active[g]:
                continue
            if evaluation == 1 or value[g] >= best[g] + _ARMIJO * share[g] * gain[g]:
                mode[g] = trial[g]
                best[g] = value[g]
                share[g] = 1.0
                gain[g] = _newton_step(gradient[g], hessian[:, g], factor[g], step[g])
                active[g] = gain[g] > _LAST_GAIN
                if not active[g]:
                    mode[g] += step[g]
            else:
                share[g] *= 0.5
                active[g] = share[g] > _SHORTEST_STEP
            trial[g] = mode[g]
            if active[g]:
                n_active += 1
                trial[g] += share[g] * step[g]
        if n_active == 0:
            break
    return evaluation


@njit
def _newton_step(gradient, hessian, factor, step):
    """Fill ``factor`` and ``step``; return twice the gain that the step predicts.

    If the density is not concave, the absolute second derivatives along the coordinates replace its
    precision. Steps then still go uphill, and the proposal has the corresponding width.
    """
    n_dim = gradient.size
    if not _factorise(hessian, factor):
        for i in range(n_dim):
            factor[i] = 0.0
            size = abs(hessian[i, i])
            factor[i, i] = sqrt(size) if 0.0 < size < np.inf else 1.0
    for i in range(n_dim):
        total = gradient[i]
        for k in range(i):
            total -= factor[i, k] * step[k]
        step[i] = total / factor[i, i]
    _solve_transposed(factor, step)
    gain = 0.0
    for i in range(n_dim):
        gain += gradient[i] * step[i]
    if not gain < np.inf:
        step[:] = 0.0
        return 0.0
    return gain


@njit
def _factorise(hessian, factor):
    """Fill ``factor`` with the Cholesky factor of minus ``hessian``; return whether it has one."""
    n_dim = factor.shape[0]
    for i in range(n_dim):
        for j in range(i + 1):
            total = -0.5 * (hessian[i, j] + hessian[j, i])
            for k in range(j):
                total -= factor[i, k] * factor[j, k]
            if i != j:
                factor[i, j] = total / factor[j, j]
            elif 0.0 < total < np.inf:
                factor[i, i] = sqrt(total)
            else:
                return False
    return True


@njit
def _solve_transposed(factor, vector):
    """Replace ``vector`` by the solution of ``factor.T @ solution = vector``."""
    for i in range(vector.size - 1, -1, -1):
        total = vector[i]
        for k in range(i + 1, vector.size):
            total -= factor[k, i] * vector[k]
        vector[i] = total / factor[i, i]


@njit
def _weigh(
    address, frame, parameters, mode, factor, seeds, n_particles, draws, lattice, out, picks
):
    """Fill ``out`` with the log mean weight of every group's particles."""
    n_groups, n_dim = mode.shape
    n_seeds = seeds.size
    streams = np.empty((2, n_seeds, 4), np.uint64)
    for b in range(n_seeds):
        seed_stream(streams[0, b], seeds[b], 0)
        seed_stream(streams[1, b], seeds[b], 1)  # for the choice of a particle
    effects = np.empty((n_groups, n_dim))
    value = np.empty(n_groups)
    start = np.empty((n_groups, n_dim))
    log_proposal = np.empty(n_groups)
    top = np.full(n_groups, -np.inf)
    total = np.zeros(n_groups)
    frame[_FIRST] = effects.ctypes.data
    frame[_FIRST + 1] = parameters.ctypes.data
    frame[_FIRST + 2] = value.ctypes.data
    for k in range(n_particles):
        for g in range(n_groups):
            stream = streams[0, g * n_seeds // n_groups]
            _fill_probabilities(stream, k, n_particles, draws, lattice, start[g], effects[g])
            log_proposal[g] = _propose(mode[g], factor[g], effects[g])
        if call_frame(address, frame) != 0:
            out[:] = np.nan
            return
        for g in range(n_groups):
            log_weight = value[g] - log_proposal[g]
            total[g], top[g], share = _add(total[g], top[g], log_weight)
            if picks.size > 0 and uniform(streams[1, g * n_seeds // n_groups]) < share:
                picks[g] = effects[g]
    for g in range(n_groups):
        out[g] = top[g] + log(total[g] / n_particles)
        for j in range(n_dim):
            out[g] -= log(factor[g, j, j] / _WIDTH)


@njit
def _add(total, top, log_weight):
    """Add a weight to the running sum ``total * exp(top)``; return also its share of the sum."""
    if log_weight == -np.inf:
        return total, top, 0.0
    if not log_weight < np.inf:  # NaN and infinity make the estimate NaN
        return np.nan, np.nan, 0.0
    if log_weight > top:
        total = total * exp(top - log_weight) + 1.0
        return total, log_weight, 1.0 / total
    weight = exp(log_weight - top)
    return total + weight, top, weight / (total + weight)


@njit
def _fill_probabilities(stream, k, n_particles, draws, lattice, start, out):
    """Fill ``out`` with the ``k``-th point of the unit cube, in which every point is uniform."""
    for j in range(out.size):
        if draws == RANDOM:
            out[j] = uniform(stream)
        elif draws == ANTITHETIC:
            if k % 2 == 0:
                start[j] = uniform(stream)
                out[j] = start[j]
            else:
                out[j] = 1.0 - start[j]
        else:
            if k == 0:
                start[j] = uniform(stream)
            shifted = start[j] + ((k * lattice[j]) % n_particles) / n_particles
            out[j] = max(shifted - np.floor(shifted), _LEAST_PROBABILITY)


@njit
def _propose(mode, factor, point):
    """Turn a point of the unit cube into a draw from the proposal.

    Returns its log density, up to terms that are the same for all draws.

    Along the axes that ``factor`` makes independent, the draws are Student-t with four degrees of
    freedom, whose quantiles have a closed form (Shaw 2006, "Sampling Student's T distribution").
    """
    log_density = 0.0
    for j in range(point.size):
        alpha = sqrt(4.0 * point[j] * (1.0 - point[j]))
        square = 4.0 * (cos(acos(min(alpha, 1.0)) / 3.0) / alpha - 1.0)
        draw = sqrt(max(square, 0.0))
        log_density += _LOG_PEAK - 2.5 * log1p(0.25 * draw * draw)
        point[j] = _WIDTH * (draw if point[j] > 0.5 else -draw)
    _solve_transposed(factor, point)
    for j in range(point.size):
        point[j] += mode[j]
    return log_density


@njit
def evaluate_near_start(
    x, moved, addresses, parameter_frame, derivative_frame, value_frame, n_parameters
):
    """Return log densities ``(n, n_groups)`` at ``moved`` from the start of Newton's method.

    The other arguments are those of ``estimate_rows``, at one row of ``x``.
    """
    parameters = np.empty(n_parameters)
    start = np.empty(moved.shape[1:])
    out = np.full(moved.shape[:2], np.nan)
    parameter_frame[_FIRST] = x.ctypes.data
    parameter_frame[_FIRST + 1] = parameters.ctypes.data
    parameter_frame[_FIRST + 2] = start.ctypes.data
    if call_frame(addresses[0], parameter_frame) != 0:
        return out
    effects = np.empty(moved.shape[1:])
    for k in range(moved.shape[0]):
        effects[:] = start + moved[k]
        # set here, so that numba keeps the arrays that the frame points to until the loop ends
        value_frame[_FIRST] = effects.ctypes.data
        value_frame[_FIRST + 1] = parameters.ctypes.data
        value_frame[_FIRST + 2] = out[k].ctypes.data
        if call_frame(addresses[2], value_frame) != 0:
            out[k] = np.nan
    return out


@lru_cache(maxsize=256)
def lattice_generator(n_points: int, n_dim: int) -> tuple[int, ...]:
    """Return the generating vector of a good rank-1 lattice.

    It is a Korobov vector, ``a**j mod n_points``, with the ``a`` of the smallest worst-case error
    for smooth periodic functions (Sloan and Joe 1994, criterion P_2) among at most 200. The
    integrands are periodic, because the weights fall to zero towards the faces of the cube.
    """
    if n_dim == 1:
        return (1,)
    tried = np.unique(np.linspace(1, max(n_points // 2, 1), 200).astype(np.int64))
    error = [_worst_case_error(int(a), n_points, n_dim) for a in tried]
    best = int(tried[np.argmin(error)])
    return tuple(pow(best, j, n_points) for j in range(n_dim))


def _worst_case_error(a: int, n_points: int, n_dim: int) -> float:
    k = np.arange(n_points)
    product: NDArray[np.float64] = np.ones(n_points)
    for j in range(n_dim):
        u = (k * pow(a, j, n_points)) % n_points / n_points
        product *= 1.0 + 2.0 * np.pi**2 * (u * u - u + 1.0 / 6.0)
    return float(product.mean())
