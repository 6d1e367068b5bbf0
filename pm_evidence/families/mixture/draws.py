"""Conditional draws of the parameters of a mixture and of the components of its points.

All functions move one member of a population, in place, and draw from its stream only.
"""

from math import exp, log, sqrt
from typing import NamedTuple

import numpy as np

from pm_evidence.core.codegen.numba import nb, njit
from pm_evidence.core.random import fill_normal, uniform

__all__ = [
    "ROOM",
    "Prior",
    "draw_component",
    "draw_means",
    "draw_variances",
    "draw_weights",
    "log_gamma_draw",
    "log_terms",
    "pick",
    "predict",
]

# Rows of working space for each component: log densities, sums of points and of squares, numbers of
# points, log weights, and a normal draw.
ROOM = 6
_LOG_TERM, _SUM, _SQUARES, _COUNT, _CONSTANT, _NORMAL = range(ROOM)
_LOG_2_PI = log(2.0 * np.pi)


class Prior(NamedTuple):
    """The prior of a mixture, as compiled code reads it.

    Parameters
    ----------
    mean, precision : float
        Of the normal prior of the means.
    alpha, beta : float
        Shape and scale of the inverse gamma prior of the variances.
    concentration : float
        Of the symmetric Dirichlet prior of the weights.
    """

    mean: float
    precision: float
    alpha: float
    beta: float
    concentration: float


@njit
def log_gamma_draw(stream, shape, room):
    """Return the log of a draw from the gamma distribution of some shape, with rate 1.

    Marsaglia and Tsang (2000); shapes below 1 as in their section 6. The log does not underflow
    where the draw would. ``room`` receives a normal draw.
    """
    boost = 0.0
    if shape < 1.0:
        boost = log(uniform(stream)) / shape
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / sqrt(9.0 * d)
    while True:
        fill_normal(stream, room)
        x = room[0]
        v = 1.0 + c * x
        if v > 0.0:
            v = v * v * v
            if log(uniform(stream)) < 0.5 * x * x + d - d * v + d * log(v):
                return log(d) + log(v) + boost


@njit
def log_terms(variance, weight, room):
    """Compute ``log w_j - log(2 pi v_j) / 2`` for every component."""
    for j in range(weight.size):
        own = variance[min(j, variance.size - 1)]
        room[_CONSTANT, j] = log(weight[j]) - 0.5 * (_LOG_2_PI + log(own))


@njit
def draw_component(y, mean, variance, room, stream):
    """Draw the component of a point given the parameters.

    ``log_terms`` has to be called before. A component whose terms all underflow relative to the
    largest one is never drawn.

    Returns
    -------
    component : int
    log_density : float
        Log of the mixture's density at ``y``.
    """
    k = mean.size
    for j in range(k):
        deviation = y - mean[j]
        own = variance[min(j, variance.size - 1)]
        room[_LOG_TERM, j] = room[_CONSTANT, j] - 0.5 * deviation * deviation / own
    log_density = _add_up(room, k)
    return pick(room, k, stream), log_density


@njit
def predict(new, y, component, prior, variance, k, room):
    """Return the log density of a new point given variances and components of the points so far.

    Means and weights are integrated out: those of each component given its points are normal and
    Dirichlet. ``pick`` then draws the component of the new point.
    """
    room[_COUNT, :k] = 0.0
    room[_SUM, :k] = 0.0
    n = _count(y, component, room)
    for j in range(k):
        own = variance[min(j, variance.size - 1)]
        precision = prior.precision + room[_COUNT, j] / own
        centre = (prior.precision * prior.mean + room[_SUM, j] / own) / precision
        spread = own + 1.0 / precision
        share = (room[_COUNT, j] + prior.concentration) / (n + k * prior.concentration)
        deviation = new - centre
        room[_LOG_TERM, j] = (
            log(share) - 0.5 * (_LOG_2_PI + log(spread)) - 0.5 * deviation * deviation / spread
        )
    return _add_up(room, k)


@njit
def _count(y, component, room):
    """Add up points and their number for every component; return the number of all of them."""
    n = 0
    for i in range(y.size):
        if component[i] >= 0:
            room[_COUNT, component[i]] += 1.0
            room[_SUM, component[i]] += y[i]
            n += 1
    return n


@njit
def _add_up(room, k):
    """Replace log terms by cumulative sums up to a factor; return the log of the sum of all."""
    largest = -np.inf
    for j in range(k):
        largest = max(largest, room[_LOG_TERM, j])
    total = 0.0
    for j in range(k):
        total += exp(room[_LOG_TERM, j] - largest)
        room[_LOG_TERM, j] = total
    return largest + log(total)


@njit
def pick(room, k, stream):
    """Return a component, drawn in proportion to the terms that were added up last."""
    threshold = uniform(stream) * room[_LOG_TERM, k - 1]
    chosen = 0
    while chosen < k - 1 and room[_LOG_TERM, chosen] <= threshold:
        chosen += 1
    return chosen


@njit
def draw_weights(component, prior, weight, room, stream):
    """Draw the weights given the components of the points: a Dirichlet distribution."""
    k = weight.size
    room[_COUNT, :k] = 0.0
    for i in range(component.size):
        if component[i] >= 0:
            room[_COUNT, component[i]] += 1.0
    largest = -np.inf
    for j in range(k):
        shape = prior.concentration + room[_COUNT, j]
        room[_LOG_TERM, j] = log_gamma_draw(stream, shape, room[_NORMAL, :1])
        largest = max(largest, room[_LOG_TERM, j])
    total = 0.0
    for j in range(k):
        weight[j] = exp(room[_LOG_TERM, j] - largest)
        total += weight[j]
    for j in range(k):
        weight[j] /= total


@njit
def draw_means(y, component, prior, mean, variance, room, stream):
    """Draw the means given variances and components: normal distributions.

    ``y`` and ``component`` are in the same order.
    """
    k = mean.size
    room[_COUNT, :k] = 0.0
    room[_SUM, :k] = 0.0
    _count(y, component, room)
    for j in range(k):
        own = variance[min(j, variance.size - 1)]
        precision = prior.precision + room[_COUNT, j] / own
        centre = (prior.precision * prior.mean + room[_SUM, j] / own) / precision
        fill_normal(stream, room[_NORMAL, :1])
        mean[j] = centre + room[_NORMAL, 0] / sqrt(precision)


@njit
def draw_variances(y, component, prior, mean, variance, room, stream):
    """Draw the variances given means and components: inverse gamma distributions."""
    k = variance.size
    room[_COUNT, :k] = 0.0
    room[_SQUARES, :k] = 0.0
    for i in range(y.size):
        if component[i] >= 0:
            own = min(nb.int64(component[i]), k - 1)
            deviation = y[i] - mean[component[i]]
            room[_COUNT, own] += 1.0
            room[_SQUARES, own] += deviation * deviation
    for j in range(k):
        shape = prior.alpha + 0.5 * room[_COUNT, j]
        log_draw = log_gamma_draw(stream, shape, room[_NORMAL, :1])
        variance[j] = (prior.beta + 0.5 * room[_SQUARES, j]) * exp(-log_draw)
