"""The equations of the multistate Bennett acceptance ratio: their solution and its covariance."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pm_evidence.estimators.clusters import Clusters, merged
from pm_evidence.estimators.mixture import (
    cluster_sums,
    log_columns,
    log_mixture,
    moments,
    projections,
)
from pm_evidence.estimators.newton import laplacian, minimise

__all__ = ["LEAST_COMMON", "Multistate", "solve"]

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

_FIRST = 2  # self-consistent iterations that come first if nothing is known
# With fewer points that could be of either of two sets of states, errors do not have their coverage
# (as for two states, see `bar`).
LEAST_COMMON = 10.0
_NOTHING = 1e-9  # such points, below which there is no error to speak of


@dataclass(frozen=True)
class Multistate:
    """The solution of the equations, with what its errors are made from.

    Parameters
    ----------
    scale, base : ndarray, shapes (n_states,) and (1 or n_states, n)
        Reduced potentials, see `mixture`.
    state : ndarray of int64, shape (n,)
        State that every point was drawn from.
    counts : ndarray of int64, shape (n_states,)
        Number of points drawn from every state.
    log_z : ndarray, shape (n_states,)
        Log normalising constants in nats, up to a constant.
    products : ndarray, shape (n_states, n_states)
        ``sum_n w[n, j] w[n, k]`` of the weights ``w[n, k] = exp(-u_k(x_n) - log_z[k]) / D_n``,
        where ``D_n = sum_k counts[k] exp(-u_k(x_n) - log_z[k])``.
    """

    scale: Floats
    base: Floats
    state: Whole
    counts: Whole
    log_z: Floats
    products: Floats

    @cached_property
    def sampled(self) -> NDArray[np.intp]:
        """States that points were drawn from, shape ``(n_sampled,)``."""
        return np.flatnonzero(self.counts)

    @cached_property
    def log_density(self) -> Floats:
        """``log D_n`` of every point, shape ``(n,)``."""
        s = self.sampled
        offset = np.log(self.counts[s]) - self.log_z[s]
        return log_mixture(self.scale[s], _rows(self.base, s), offset)

    @cached_property
    def hessian(self) -> Floats:
        """Second derivatives of minus the log likelihood, shape ``(n_sampled, n_sampled)``.

        It is the Laplacian of a graph, whose edge between two states is the expected number of
        points that could be of either.
        """
        n = self.counts[self.sampled].astype(np.float64)
        return laplacian(self.products[np.ix_(self.sampled, self.sampled)] * np.outer(n, n))

    @cached_property
    def _response(self) -> Floats:
        """Change of ``-log_z`` per unit of the score of every sampled state.

        Shape ``(n_states, n_sampled)``. The constant of the first sampled state is held.
        """
        s = self.sampled
        inverse = np.zeros((len(s), len(s)))
        if self.narrowest[0] > _NOTHING:
            inverse[1:, 1:] = np.linalg.inv(self.hessian[1:, 1:])
        else:
            inverse[:] = np.nan
        response: Floats = (self.products[:, s] * self.counts[s]) @ inverse
        return response

    def covariance(self) -> Floats:
        """Return the asymptotic covariance of ``log_z - log_z[0]`` for independent points.

        Notes
        -----
        Shirts and Chodera (2008), Eq. 8, ``W' (I - W N W')^+ W`` with ``W`` the weights and ``N``
        the counts, here from the inverse of a matrix of the size of the number of states.
        """
        s = self.sampled
        theta = self.products + self._response @ (self.counts[s, None] * self.products[s])
        covariance: Floats = theta - theta[0] - theta[:, :1] + theta[0, 0]
        return 0.5 * (covariance + covariance.T)

    def influence(self, k: int) -> Floats:
        """Return the influence of every point on ``log_z[k] - log_z[0]`` in nats, shape ``(n,)``.

        Notes
        -----
        The estimates solve ``sum_n w[n, k] = 1``. A further point changes the sum by its own
        weight, and the denominators by ``exp(-u_i - log_z[i])`` of the state ``i`` that it was
        drawn from; the changes of ``log_z`` make up for both. So the influence also holds if the
        number of points at each state is random.
        """
        s = self.sampled
        vector = np.zeros(len(self.counts))
        response = self._response[k] - self._response[0]
        vector[s] = response * self.counts[s]
        vector[k] += 1.0
        vector[0] -= 1.0
        weighted = projections(self.scale, self.base, -self.log_z, self.log_density, vector)
        of_state = np.zeros(len(self.counts))
        of_state[s] = response
        values: Floats = weighted - of_state[self.state]
        return values - values.mean()

    def clustered_covariance(self, clusters: Clusters) -> tuple[Floats, float]:
        """Return the covariance of ``log_z - log_z[0]`` and its degrees of freedom.

        It is the sum over clusters of products of their influence.
        """
        index = merged(clusters.index(self.influence(len(self.counts) - 1)))
        s = self.sampled
        n_clusters = int(index.max()) + 1
        if n_clusters < 2:
            return np.full((len(self.counts), len(self.counts)), np.nan), 1.0
        weights = cluster_sums(self.scale, self.base, -self.log_z, self.log_density, index)
        drawn = np.zeros((n_clusters, len(self.counts)))
        np.add.at(drawn, (index, self.state), 1.0)
        score = weights[:, s] * self.counts[s] - drawn[:, s]
        values = weights + score @ self._response.T
        values = values - values[:, :1]
        values = values - values.mean(axis=0)
        return values.T @ values * n_clusters / (n_clusters - 1), n_clusters - 1.0

    @cached_property
    def narrowest(self) -> tuple[float, float, Whole]:
        """The smallest overlap of two sets of states.

        Returns
        -------
        common : float
            Expected number of points that could be of either set.
        most : float
            This number if the densities of both sets were the same.
        lower : ndarray of int64
            States of one of the sets.

        Notes
        -----
        States are ordered by the eigenvector of the second smallest eigenvalue of the normalised
        Laplacian (Fiedler 1973), which is the order of a ladder, and every cut of this order is
        tried. The cut is the one whose number is the smallest share of what it needs.
        """
        n = self.counts[self.sampled].astype(np.float64)
        if len(n) < 2:
            return np.inf, np.inf, self.sampled
        root = np.sqrt(n)
        _, vectors = np.linalg.eigh(self.hessian / np.outer(root, root))
        order = np.argsort(vectors[:, 1] / root, kind="stable")
        if order[0] > order[-1]:
            order = order[::-1]
        below = np.cumsum(n[order])[:-1]
        most = below * (n.sum() - below) / n.sum()
        blocks = self.hessian[np.ix_(order, order)].cumsum(axis=0).cumsum(axis=1)
        common = np.maximum(np.diag(blocks)[:-1], 0.0)
        worst = int(np.argmin(common / np.minimum(2.0 * LEAST_COMMON, most)))
        lower: Whole = np.sort(self.sampled[order[: worst + 1]])
        return float(common[worst]), float(most[worst]), lower


def solve(
    scale: Floats, base: Floats, state: Whole, counts: Whole, start: Floats | None = None
) -> Multistate:
    """Solve the equations of the multistate Bennett acceptance ratio.

    Parameters
    ----------
    scale, base, state, counts
        As for `Multistate`.
    start : ndarray, shape (n_states,), optional
        Log normalising constants to start from, in nats; by default two self-consistent
        iterations from zero.

    Notes
    -----
    Shirts and Chodera (2008), Eq. 11 and appendix C; Tan, Gallicchio, Lapelosa and Levy (2012); see
    `minimise` for the steps.
    """
    s, rest = np.flatnonzero(counts), np.flatnonzero(counts == 0)
    if len(base) == 1:  # points with similar energies share the states that matter to them
        order = np.argsort(base[0], kind="stable")
        points = np.ascontiguousarray(base[:, order])
    else:
        points = base
    own = scale[s], _rows(points, s)
    log_n = np.log(counts[s])
    if start is None:
        begin = np.zeros(len(s))
        for _ in range(_FIRST):
            begin = log_columns(*own, log_mixture(*own, log_n - begin))
    else:
        begin = start[s]
    log_z = np.zeros(len(counts))

    def expected(constants: Floats) -> tuple[Floats, Floats]:
        return moments(*own, log_n - constants)

    log_z[s], shares = minimise(expected, counts[s].astype(np.float64), begin)
    if rest.size:
        mixed = log_mixture(*own, log_n - log_z[s])
        log_z[rest] = log_columns(scale[rest], _rows(points, rest), mixed)
        member = (counts > 0).astype(np.float64)
        offset = np.log(np.maximum(counts, 1)) - log_z
        _, shares = moments(scale, points, offset, member)
    n = np.maximum(counts, 1).astype(np.float64)
    return Multistate(scale, base, state, counts, log_z, shares / np.outer(n, n))


def _rows(base: Floats, states: NDArray[np.intp]) -> Floats:
    return base if len(base) == 1 else base[states]
