"""Gibbs sampling of a mixture: its populations, and draws of parameters and components."""

from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen.numba import nb, njit
from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import fill_normal, uniform
from pm_evidence.families.common import OrderedKernel
from pm_evidence.targets.layout import Rows

Floats = NDArray[np.float64]


# Rows of working space for each component: log densities, sums of points and of squares, numbers of
# points, log weights, and a normal draw.
ROOM = 6
_LOG_TERM, _SUM, _SQUARES, _COUNT, _CONSTANT, _NORMAL = range(ROOM)
_LOG_2_PI = log(2.0 * np.pi)


class Prior(NamedTuple):
    """The prior of a mixture, as compiled code reads it."""

    mean: float  # of the normal prior of the means
    precision: float
    alpha: float  # shape and scale of the inverse gamma prior of the variances
    beta: float
    concentration: float  # of the symmetric Dirichlet prior of the weights


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
    """
    k = mean.size
    for j in range(k):
        deviation = y - mean[j]
        own = variance[min(j, variance.size - 1)]
        room[_LOG_TERM, j] = room[_CONSTANT, j] - 0.5 * deviation * deviation / own
    _add_up(room, k)
    return pick(room, k, stream)


@njit
def predict(new, y, component, prior, variance, k, room):
    """Return the log density of a new point given variances and components of the points so far.

    Means and weights are integrated out: those of each component given its points are normal and
    Dirichlet. ``pick`` then draws the component of the new point.
    """
    n = _count(y, component, room)
    for j in range(k):
        own, precision, centre = _given_points(j, prior, variance, room)
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
    room[_COUNT] = 0.0
    room[_SUM] = 0.0
    n = 0
    for i in range(y.size):
        if component[i] >= 0:
            room[_COUNT, component[i]] += 1.0
            room[_SUM, component[i]] += y[i]
            n += 1
    return n


@njit
def _given_points(j, prior, variance, room):
    """Return the variance of a component, and precision and mean of its mean given its points."""
    own = variance[min(j, variance.size - 1)]
    precision = prior.precision + room[_COUNT, j] / own
    return own, precision, (prior.precision * prior.mean + room[_SUM, j] / own) / precision


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
    _count(y, component, room)
    for j in range(mean.size):
        _, precision, centre = _given_points(j, prior, variance, room)
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


ABSENT = -1  # in place of the component of a point that has not been added yet


@dataclass(frozen=True, slots=True)
class MixtureStates(Rows):
    """A population of parameters and assignments."""

    step: int  # number of points that have been added
    # shape (n, k): parameters of the components; ``variance`` has one column if all components
    # share it
    mean: Floats
    variance: Floats
    weight: Floats
    # shape (n, n_points): component of each point, in the order of the data; ``ABSENT`` if it is
    # not there yet
    component: NDArray[np.int8]
    rows = ("mean", "variance", "weight", "component")

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The arrays in the order of the coordinates of a draw."""
        return self.mean, self.variance, self.weight, self.component

    def to_draws(self) -> Floats:
        """Return means, variances, weights and components, shape ``(n, n_dim)``."""
        return np.hstack([rows.astype(np.float64) for rows in self.arrays])


def states_of(draws: Floats, n_components: int, n_variances: int) -> MixtureStates:
    """Return the population whose ``to_draws`` is ``draws``; see ``MixtureStates``."""
    ends = np.cumsum([n_components, n_variances, n_components])
    mean, variance, weight, component = (
        np.array(part, order="C") for part in np.split(draws, ends, axis=1)
    )
    step = int((component[0] != ABSENT).sum()) if len(draws) else 0
    return MixtureStates(step, mean, variance, weight, component.astype(np.int8))


@dataclass(frozen=True)
class MixtureGibbs(OrderedKernel):
    """Draws means and weights, then the components of all points, and then the variances.

    Means and weights are integrated out of the densities of the path. So they do not belong to the
    state: each sweep draws them first and leaves them behind. Its reversal draws them first as
    well, and then the variances and the components.
    """

    def advance(
        self, path: Any, state: MixtureStates, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[MixtureStates, MoveInfo]:
        """Move every member, with the points that it has; see ``contracts.Kernel``."""
        target, moved = path.target, [rows.copy() for rows in state.arrays]
        _sweep(target.y, target.prior, self.n_sweeps, self.backwards, *moved, streams)
        return MixtureStates(state.step, *moved), MoveInfo(1.0, len(state) * self.n_sweeps)


@njit
def _sweep(y, prior, n_sweeps, backwards, mean, variance, weight, component, streams):
    room = np.empty((ROOM, mean.shape[1]))
    for m in range(len(mean)):
        stream, z = streams[m], component[m]
        for _ in range(n_sweeps):
            draw_means(y, z, prior, mean[m], variance[m], room, stream)
            draw_weights(z, prior, weight[m], room, stream)
            if backwards:
                draw_variances(y, z, prior, mean[m], variance[m], room, stream)
            log_terms(variance[m], weight[m], room)
            for i in range(y.size):
                if z[i] >= 0:
                    z[i] = draw_component(y[i], mean[m], variance[m], room, stream)
            if not backwards:
                draw_variances(y, z, prior, mean[m], variance[m], room, stream)


@njit
def fill_parameters(prior, mean, variance, weight, streams):
    """Fill the parameters of every member with draws from the prior."""
    nothing, nowhere = np.empty(0), np.empty(0, np.int8)
    room = np.empty((ROOM, mean.shape[1]))
    for m in range(len(mean)):
        draw_weights(nowhere, prior, weight[m], room, streams[m])
        draw_variances(nothing, nowhere, prior, mean[m], variance[m], room, streams[m])
        draw_means(nothing, nowhere, prior, mean[m], variance[m], room, streams[m])
