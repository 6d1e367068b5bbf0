"""The multistate Bennett acceptance ratio: its equations, their solution and its covariance."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import described, float_array, whole_array
from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.codegen.vectors import fast_exp
from pm_evidence.core.numerics import dot, log_mean_exp, total
from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.estimators.errors import Clusters, Spread, Verdict, clusters, merged, unbiased
from pm_evidence.estimators.tempered import (
    LogZCurve,
    Tempered,
    check_potentials,
    concluded,
    no_support,
    tempered,
    without_curve,
)

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


_MAX_ITERATIONS = 500
# Newton's steps converge quadratically: after one of this size (nats) the rest is rounding.
_CONVERGED = 1e-9
# Steps of less than this size that no longer become smaller consist of rounding errors.
_STALLED = 1e-3
_ROUNDING = 1e-14  # of the gradient, relative to the root of the number of points
_TINY = 1e-300


def minimise(
    expected: Callable[[Floats], tuple[Floats, Floats]], counts: Floats, log_z: Floats
) -> tuple[Floats, Floats]:
    """Return log constants at which the expected counts are those observed.

    The log likelihood whose derivatives the equations are is concave. Its curvature along a line
    changes by no more than the factor ``exp(t)`` while two constants change by ``t`` relative to
    each other, so that a Newton step ``d`` scaled by ``log(1 + r) / r``, where
    ``r = max(d) - min(d)``, always increases it. If a step does not reduce the norm of the
    gradient, or the matrix is singular, a self-consistent iteration follows, which increases it
    too.
    """
    products = np.empty((len(counts), len(counts)))
    last_norm = last_size = np.inf
    for _ in range(_MAX_ITERATIONS):
        sums, products = expected(log_z)
        gradient = sums - counts
        norm = float(np.sqrt(np.sum(gradient**2 / counts)))
        if norm <= _ROUNDING * np.sqrt(counts.sum()):
            break
        step = _newton(gradient, products) if norm < last_norm else None
        if step is None:
            log_z = log_z + np.log(np.maximum(sums, _TINY) / counts)
            last_norm = last_size = np.inf
            continue
        size = float(np.ptp(step))
        if size < _STALLED and size > 0.5 * last_size:
            break
        log_z = log_z + step * (np.log1p(size) / size if size > 0.0 else 1.0)
        if size < _CONVERGED:
            break
        last_norm, last_size = norm, size
    return log_z, products


def _newton(gradient: Floats, products: Floats) -> Floats | None:
    """Return the Newton step of ``log_z``, whose first entry is held; None if there is none."""
    matrix = laplacian(products)[1:, 1:]
    root = np.sqrt(np.maximum(np.diag(matrix), _TINY))
    step = np.zeros(len(gradient))
    try:
        step[1:] = np.linalg.solve(matrix / np.outer(root, root), gradient[1:] / root) / root
    except np.linalg.LinAlgError:
        return None
    return step if np.isfinite(step).all() and gradient @ step >= 0.0 else None


def laplacian(products: Floats) -> Floats:
    """Return the second derivatives of minus the log likelihood.

    They are ``diag(sum_n p[n, k]) - sum_n p[n, j] p[n, k]``, the Laplacian of a graph: rows add up
    to zero because the probabilities of a point add up to one. So the diagonal is computed from the
    rest of its row, without cancellation where states hardly overlap.
    """
    edges = products.copy()
    np.fill_diagonal(edges, 0.0)
    matrix: Floats = np.diag(edges.sum(axis=1)) - edges
    return matrix


# A potential for infinity: exp(-x) is zero from 750 on, and sums of such numbers stay finite.
_HUGE = 1e300
_TILE = 256  # points at a time: a tile of 100 states fits into the second level of the cache
# Shares of a point below exp(-45) are left out: a billion of them add up to less than 1e-10.
_NEGLIGIBLE = -45.0


def finite_potentials(potential: Floats) -> Floats:
    """Return potentials with infinity replaced by a huge number, in contiguous memory."""
    return np.ascontiguousarray(np.where(np.isposinf(potential), _HUGE, potential))


@njit
def _row(base: Any, k: Any) -> Any:
    return base[min(k, base.shape[0] - 1)]


@njit
def moments(scale: Any, base: Any, offset: Any, member: Any) -> Any:
    """Return the sums over points of the shares of the states of a mixture, and their products.

    The share of state ``k`` at point ``n`` is ``p[n, k] = exp(offset[k] - u_k(x_n)) / D_n``, where
    ``D_n`` is the sum of the numerators of the states that are a ``member``, which is 1 or 0.
    """
    n_states = len(scale)
    sums, products = np.zeros(n_states), np.zeros((n_states, n_states))
    tile, top, density = np.empty((n_states, _TILE)), np.empty(_TILE), np.empty(_TILE)
    for start in range(0, base.shape[1], _TILE):
        m = min(start + _TILE, base.shape[1]) - start
        low, high = 0, n_states
        if len(base) == 1:
            low, high = _active_states(scale, base[0, start : start + m], offset)
        top[:], density[:] = -np.inf, 0.0
        for k in range(low, high):
            row = _row(base, k)
            for n in range(m):
                weight = offset[k] - scale[k] * row[start + n]
                tile[k, n] = weight
                top[n] = max(top[n], weight)
        for k in range(low, high):
            for n in range(m):
                share = fast_exp(tile[k, n] - top[n])
                tile[k, n] = share
                density[n] += member[k] * share
        for n in range(m):
            density[n] = 1.0 / density[n]
        for i in range(low, high):
            for n in range(m):
                tile[i, n] *= density[n]
            row = tile[i, :m]
            sums[i] += total(row)
            for j in range(low, i + 1):
                products[i, j] += dot(row, tile[j, :m])
    for i in range(n_states):
        for j in range(i):
            products[j, i] = products[i, j]
    return sums, products


@njit
def _active_states(scale: Any, energy: Any, offset: Any) -> Any:
    """Return the range of states of a ladder outside of which all shares are negligible.

    The log share of state ``k`` is at most the difference of its log weight and that of any other
    state, here the one with the largest share in the middle; it is monotone in the energy. With 20
    to 200 temperatures `mbar` takes half the time for it.
    """
    best, least, largest = 0, energy.min(), energy.max()
    weights = offset - scale * energy[energy.size // 2]
    for k in range(len(scale)):
        if weights[k] > weights[best]:
            best = k
    low, high = best, best + 1
    for k in range(len(scale)):
        rate = scale[k] - scale[best]
        if offset[k] - offset[best] - min(rate * least, rate * largest) > _NEGLIGIBLE:
            low, high = min(low, k), max(high, k + 1)
    return low, high


@njit
def log_mixture(scale: Any, base: Any, offset: Any) -> Any:
    """Return ``log sum_k exp(offset[k] - u_k(x_n))`` of every point, shape ``(n,)``."""
    n = base.shape[1]
    out = np.empty(n)
    density = np.empty(_TILE)
    for start in range(0, n, _TILE):
        m = min(start + _TILE, n) - start
        top = out[start : start + m]
        for i in range(m):
            top[i], density[i] = -np.inf, 0.0
        for k in range(len(scale)):
            row = _row(base, k)[start : start + m]
            for i in range(m):
                top[i] = max(top[i], offset[k] - scale[k] * row[i])
        for k in range(len(scale)):
            row = _row(base, k)[start : start + m]
            for i in range(m):
                density[i] += fast_exp(offset[k] - scale[k] * row[i] - top[i])
        for i in range(m):
            top[i] += np.log(density[i])
    return out


@njit
def log_columns(scale: Any, base: Any, log_density: Any) -> Any:
    """Return ``log sum_n exp(-u_k(x_n) - log_density[n])`` of every state, shape ``(n_states,)``.

    These are estimates of the log normalising constants if the points have that density, up to the
    number of points.
    """
    out, weight = np.empty(len(scale)), np.empty(base.shape[1])
    for k in range(len(scale)):
        row, top = _row(base, k), -np.inf
        for n in range(weight.size):
            weight[n] = -scale[k] * row[n] - log_density[n]
            top = max(top, weight[n])
        for n in range(weight.size):
            weight[n] = fast_exp(weight[n] - top)
        out[k] = top + np.log(total(weight))
    return out


@njit
def cluster_sums(scale: Any, base: Any, offset: Any, log_density: Any, cluster: Any) -> Any:
    """Return ``sum_n exp(offset[k] - u_k(x_n) - log_density[n])`` over each cluster's points."""
    out, weight = np.zeros((cluster.max() + 1, len(scale))), np.empty(base.shape[1])
    for k in range(len(scale)):
        row = _row(base, k)
        for n in range(weight.size):
            weight[n] = fast_exp(offset[k] - scale[k] * row[n] - log_density[n])
        for n in range(weight.size):
            out[cluster[n], k] += weight[n]
    return out


@njit
def projections(scale: Any, base: Any, offset: Any, log_density: Any, vector: Any) -> Any:
    """Return ``sum_k vector[k] exp(offset[k] - u_k(x_n) - log_density[n])``, shape ``(n,)``."""
    out = np.zeros(base.shape[1])
    for k in range(len(scale)):
        row = _row(base, k)
        for n in range(out.size):
            out[n] += vector[k] * fast_exp(offset[k] - scale[k] * row[n] - log_density[n])
    return out


_FIRST = 2  # self-consistent iterations that come first if nothing is known
# With fewer points that could be of either of two sets of states, errors do not have their coverage
# (as for two states, see `bar`).
LEAST_COMMON = 10.0
_NOTHING = 1e-9  # such points, below which there is no error to speak of


@dataclass(frozen=True)
class Multistate:
    """The solution of the equations, with what its errors are made from."""

    scale: Floats  # reduced potentials, see `mixture`
    base: Floats
    state: Whole  # shape (n,): state that every point was drawn from
    counts: Whole  # shape (n_states,): number of points drawn from every state
    log_z: Floats  # shape (n_states,): log normalising constants in nats, up to a constant
    # shape (n_states, n_states): ``sum_n w[n, j] w[n, k]`` of the weights ``w[n, k] = exp(-u_k(x_n)
    # - log_z[k]) / D_n``, where ``D_n = sum_k counts[k] exp(-u_k(x_n) - log_z[k])``
    products: Floats
    dependence: Clusters | None  # which points depend on each other; None if none do

    @cached_property
    def sampled(self) -> NDArray[np.intp]:
        """States that points were drawn from, shape ``(n_sampled,)``."""
        return np.flatnonzero(self.counts)

    @cached_property
    def log_density(self) -> Floats:
        """``log D_n`` of every point, shape ``(n,)``."""
        s = self.sampled
        offset = np.log(self.counts[s]) - self.log_z[s]
        found: Floats = log_mixture(self.scale[s], _rows(self.base, s), offset)
        return found

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

        Shirts and Chodera (2008), Eq. 8, ``W' (I - W N W')^+ W`` with ``W`` the weights and ``N``
        the counts, here from the inverse of a matrix of the size of the number of states.
        """
        s = self.sampled
        theta = self.products + self._response @ (self.counts[s, None] * self.products[s])
        covariance: Floats = theta - theta[0] - theta[:, :1] + theta[0, 0]
        return 0.5 * (covariance + covariance.T)

    def influence(self, k: int) -> Floats:
        """Return the influence of every point on ``log_z[k] - log_z[0]`` in nats, shape ``(n,)``.

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
        s, n = self.sampled, int(index.max()) + 1
        weights = cluster_sums(self.scale, self.base, -self.log_z, self.log_density, index)
        drawn = np.zeros((n, len(self.counts)))
        np.add.at(drawn, (index, self.state), 1.0)
        score = weights[:, s] * self.counts[s] - drawn[:, s]
        values = weights + score @ self._response.T
        values = values - values[:, :1]
        values = values - values.mean(axis=0)
        return values.T @ values * unbiased(n), max(n - 1.0, 1.0)

    def curve(self) -> LogZCurve:
        """Return the constants of all states relative to the first, with their covariance."""
        log_z = self.log_z - self.log_z[0]
        if self.dependence is None:
            return LogZCurve(log_z, self.covariance())
        return LogZCurve(log_z, *self.clustered_covariance(self.dependence))

    def estimate(self, name: str) -> LogEvidence:
        """Return the constant of the last state relative to the first."""
        last = len(self.counts) - 1
        value = float(self.log_z[last] - self.log_z[0])
        if self.dependence is None:
            variance = np.maximum(self.covariance()[last, last], 0.0)
            found = Spread(float(np.sqrt(variance)), np.inf)
        else:
            found = self.dependence.spread(self.influence(last))
        return concluded(name, value, found, self._verdicts())

    def _verdicts(self) -> Iterator[Verdict]:
        """Yield the verdicts on whether points of neighbouring states overlap."""
        common, most, lower = self.narrowest
        if common < min(LEAST_COMMON, 0.5 * most):
            upper = np.setdiff1d(self.sampled, lower)
            yield (
                Status.NO_OVERLAP,
                f"the samples of {self._span(lower)} and of {self._span(upper)} hardly overlap "
                f"(about {common:.1f} samples could be of either): the error cannot be trusted. "
                "Use states between them, or more samples.",
            )
        for k in (0, len(self.counts) - 1):
            effective = 1.0 / float(self.products[k, k])
            if not self.counts[k] and effective < LEAST_COMMON:
                yield (
                    Status.NO_OVERLAP,
                    f"no sample was drawn from {self._label(k)}, and only about {effective:.1f} of "
                    "the others would be typical of it: the error cannot be trusted. Draw samples "
                    "from it.",
                )

    def _label(self, k: int) -> str:
        return f"beta={self.scale[k]:.4g}" if len(self.base) == 1 else f"state {k}"

    def _span(self, states: Whole) -> str:
        ends = dict.fromkeys(map(self._label, (int(states[0]), int(states[-1]))))
        return " to ".join(ends)

    @cached_property
    def narrowest(self) -> tuple[float, float, Whole]:
        """The smallest overlap of two sets of states.

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
    scale: Floats,
    base: Floats,
    state: Whole,
    counts: Whole,
    dependence: Clusters | None,
    start: Floats | None = None,
) -> Multistate:
    """Solve the equations of the multistate Bennett acceptance ratio.

    Shirts and Chodera (2008), Eq. 11 and appendix C; Tan, Gallicchio, Lapelosa and Levy (2012); see
    `minimise` for the steps.
    """
    s, rest = np.flatnonzero(counts), np.flatnonzero(counts == 0)
    if len(base) == 1:  # points with similar energies share the states that matter to them
        order = np.argsort(base[0], kind="stable")
        points = np.ascontiguousarray(base[:, order])
    else:
        points = base
    own, log_n, everyone = (scale[s], _rows(points, s)), np.log(counts[s]), np.ones(len(s))
    if start is None:
        begin = np.zeros(len(s))
        for _ in range(_FIRST):
            begin = log_columns(*own, log_mixture(*own, log_n - begin))
    else:
        begin = start[s]
    log_z = np.zeros(len(counts))

    def expected(constants: Floats) -> tuple[Floats, Floats]:
        found: tuple[Floats, Floats] = moments(*own, log_n - constants, everyone)
        return found

    log_z[s], shares = minimise(expected, counts[s].astype(np.float64), begin)
    n = np.maximum(counts, 1).astype(np.float64)
    if rest.size:
        mixed = log_mixture(*own, log_n - log_z[s])
        log_z[rest] = log_columns(scale[rest], _rows(points, rest), mixed)
        _, shares = moments(scale, points, np.log(n) - log_z, (counts > 0).astype(np.float64))
    products = shares / np.outer(n, n)
    return Multistate(scale, base, state, counts, log_z, products, dependence)


def _rows(base: Floats, states: NDArray[np.intp]) -> Floats:
    return base if len(base) == 1 else base[states]


def mbar(
    beta: ArrayLike, energy: ArrayLike, rung: ArrayLike, *, groups: ArrayLike | None = None
) -> LogEvidence:
    """Estimate log Z from the states of chains at several temperatures.

    Parameters
    ----------
    beta : array_like of float64, shape (n_temperatures,)
        Inverse temperatures, rising from 0 to 1.
    energy : array_like of float64, shape (n_iterations, n_chains) or (n,)
        Minus the derivative of the log density by ``beta`` at every state, in nats; minus the log
        likelihood on a geometric path. ``inf`` (likelihood zero) is legal at ``beta = 0``.
    rung : array_like of int, of the same shape
        Index of the temperature at which every state was drawn.
    groups : array_like of int, shape (n_chains,) or (n,), optional
        Independent group of each chain (ladders of parallel tempering, for instance), or of each
        state of a flat array. By default every chain is a group; the states of a flat array are
        taken as independent.

    Returns
    -------
    LogEvidence
        Estimate of the log normalising constant at ``beta = 1`` relative to ``beta = 0``. Its
        interval is a Student interval from the groups or, for independent states, a normal one.

    Raises
    ------
    ValueError
        If ``beta`` does not rise from 0 to 1, the shapes differ, an energy is NaN, minus infinity
        or, at ``beta`` above 0, infinite, or an index is out of range.

    See Also
    --------
    mbar_curve : The constants at all temperatures.
    multistate : The same for densities that are no powers of each other.

    Notes
    -----
    Shirts and Chodera (2008), Eq. 11; also known as UWHAM (Tan, Gallicchio, Lapelosa and Levy 2012,
    where its likelihood is derived) and as reverse logistic regression (Geyer 1994). Consistent for
    fixed and for random numbers of states at each temperature, and among the estimators that only
    use the energies the one with the smallest asymptotic variance for independent states. A
    temperature without states is allowed; but where the likelihood can be zero, only states at
    ``beta = 0`` show how often it is.

    For independent states the error is the asymptotic one of Shirts and Chodera, Eq. 8. For chains
    it is the root of the sum of squares of influence values that are added up over groups or, if
    there are fewer than eight groups, over batches that are long compared with the autocorrelation
    time. It cannot be trusted if fewer than about ten states could be of either of two sets of
    temperatures (status ``"no_overlap"``).

    The potentials are not stored: memory is linear in the number of states.

    Examples
    --------
    A normal prior and a normal likelihood: ``Z`` is ``(1 + 9 beta) ** -0.5`` exactly.

    >>> import numpy as np
    >>> rng, beta = np.random.default_rng(1), np.linspace(0.0, 1.0, 5)
    >>> rung = np.tile(np.arange(5), 1000)
    >>> x = rng.normal(size=5000) / np.sqrt(1.0 + 9.0 * beta[rung])
    >>> mbar(beta, 4.5 * x**2, rung)  # exactly -0.5 log(10) = -1.151
    LogEvidence(value=-1.135, mcse=0.023, estimator="mbar", status="ok")
    """
    states = tempered(beta, energy, rung, groups)
    if not states.alive:
        return no_support("mbar")
    return _of_ladder(states, groups is None and np.ndim(energy) == 1).estimate("mbar")


def mbar_curve(
    beta: ArrayLike, energy: ArrayLike, rung: ArrayLike, *, groups: ArrayLike | None = None
) -> LogZCurve:
    """Estimate the log normalising constants at all temperatures; see `mbar`.

    Parameters
    ----------
    beta, energy, rung, groups
        As for `mbar`.

    Returns
    -------
    LogZCurve
        Log normalising constants relative to ``beta = 0`` in nats, with their covariance.

    Raises
    ------
    ValueError
        As `mbar`, and if every energy is infinite.

    Examples
    --------
    >>> import numpy as np
    >>> rng, beta = np.random.default_rng(1), np.linspace(0.0, 1.0, 3)
    >>> rung = np.tile(np.arange(3), 4000)
    >>> x = rng.normal(size=12_000) / np.sqrt(1.0 + 9.0 * beta[rung])
    >>> mbar_curve(beta, 4.5 * x**2, rung).log_z.round(2)  # exactly 0, -0.85, -1.15
    array([ 0.  , -0.86, -1.16])
    """
    states = tempered(beta, energy, rung, groups)
    if not states.alive:
        raise without_curve("energy")
    return _of_ladder(states, groups is None and np.ndim(energy) == 1).curve()


def multistate(
    potential: ArrayLike, counts: ArrayLike, *, groups: ArrayLike | None = None
) -> LogEvidence:
    """Estimate the log ratio of two normalising constants from samples of any densities.

    Parameters
    ----------
    potential : array_like of float64, shape (n_states, n)
        Reduced potentials, that is minus unnormalised log densities in nats: of every state in the
        rows, at every sample in the columns. Samples are in the order of the states that they were
        drawn from. ``inf`` is legal where a sample is outside the support of another state.
    counts : array_like of int, shape (n_states,)
        Number of samples that were drawn from each state; may be zero.
    groups : array_like of int, shape (n,), optional
        Independent group of each sample; by default all samples are independent. The samples of a
        group stand in the order in which they were drawn.

    Returns
    -------
    LogEvidence
        Estimate of the log normalising constant of the last state relative to the first.

    Raises
    ------
    ValueError
        If shapes and counts do not fit, a potential is NaN or minus infinity, a sample has an
        infinite potential in the state that it was drawn from, or a state at all samples.

    See Also
    --------
    mbar : The same for a ladder of temperatures, without a table of potentials.

    Notes
    -----
    As for `mbar`. The arguments are those of pymbar (``u_kn`` and ``N_k``), and values and errors
    without ``groups`` agree with it.

    Examples
    --------
    >>> import numpy as np
    >>> rng, sd = np.random.default_rng(1), np.array([1.0, 0.5, 0.25])
    >>> x = rng.normal(size=3000) * np.repeat(sd, 1000)
    >>> multistate(0.5 * (x / sd[:, None]) ** 2, [1000, 1000, 1000])  # exactly log(0.25) = -1.386
    LogEvidence(value=-1.381, mcse=0.030, estimator="multistate", status="ok")
    """
    return _of_table(potential, counts, groups).estimate("multistate")


def multistate_curve(
    potential: ArrayLike, counts: ArrayLike, *, groups: ArrayLike | None = None
) -> LogZCurve:
    """Estimate the log normalising constants of all states; see `multistate`.

    Parameters
    ----------
    potential, counts, groups
        As for `multistate`.

    Returns
    -------
    LogZCurve
        Log normalising constants relative to the first state in nats, with their covariance.
        ``difference(j, i)`` gives the log ratio of two of them with its standard error.

    Raises
    ------
    ValueError
        As `multistate`.
    """
    return _of_table(potential, counts, groups).curve()


def _of_ladder(states: Tempered, independent: bool) -> Multistate:
    base, dependence = finite_potentials(states.energy)[None], states.clusters
    known = None if independent else dependence
    return solve(states.beta, base, states.rung, states.counts, known, _stepping(states))


def _stepping(states: Tempered) -> Floats:
    """Return log normalising constants by stepping stones: a start for the solution.

    The mean energy at the reference may be dominated by a few states of a vague prior, so that
    integrating it would start far from the solution.
    """
    log_z, here = np.zeros(len(states.beta)), 0
    for k in range(1, len(states.beta)):
        energy = states.energy[states.at(here)]
        log_z[k] = log_z[here]
        if np.isfinite(energy).any():
            log_z[k] += log_mean_exp(-(states.beta[k] - states.beta[here]) * energy)
        if states.counts[k]:
            here = k
    return log_z


def _of_table(potential: ArrayLike, counts: ArrayLike, groups: ArrayLike | None) -> Multistate:
    table, n = _checked_table(potential, counts)
    state = np.repeat(np.arange(len(n)), n)
    own = table[state, np.arange(len(state))]
    if not np.isfinite(own).all():
        k = int(state[np.argmin(np.isfinite(own))])
        raise ValueError(
            f"potential must be finite where a sample was drawn from, got inf in state {k} at one "
            "of its own samples; order the samples by state."
        )
    barren = np.flatnonzero(~np.isfinite(table).any(axis=1))
    if barren.size:
        raise ValueError(
            f"potential must be finite at one sample or more of every state, got inf at all in "
            f"state {barren[0]}; leave the state out."
        )
    dependence = None if groups is None else clusters(state.shape, groups)
    return solve(np.ones(len(n)), finite_potentials(table), state, n, dependence)


def _checked_table(potential: ArrayLike, counts: ArrayLike) -> tuple[Floats, NDArray[np.int64]]:
    """Return potentials and counts; raise ValueError where they are unusable."""
    table, n = float_array("potential", potential), whole_array("counts", counts)
    if table.ndim != 2 or len(table) < 2 or table.shape[1] == 0:
        raise ValueError(
            "potential must have shape (n_states, n) with at least two states and one sample, got "
            f"shape {table.shape}; pass the potential of every state at every sample."
        )
    check_potentials("potential", table)
    if n.ndim != 1 or n.size < 2 or n.min() < 0:
        raise ValueError(
            "counts must be a row of numbers of samples, one for each of at least two states, got "
            f"{described(n)}; count the columns of potential by the state they were drawn from."
        )
    if table.shape != (n.size, n.sum()):
        raise ValueError(
            f"potential must have a row for each of {n.size} counts and as many columns as counts "
            f"add up to, {n.sum()}, got shape {table.shape}; transpose it, or count again."
        )
    return table, n
