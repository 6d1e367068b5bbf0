"""The path on which data points are added one by one."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.sums import dot
from pm_evidence.families.gp_classification.normal import excess
from pm_evidence.families.gp_classification.state import NoisyValues
from pm_evidence.paths.growing import GrowingPath

__all__ = ["DataPointPath"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DataPointPath(GrowingPath):
    """``f_k(z) = N(z; 0, K + I)`` of the first ``k`` data points, cut off at the signs of labels.

    Fraccaro, Paquet and Winther (2016), Eq. 10 and Appendix A.3. Densities are normalised without
    the labels, so that the normalising constant of ``f_k`` is the probability of the first ``k``
    labels, and log Z is the log evidence.

    Parameters
    ----------
    target : GPClassification
        The data, their order and covariance.
    """

    target: Any

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
        return NoisyValues(z, _grown(state.precision, row), state.order)

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


@njit
def _grown(precision, row):
    """Return the precision of one more point, whose row of the inverse factor is given."""
    k = row.size
    out = np.empty((k, k))
    for i in range(k):
        for j in range(k):
            out[i, j] = row[i] * row[j]
            if i < k - 1 and j < k - 1:
                out[i, j] += precision[i, j]
    return out
