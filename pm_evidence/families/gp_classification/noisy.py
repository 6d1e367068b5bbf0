"""Noisy latent values, to which data points are added one by one: path, population, Gibbs moves."""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from pm_evidence.core.checks import check_count
from pm_evidence.core.codegen.numba import nb, njit
from pm_evidence.core.codegen.vectors import aligned, fast_log
from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.numerics import dot, fused
from pm_evidence.core.random import next_state
from pm_evidence.families.gp_classification.arithmetic import BLOCK, add, excess, multiply, width_of
from pm_evidence.families.native import MOST_SWEEPS, OrderedKernel
from pm_evidence.paths.growing import GrowingPath
from pm_evidence.targets.layout import Rows

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NoisyValues(Rows):
    """Latent values with noise, ``z`` of Fraccaro et al. (2016, Eq. 10), of the first points."""

    # shape (n, step): the values in the order in which data points are added; their signs are the
    # labels
    z: Floats
    # shape (step, step): inverse of the prior covariance of these data points. Populations share
    # it; it is never written to.
    precision: Floats
    # shape (n_points,): the data points in the order in which they are added
    order: NDArray[np.int64]
    rows = ("z",)

    @property
    def step(self) -> int:
        """Number of data points so far."""
        return self.z.shape[1]

    def to_draws(self) -> NDArray[Any]:
        """Return the values in the order of the data, shape ``(n, n_points)``.

        Values of points that have not been added yet are 0.
        """
        draws = np.zeros((len(self.z), len(self.order)))
        draws[:, self.order[: self.step]] = self.z
        return draws


@dataclass(frozen=True)
class DataPointPath(GrowingPath):
    """``f_k(z) = N(z; 0, K + I)`` of the first ``k`` data points, cut off at the signs of labels.

    Fraccaro, Paquet and Winther (2016), Eq. 10 and Appendix A.3. Densities are normalised without
    the labels, so that the normalising constant of ``f_k`` is the probability of the first ``k``
    labels, and log Z is the log evidence.
    """

    target: Any  # the data, their order and covariance

    @property
    def n_steps(self) -> int:
        """Number of data points."""
        return len(self.target.signs)

    def draw(self, n: int, seed: np.random.SeedSequence) -> NoisyValues:
        """Return ``n`` states before the first data point, which hold no value."""
        return NoisyValues(np.empty((n, 0)), np.empty((0, 0)), self.target.points)

    def at(self, draws: NDArray[Any]) -> NoisyValues:
        """Return the population of all data points from values in the order of the data."""
        order, whitening = self.target.points, self.target.whitening
        z = np.ascontiguousarray(np.asarray(draws, float)[:, order])
        return NoisyValues(z, whitening.T @ whitening, order)

    def smoothed(self, state: NoisyValues) -> Floats:
        """Return the log probability of the next label given ``z``, shape ``(n,)``, in nats."""
        log_probability: Floats = log_ndtr(-self._bounds(state))
        return log_probability

    def extended(self, state: NoisyValues, streams: NDArray[np.uint64]) -> NoisyValues:
        """Return the state with the value of the next data point, drawn given ``z`` and label."""
        k = state.step
        row = self.target.whitening[k, : k + 1]
        z = np.empty((len(state), k + 1))
        z[:, :k] = state.z
        sign = float(self.target.signs[self.target.points[k]])
        _draw(self._bounds(state), sign / row[k], streams, z)
        precision = np.outer(row, row)
        precision[:k, :k] += state.precision
        return NoisyValues(z, precision, state.order)

    def shrunk(self, state: NoisyValues) -> NoisyValues:
        """Return the state without the value of the last data point."""
        k = state.step - 1
        row = self.target.whitening[k, : k + 1]
        precision = state.precision[:k, :k] - np.outer(row[:k], row[:k])
        return NoisyValues(np.ascontiguousarray(state.z[:, :k]), precision, state.order)

    def _bounds(self, state: NoisyValues) -> Floats:
        """Return the bound that the next value exceeds in the direction of its label.

        The value is ``m + s t`` with standard normal ``t`` and the mean ``m`` and deviation ``s``
        given ``z``; its sign is ``y`` if ``y t > -y m / s``, which is the bound. A row of the
        inverse Cholesky factor times ``z`` is ``-m / s``.
        """
        k = state.step
        bounds: Floats = _products(state.z, self.target.whitening[k, :k])
        bounds *= self.target.signs[self.target.points[k]]
        return bounds


@njit
def _products(z, row):
    """Return ``z @ row``; unlike BLAS, with the same digits for a member in any population."""
    out = np.empty(z.shape[0])
    for i in range(z.shape[0]):
        out[i] = dot(z[i], row)
    return out


@njit
def _draw(bounds, scale, streams, z):
    """Set the last column of ``z``; the bound itself is the sign."""
    room = np.empty(1)
    last = z.shape[1] - 1
    for i in range(bounds.size):
        z[i, last] = scale * excess(bounds[i], streams[i], room)


_TWO_POW_MINUS_52 = 2.0**-52


@dataclass(frozen=True)
class SliceGibbs(OrderedKernel):
    """Visits all values, and draws each given the others by a slice sampler.

    The update of a value satisfies detailed balance with respect to its distribution given the
    others, so that the sweep in the opposite order is the time reversal. The values are visited in
    an order that is drawn anew for every sweep and every number of data points, and does not depend
    on the state or the seed of a run. The means of 32 values given all others are computed by one
    product of matrices, and are updated after every draw among the 32.

    Notes
    -----
    Fraccaro, Paquet and Winther (2016), Appendix A.1 and A.2.
    """

    # Number of slices at every visit. Slices after the first cost little, because the mean given
    # the other values is known.
    n_slices: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("n_slices", self.n_slices, 1, MOST_SWEEPS)

    def advance(
        self, path: Any, state: NoisyValues, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[NoisyValues, MoveInfo]:
        """Move every member; see ``contracts.Kernel``."""
        z = state.z.copy()
        n, k = z.shape
        width = width_of(n)
        room = (
            aligned((k, width), np.float64),
            aligned((BLOCK, width), np.float64),
            aligned((3, width), np.float64),
            aligned((4, width), np.uint64),
        )
        signs = path.target.signs[state.order[:k]].astype(np.float64)
        orders = sweep_orders(k, self.n_sweeps)
        if self.backwards:
            orders = np.ascontiguousarray(orders[::-1, ::-1])
        _sweep(z, state.precision, signs, orders, self.n_slices, streams, room)
        return replace(state, z=z), MoveInfo(1.0, n * self.n_sweeps)


def sweep_orders(k: int, n_sweeps: int) -> NDArray[np.int64]:
    """Return the order of the values in each sweep, shape (n_sweeps, k)."""
    rng = np.random.default_rng(k)
    return np.stack([rng.permutation(k) for _ in range(n_sweeps)])


@njit
def _sweep(z, precision, signs, orders, n_slices, streams, room):
    """Move all members, some together."""
    values, products, extra, words = room
    k, width = values.shape
    for first in range(0, z.shape[0], width):
        here = min(width, z.shape[0] - first)
        for c in range(width):  # columns without a member repeat the first one
            member = first + (c if c < here else 0)
            for i in range(k):
                values[i, c] = z[member, i]
            for word in range(4):
                words[word, c] = streams[member, word]
        for sweep in range(orders.shape[0]):
            for start in range(0, k, products.shape[0]):
                visited = orders[sweep, start : start + products.shape[0]]
                multiply(precision, visited, values, products)
                for step in range(visited.size):
                    i = visited[step]
                    _draw_given(values[i], products[step], precision[i, i], signs[i], n_slices,
                          extra, words)  # fmt: skip
                    for later in range(step + 1, visited.size):
                        add(products[later], precision[i, visited[later]], extra[2])
        for c in range(here):
            for i in range(k):
                z[first + c, i] = values[i, c]
            for word in range(4):
                streams[first + c, word] = words[word, c]


@njit
def _draw_given(value, product, precision, sign, n_slices, extra, words):
    """Draw one value of each member given its other values (Appendix A.2).

    The ends of a slice are computed as distances from the value, and lose no digits where the mean
    is far on the other side of zero.
    """
    height, place, change = extra[0], extra[1], extra[2]
    variance = 1.0 / precision
    for m in range(value.size):
        change[m] = value[m]
    for _ in range(n_slices):
        _fill_uniform(words, height)
        _fill_uniform(words, place)
        for m in range(value.size):
            # distances from the mean, and of the ends of the slice from the value
            away = fused(precision, value[m] - change[m], product[m]) * variance
            square = -2.0 * variance * fast_log(height[m])
            far = abs(away)
            reach = sqrt(fused(far, far, square)) + far
            near = square / reach
            above = near if away > 0.0 else reach
            below = reach if away > 0.0 else near
            old = sign * value[m]
            # towards zero the slice ends there at the latest
            inwards = min(below if sign > 0.0 else above, old)
            outwards = above if sign > 0.0 else below
            value[m] = sign * fused(inwards + outwards, place[m], old - inwards)
    for m in range(value.size):
        change[m] = value[m] - change[m]


@njit
def _fill_uniform(words, out):
    """Draw one uniform number from each stream, as ``core.random.uniform`` does."""
    first, second, third, fourth = words[0], words[1], words[2], words[3]
    for m in range(out.size):
        word, first[m], second[m], third[m], fourth[m] = next_state(
            first[m], second[m], third[m], fourth[m]
        )
        out[m] = (nb.int64(word >> nb.uint64(12)) + 0.5) * _TWO_POW_MINUS_52
