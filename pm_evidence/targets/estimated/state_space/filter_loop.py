"""The compiled loop of a particle filter, one for all models.

A model's own functions are called by address; see ``targets.compile.calls`` for their frames.
"""

from collections import namedtuple
from typing import Any

import numpy as np

from pm_evidence.core.codegen.fast_math import fast_exp
from pm_evidence.core.codegen.native import call_frame
from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.hilbert import order_along_curve
from pm_evidence.core.random import seed_stream, uniform
from pm_evidence.core.resampling import count_uniforms, resample_into
from pm_evidence.core.sums import dot, total
from pm_evidence.targets.compile.calls import GENERATOR_SLOTS

__all__ = [
    "LOOK_AHEAD",
    "MOVE",
    "N_CALLS",
    "SETUP",
    "START",
    "Options",
    "Record",
    "filter_many",
    "run",
]

# A model's functions: parameters; first states for each kind of row; next ones; look-ahead.
SETUP, START, MOVE, LOOK_AHEAD = 0, 1, 4, 7
N_CALLS = 8

# Slots of their frames. Those of SETUP are the flat vector and the precomputed parameters.
T, N, Y, H, PARAMETERS, H_OUT, WEIGHT = range(GENERATOR_SLOTS, GENERATOR_SLOTS + 7)
_X, _PRECOMPUTED = GENERATOR_SLOTS, GENERATOR_SLOTS + 1

# results of ``_choose``: what was done with the particles before a time
_FAILED, _KEPT, _RESAMPLED = range(3)

# Share of the filter's own weights in resampling weights, so that no particle is lost because of
# its look-ahead alone.
_DEFENSIVE = 0.05

Options = namedtuple("Options", ["n_particles", "n_precomputed", "scheme", "share"])

Record = namedtuple("Record", ["states", "weights", "ancestors", "increments", "ess"])

# Normalised weights; weights carried into a time; resampling weights; new log weights; ancestors.
Weights = namedtuple("Weights", ["normalised", "carried", "v", "log_weight", "index"])


@njit
def filter_many(x: Any, seeds: Any, model: Any, options: Any, out: Any) -> None:
    """Write the log of an estimated likelihood for every row of ``x`` and of ``seeds``."""
    record = Record(
        np.empty((0, 0, 0)), np.empty((0, 0)), np.empty((0, 0), np.int64), np.empty(0), np.empty(0)
    )
    precomputed = np.empty(options.n_precomputed)
    for i in range(x.shape[0]):
        out[i] = run(x[i], seeds[i], model, options, precomputed, record)


@njit
def run(x: Any, seeds: Any, model: Any, options: Any, precomputed: Any, record: Any) -> Any:
    """Run one filter.

    Parameters
    ----------
    x : ndarray, shape (n_dim,)
        Flat unconstrained vector.
    seeds : ndarray of uint64, shape (n_seeds,)
        One seed for every block of times.
    model : tuple
        Addresses of the functions, their frames, the data, the kinds of their rows, and the
        size of a state.
    options : Options
        Options of the filter.
    precomputed : ndarray, shape (n_precomputed,)
        Space for values that do not vary. The caller provides it, because numba would free an array
        of this function as soon as only its address is used.
    record : Record
        Filled in, unless its arrays are empty.

    Returns
    -------
    float
        Log of the estimated likelihood, in nats; NaN if a weight is NaN.
    """
    calls, frames, y, kinds, d = model
    n, n_times = options.n_particles, kinds.size
    frames = frames.copy()
    frames[SETUP, _X] = x.ctypes.data
    frames[SETUP, _PRECOMPUTED] = precomputed.ctypes.data
    if call_frame(calls[SETUP], frames[SETUP]) != 0:
        return np.nan
    h, other, stream = np.empty((n, d)), np.empty((n, d)), np.empty(4, np.uint64)
    normalised, carried, v, log_weight = np.empty(n), np.full(n, 1.0 / n), np.empty(n), np.empty(n)
    weights = Weights(normalised, carried, v, log_weight, np.empty(n, np.int64))
    frames[START:, 0] = stream.ctypes.data
    frames[START:, N] = n
    frames[START:, PARAMETERS] = precomputed.ctypes.data
    frames[START:, WEIGHT] = weights.log_weight.ctypes.data
    log_likelihood, ess = 0.0, float(n)
    for t in range(n_times):
        seed = seeds[t * seeds.size // n_times]
        frames[START:, T] = t
        frames[START:, Y] = y[t].ctypes.data
        if t > 0:
            ahead = calls[LOOK_AHEAD] if kinds[t] == 0 else 0
            source = stream, seed, 2 * t
            several_seeds = seeds.size > 1
            done = _choose(h, other, weights, ess, ahead, frames, source, several_seeds, options)
            if done == _FAILED:
                return np.nan
            if done == _RESAMPLED:
                h, other = other, h
        seed_stream(stream, seed, 2 * t + 1)
        function = (START if t == 0 else MOVE) + kinds[t]
        frames[function, H] = h.ctypes.data
        frames[function, H_OUT] = other.ctypes.data
        if call_frame(calls[function], frames[function]) != 0:
            return np.nan
        h, other = other, h
        increment, ess = _weigh(weights)
        log_likelihood += increment
        if record.increments.size:
            _keep(t, h, weights, increment, ess, record)
        if not increment > -np.inf:  # impossible, or NaN
            return log_likelihood
    return log_likelihood


@njit
def _choose(
    h: Any,
    out: Any,
    weights: Any,
    ess: Any,
    ahead: Any,
    frames: Any,
    source: Any,
    several_seeds: Any,
    options: Any,
) -> Any:
    """Choose the particles that enter a time; return whether they were resampled, into ``out``.

    ``ahead`` is the address of the look-ahead function, or 0 if there is none; ``source`` is a
    random stream with the seed and the position that it starts from.
    """
    if ahead != 0:
        frames[LOOK_AHEAD, H] = h.ctypes.data
        # written where the new weights will be
        frames[LOOK_AHEAD, H_OUT] = weights.log_weight.ctypes.data
        if call_frame(ahead, frames[LOOK_AHEAD]) != 0:
            return _FAILED
        ess = _tilt(weights)
    else:
        weights.v[:] = weights.normalised
    if ess < options.share * h.shape[0]:
        stream, seed, position = source
        seed_stream(stream, seed, position)
        _resample(h, weights, stream, several_seeds, options.scheme)
        _gather(h, weights, ahead != 0, out)
        return _RESAMPLED
    weights.carried[:] = weights.normalised
    weights.index[:] = np.arange(h.shape[0])
    return _KEPT


@njit
def _gather(h: Any, weights: Any, tilted: Any, out: Any) -> None:
    """Copy the chosen particles, and set the weights that they carry."""
    n, d = h.shape
    for i in range(n):
        chosen = weights.index[i]
        for k in range(d):
            out[i, k] = h[chosen, k]
        weights.carried[i] = 1.0 / n
        if tilted:
            weights.carried[i] *= weights.normalised[chosen] / weights.v[chosen]


@njit
def _keep(t: Any, h: Any, weights: Any, increment: Any, ess: Any, record: Any) -> None:
    record.states[t] = h
    record.weights[t] = weights.normalised
    record.ancestors[t] = weights.index
    record.increments[t] = increment
    record.ess[t] = ess


@njit
def _weigh(weights: Any) -> Any:
    """Normalise new weights; return the log of their sum, and their effective sample size."""
    weight, carried, log_weight = weights.normalised, weights.carried, weights.log_weight
    n = weight.size
    top = -np.inf
    for i in range(n):
        top = max(top, log_weight[i])
    if not top > -np.inf or top == np.inf:
        undefined = top == np.inf or np.isnan(log_weight).any()
        return (np.nan if undefined else -np.inf), 0.0
    for i in range(n):
        weight[i] = carried[i] * fast_exp(log_weight[i] - top)
    sum_of_weights, squares = total(weight), dot(weight, weight)
    for i in range(n):
        weight[i] /= sum_of_weights
    # the sum is 0 if all particles with new weight carried none before
    ess = sum_of_weights**2 / squares if sum_of_weights > 0.0 else 0.0
    return top + np.log(sum_of_weights), ess


@njit
def _tilt(weights: Any) -> Any:
    """Write normalised resampling weights into ``v``; return their effective sample size."""
    weight, log_tilt, v = weights.normalised, weights.log_weight, weights.v
    n = weight.size
    top = -np.inf
    for i in range(n):
        if weight[i] > 0.0:
            top = max(top, log_tilt[i])
    tilted = 0.0
    if -np.inf < top < np.inf:
        for i in range(n):
            tilt = fast_exp(log_tilt[i] - top)
            # a look-ahead that is NaN counts as zero
            v[i] = weight[i] * tilt if tilt >= 0.0 else 0.0
        tilted = total(v)
    for i in range(n):
        share = v[i] / tilted if tilted > 0.0 else weight[i]
        v[i] = (1.0 - _DEFENSIVE) * share + _DEFENSIVE * weight[i]
    return 1.0 / dot(v, v)


@njit
def _resample(h: Any, weights: Any, stream: Any, in_order: Any, scheme: Any) -> None:
    """Draw ancestors with probabilities ``v``, in the order of a space-filling curve if asked."""
    v, index = weights.v, weights.index
    n = v.size
    if in_order:
        order = order_along_curve(h)
        v = v[order]
    uniforms = np.empty(count_uniforms(scheme, v, n))
    for k in range(uniforms.size):
        uniforms[k] = uniform(stream)
    resample_into(scheme, v, uniforms, index)
    if in_order:
        for i in range(n):
            index[i] = order[index[i]]
