"""Nearly normal approximations of a posterior at fixed values of a few hyperparameters."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from math import inf, log, pi
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core import numerics
from pm_evidence.core.exceptions import ModelError
from pm_evidence.core.numerics import Pattern
from pm_evidence.core.shape import Shape, SparseShape, conditioned
from pm_evidence.kernels.ascent import climb
from pm_evidence.paths.geometric import Posterior
from pm_evidence.references.mixture import StudentFit
from pm_evidence.targets.plates.curvature import Curvature, coloured

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]
Bools = NDArray[np.bool_]
Indices = NDArray[np.int64]

# Elements count as zero if they are smaller, in units of the largest ones of row and column.
_ZERO = 1e-9
# Matrices of fewer rows are not worth it, nor are those that need more than this share of their
# columns, or whose factor has more elements.
_LEAST_ROWS, _LARGEST_SHARE, _MOST_ELEMENTS = 20, 0.5, 45_000
# Largest number of divisions into columns of their own and others that are tried, and of groups of
# directions that hardly overlap.
_DIVISIONS, _MOST_DIRECTIONS = 12, 32


@dataclass(frozen=True, slots=True)
class Sparsity:
    """How a symmetric matrix is measured and factorised, most of whose elements are zero."""

    # shape (m,): rows in the order in which they are eliminated: that of all other arrays
    order: Indices
    group: Indices  # shape (m,): groups of columns, which are measured at once
    # shape (m,): groups of rows that are as far from each other in the graph of the matrix as some
    # thirty groups allow. Columns of the inverse that belong to rows of one group hardly overlap.
    apart: Indices
    pattern: Pattern  # elements of the lower Cholesky factor
    # shape (m + n,): group and row, as a single index, from which the elements on the diagonal and
    # those of the pattern are read; -1 for elements that only the factor has
    source: Indices
    column: Indices  # shape (m + n,): columns of the group that these are the elements of

    @classmethod
    def of(cls, matrix: Floats) -> Self | None:
        """Return that of a symmetric matrix, shape ``(m, m)``; None if few elements are zero."""
        m = len(matrix)
        if m < _LEAST_ROWS or not np.isfinite(matrix).all():
            return None
        largest = np.abs(matrix).max(axis=1)
        graph: Bools = np.abs(matrix) > _ZERO * np.sqrt(largest[:, None] * largest)
        np.fill_diagonal(graph, True)
        group, apart = _grouped(graph)
        if group.max() + 1 > _LARGEST_SHARE * m:
            return None
        order, is_used = _eliminated(graph)
        pattern = Pattern.of(is_used)
        if pattern.row.size > _MOST_ELEMENTS:
            return None
        group, apart = group[order], apart[order]
        return cls(order, group, apart, pattern, *_sources(graph, order, group, pattern))

    @property
    def n_groups(self) -> int:
        """Number of groups of columns."""
        return int(self.group.max()) + 1

    def steps(self, lengths: Floats) -> Floats:
        """Return one step for each group, shape ``(n_groups, m)``, of given lengths."""
        return _steps(self.group, lengths)

    def directions(self) -> Floats:
        """Return one row of signs for each group of rows that are far apart, which are random.

        The signs are always the same. With the lower Cholesky factor ``L`` and the sum over all
        rows ``s``, ``inv(L).T @ s`` has the covariance ``inv(L @ L.T)`` on average.
        """
        return _signs(self.apart)

    def elements(self, products: Floats, lengths: Floats) -> tuple[Floats, Floats]:
        """Return the elements on the diagonal, and those of the pattern below it."""
        found = products.ravel()[self.source] / lengths[self.column]
        found[self.source < 0] = 0.0
        return found[: lengths.size], found[lengths.size :]


def _signs(group: Indices) -> Floats:
    return _steps(group, np.random.default_rng(group.size).choice((-1.0, 1.0), group.size))


def _steps(group: Indices, lengths: Floats) -> Floats:
    steps = np.zeros((int(group.max()) + 1, lengths.size))
    steps[group, np.arange(lengths.size)] = lengths
    return steps


def _grouped(graph: Bools) -> tuple[Indices, Indices]:
    """Return groups of columns, as few as are found, and groups of rows that are far apart."""
    from scipy import sparse  # importing SciPy takes as long as the package

    degree = graph.sum(axis=0)
    m = degree.size
    best = apart = np.arange(m)
    bounds = np.append(np.unique(degree)[::-1], 0)
    chosen = np.unique(np.linspace(0, bounds.size - 1, _DIVISIONS).astype(int))
    for bound in bounds[chosen]:
        alone = degree >= bound if bound else np.zeros(m, bool)
        rest = np.flatnonzero(~alone)
        among = sparse.csr_array(graph[np.ix_(rest, rest)].astype(np.int64))
        n_alone = m - rest.size
        if n_alone + among.sum(axis=0).max(initial=0) > best.max():
            continue
        reach = among @ among
        colour = coloured(reach)
        if n_alone + colour.max(initial=-1) < best.max():
            best = np.empty(m, np.int64)
            best[alone], best[rest] = np.arange(n_alone), n_alone + colour
            apart = best.copy()
            apart[rest] = n_alone + _far_apart(among, reach, colour)
    return best, apart


def _far_apart(graph: Any, reach: Any, colour: Indices) -> Indices:
    """Return colours of which two elements are as far from each other as their number allows."""
    n_reached = 0
    while reach.nnz > n_reached:
        n_reached = reach.nnz
        reach = (reach @ graph).sign()
        further = coloured(reach)
        if further.max(initial=-1) >= _MOST_DIRECTIONS:
            break
        colour = further
    return colour


def _eliminated(graph: Bools) -> tuple[Indices, Bools]:
    """Return an order of elimination and the used elements of the factor in that order.

    The row that is eliminated next is one with the fewest neighbours, which all become neighbours
    of each other (minimum degree, Rose 1972).
    """
    m = len(graph)
    used = graph.copy()
    left, order = np.ones(m, bool), np.empty(m, np.int64)
    degree = used.sum(axis=0)
    for step in range(m):
        j = int(np.argmin(np.where(left, degree, m + 1)))
        order[step], left[j] = j, False
        near = np.flatnonzero(used[j] & left)
        used[np.ix_(near, near)] = True
        degree[near] = (used[near] & left).sum(axis=1)
    return order, used[np.ix_(order, order)]


def _sources(
    graph: Bools, order: Indices, group: Indices, pattern: Pattern
) -> tuple[Indices, Indices]:
    """Return from which group and row elements are read, and the columns that they belong to."""
    m = order.size
    there = graph[np.ix_(order, order)]
    members = np.zeros((group.max() + 1, m), np.int64)
    np.add.at(members, group, there)
    row = np.append(np.arange(m), pattern.row)
    column = np.append(np.arange(m), pattern.column)
    direct = members[group[column], row] == 1
    read_row, read_column = np.where(direct, row, column), np.where(direct, column, row)
    source = np.where(there[row, column], group[read_column] * m + read_row, -1)
    return source, read_column


# Largest number of elements of a factor whose pattern is known, below the diagonal.
_MOST_KNOWN = 400_000
# Rows that meet so many times as many others as most rows do are in a group of their own.
_HUB = 10.0


@dataclass(frozen=True, slots=True)
class KnownSparsity:
    """How a matrix of second derivatives is factorised that the terms of a density give."""

    curvature: Curvature
    order: Indices  # shape (m,): variables in the order in which they are eliminated
    apart: Indices  # shape (m,): groups of rows of which columns of the inverse overlap little
    pattern: Pattern  # elements of the lower Cholesky factor
    place: Indices  # places of the pairs that differ in the pattern

    @classmethod
    def of(cls, curvature: Curvature) -> Self:
        """Return that with a fill-reducing order.

        ModelError is raised if the factor has too many elements.
        """
        from scipy import sparse  # importing SciPy takes as long as the package

        m = curvature.positions.size
        row, column = curvature.row[m:], curvature.column[m:]
        graph = sparse.csc_array((-np.ones(row.size), (row, column)), shape=(m, m))
        graph = graph + graph.T
        # a matrix of which no element of the factor is zero by chance
        graph = sparse.csc_array(graph + sparse.diags_array(1.0 - graph.sum(axis=0)))
        symmetric = {"diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
        found = sparse.linalg.splu(graph, permc_spec="MMD_AT_PLUS_A", **symmetric)
        n_elements = found.L.nnz - m
        if n_elements > _MOST_KNOWN:
            raise ModelError(
                f"too many variables depend on each other: the Cholesky factor of the second "
                f"derivatives of {m:,} variables has {n_elements:,} elements, more than "
                f"{_MOST_KNOWN:,}, which is too much for their approximation. Use a part of the "
                "data or fewer levels, or anneal all variables, which may take hours: pass "
                "method=pe.methods.SMC() and max_time."
            )
        lower = sparse.csc_array(found.L)
        lower.sort_indices()
        pattern = Pattern(
            lower.indptr - np.arange(m + 1), np.delete(lower.indices, lower.indptr[:-1])
        )
        at = found.perm_c.astype(np.int64)
        low, high = np.minimum(at[row], at[column]), np.maximum(at[row], at[column])
        place = np.searchsorted(pattern.column * m + pattern.row, low * m + high)
        order = np.argsort(at)
        return cls(curvature, order, _spread(graph)[order], pattern, place)

    @property
    def n_groups(self) -> int:
        """Number of points at which the terms are computed."""
        return self.curvature.n_points

    def directions(self) -> Floats:
        """Return one row of signs for each group; see ``Sparsity.directions``."""
        return _signs(self.apart)

    def elements(self, x: Floats, lengths: Floats) -> tuple[Floats, Floats]:
        """Return the elements on the diagonal, and those of the pattern below it, at a point."""
        m, natural = lengths.size, np.empty(lengths.size)
        natural[self.order] = lengths
        found = self.curvature.at(x, natural)
        below = np.zeros(self.pattern.row.size)
        below[self.place] = found[m:]
        return found[:m][self.order], below


def _spread(graph: Any) -> Indices:
    """Return groups of rows: a few that meet very many alone, and others that are far apart.

    Rows of a group are random where those that are far apart would make too many groups.
    """
    degree = np.diff(graph.indptr)
    hubs, rest = (np.flatnonzero(each) for each in _hubs(degree))
    among = abs(graph[rest][:, rest]).sign()
    found = np.empty(degree.size, np.int64)
    found[hubs] = np.arange(hubs.size)
    apart = np.random.default_rng(degree.size).integers(_MOST_DIRECTIONS, size=rest.size)
    while among.sum(axis=0).max(initial=0) <= _MOST_DIRECTIONS:
        among = (among @ among).sign()
        colour = coloured(among)
        if colour.max(initial=0) >= _MOST_DIRECTIONS:
            break
        apart = colour
    found[rest] = hubs.size + apart
    return found


def _hubs(degree: Indices) -> tuple[Bools, Bools]:
    """Return which rows meet far more others than most do, and which do not."""
    hubs: Bools = degree > _HUB * np.median(degree)
    if hubs.sum() > _MOST_DIRECTIONS // 2:
        hubs[:] = False
    return hubs, ~hubs


# Step of the finite differences in units of the scale of the curvature, or of the prior.
STEP = 1e-3
# Largest number of gradients that are computed at once, and of approximations that are made side by
# side: they bound the memory.
_MOST_ROWS, _SIDE_BY_SIDE = 256, 32
# Largest number of gradients of the first ascent, and of steps of Newton's method.
_MOST, _MOST_STEPS = 600, 40
# An ascent has converged if the gradient predicts a gain below this many nats. A step must gain a
# share of what it predicts, and is halved so many times at most.
_SETTLED, _SUFFICIENT, _HALVINGS = 1e-5, 1e-4, 12
# The curvature at a point is that at the peak if the gradient there predicts fewer nats.
_NEAR = 1e-4
# Bounds of the factor by which an old covariance is corrected after a step.
_FACTORS = 0.25, 4.0
# How often the scale of finite differences is corrected by more than the factor e, before they are
# right.
_CORRECTIONS, _CORRECTED = 4, 1.0
# Node of a quadrature with three points, and bounds of the variances that it gives.
_NODE, _VARIANCES = 3.0**0.5, (0.25, 4.0)


@dataclass(frozen=True, slots=True)
class ConditionalFit:
    """The normal approximation at some values of the hyperparameters."""

    values: Floats  # shape (k,): the hyperparameters
    # Location and scale of the other variables, of which there are ``m``
    shape: Shape | SparseShape
    slope: Floats  # shape (m, k): change of their peak with each hyperparameter
    # Log of the posterior density of the hyperparameters, up to a constant, in nats
    log_mass: float
    height: float  # log density at the peak of the other variables, in nats
    rise: Floats  # shape (k,): change of the height with each hyperparameter
    bend: Floats  # shape (k, k): second derivatives of the height
    # shape (m,): third derivatives of the log density in the coordinates in which the density is a
    # unit normal one, see ``references.nested.NestedNormal``
    skewness: Floats | None = None

    def predicted(self, values: Floats) -> Floats:
        """Return where the peak is at other values of the hyperparameters, shape ``(m,)``."""
        peak: Floats = self.shape.mean + (values - self.values) @ self.slope.T
        return peak

    def predicted_height(self, values: Floats) -> Floats:
        """Return the height at rows of other hyperparameters, shape ``(n,)``."""
        apart = values - self.values
        height: Floats = self.height + apart @ self.rise
        return height + 0.5 * ((apart @ self.bend) * apart).sum(axis=1)


# A computation that is suspended where it needs log densities and gradients: it yields the points,
# one in each row, and is sent both.
type Task[T] = Generator[Floats, tuple[Floats, Floats], T]


class ConditionalFits:
    """Makes normal approximations at values of the hyperparameters.

    Several are made side by side, so that the density is evaluated at many points in one call.
    """

    def __init__(
        self,
        posterior: Posterior,
        given: Positions,
        prior: Shape,
        *,
        may_be_dense: bool = True,
        known: KnownSparsity | None = None,
    ) -> None:
        self.posterior, self.given, self.prior = posterior, given, prior
        self.may_be_dense, self.n_evaluations = may_be_dense, 0
        self.rest = np.setdiff1d(np.arange(prior.mean.size), given)
        self.sparsity: Sparsity | KnownSparsity | None = known
        self._is_measured = known is not None
        if known is not None:
            self.rest = self.rest[known.order]

    @property
    def cost(self) -> int:
        """Number of gradients that an approximation takes, at least."""
        return self.rest.size if self.sparsity is None else self.sparsity.n_groups

    @property
    def scale(self) -> Floats:
        """Prior standard deviations of the hyperparameters, shape ``(k,)``."""
        scale: Floats = self.prior.factor[self.given, 0]
        return scale

    def first(self, point: Floats) -> ConditionalFit | None:
        """Return the approximation at the hyperparameters of a point, found by an ascent."""
        if self._is_measured and self.sparsity is None and not self.may_be_dense:
            return None
        lengths = self.prior.factor[self.rest, 0]
        if isinstance(self.sparsity, KnownSparsity):
            start = self.placed(point[self.given], np.zeros(self.rest.size))
            return self._run_together([self._climbed(start, lengths)])[0]
        factor = self.prior.factor.copy()
        factor[self.given] = 0.0  # hyperparameters stay where they are
        found = climb(self.posterior.target, point[None], Shape(self.prior.mean, factor), _MOST)
        self.n_evaluations += found.n_evaluations
        if not found.settled[0]:
            return None
        return self._run_together([self._climbed(found.x[0], lengths)])[0]

    def near(self, starts: Sequence[tuple[ConditionalFit, Floats]]) -> list[ConditionalFit | None]:
        """Return approximations, each from another one and at other hyperparameters."""
        return self._run_together([self._near(other, values) for other, values in starts])

    def _near(self, other: ConditionalFit, values: Floats) -> Task[ConditionalFit | None]:
        for rest in (other.predicted(values), other.shape.mean):
            start = self.placed(values, rest)
            found = yield from self._climbed(start, other.shape.lengths, other.shape)
            if found is not None:
                return found
        return None

    def placed(self, values: Floats, rest: Floats) -> Floats:
        """Return the point with some hyperparameters and other variables, shape ``(d,)``."""
        point = np.empty(self.prior.mean.size)
        point[self.given], point[self.rest] = values, rest
        return point

    def joint(self, fit: ConditionalFit, factor: Floats) -> StudentFit:
        """Return the normal density of all variables whose peaks move with the hyperparameters."""
        peak = self.placed(fit.values, fit.shape.mean)
        if isinstance(fit.shape, SparseShape):
            order = np.append(self.rest, self.given)
            return StudentFit(conditioned(fit.shape, peak, order, fit.slope, factor), inf)
        along = np.empty((peak.size, factor.shape[1]))
        along[self.given], along[self.rest] = factor, fit.slope @ factor
        covariance = along @ along.T
        covariance[np.ix_(self.rest, self.rest)] += fit.shape.factor @ fit.shape.factor.T
        return StudentFit(Shape(peak, np.linalg.cholesky(covariance)), inf)

    def divergence(self, at: ConditionalFit, predicting: ConditionalFit) -> float:
        """Return the divergence of a conditional density from another's prediction, in nats."""
        expected = replace(predicting.shape, mean=predicting.predicted(at.values))
        ratio = expected.whitened(expected.mean + at.shape.scaled(self._directions()))
        apart = expected.whitened(at.shape.mean[None])
        squares = float((ratio * ratio).sum() + (apart * apart).sum())
        return 0.5 * (squares - self.rest.size) - at.shape.log_volume + expected.log_volume

    def skewed(self, fits: Sequence[ConditionalFit]) -> list[tuple[ConditionalFit | None, float]]:
        """Return approximations about the means, with skewness, and what each of them gains.

        In coordinates ``z`` of covariance 1, in which the log density has third and fourth
        derivatives ``a`` and ``b`` along one of them, its mean is ``a / 2``, its variance ``1 + b /
        2 + a**2``, and the log of its mass is ``b / 8 + 5 a**2 / 24`` larger than that of the
        normal density. Gauss-Hermite quadrature with three points gives ``a`` and ``b``.
        """
        return self._run_together([self._skewed(fit) for fit in fits])

    def _skewed(self, fit: ConditionalFit) -> Task[tuple[ConditionalFit | None, float]]:
        shape = fit.shape if isinstance(fit.shape, SparseShape) else SparseShape.of(fit.shape)
        peak = self.placed(fit.values, fit.shape.mean)
        signs = self._directions()
        steps = np.zeros((len(signs), peak.size))
        steps[:, self.rest] = _NODE * shape.scaled(signs)
        _, gradients = yield np.concatenate([peak[None], peak + steps, peak - steps])
        above, below = np.split((gradients[1:] - gradients[0])[:, self.rest], 2)
        shift = shape.covariance_times((above + below).sum(axis=0, keepdims=True))[0]
        shift /= 2.0 * _NODE**2
        gain = 0.5 * float(shape.squared_distances(shape.mean + shift[None])[0])
        above, below = shape.whitened_slopes(above), shape.whitened_slopes(below)
        third = (np.abs(signs) * (above + below)).sum(axis=0) / _NODE**2
        fourth = 2.0 + (signs * (above - below)).sum(axis=0) / _NODE
        scale = np.sqrt(np.clip(1.0 + 0.5 * fourth + third**2, *_VARIANCES))
        if not (np.isfinite(shift).all() and np.isfinite(scale + third).all()):
            return None, gain
        moved = replace(shape, mean=shape.mean + shift).each_times(scale)
        log_mass = fit.log_mass + float((fourth / 8.0 + 5.0 * third**2 / 24.0).sum())
        return replace(fit, shape=moved, skewness=third, log_mass=log_mass), gain

    def excesses(self, fit: ConditionalFit, values: Floats) -> Floats:
        """Return by how much heights differ from what an approximation predicts, shape ``(n,)``.

        The height of a peak is found by one step of Newton's method from where it is predicted,
        with the curvature of the approximation. It is NaN where the density there is not finite.
        """
        if len(values) > _MOST_ROWS:
            first, others = values[:_MOST_ROWS], values[_MOST_ROWS:]
            return np.append(self.excesses(fit, first), self.excesses(fit, others))
        points = np.empty((len(values), self.prior.mean.size))
        points[:, self.given], points[:, self.rest] = values, fit.predicted(values)
        height, gradient = self._heights(points)
        slope = gradient[:, self.rest]
        found: Floats = height + 0.5 * (slope * fit.shape.covariance_times(slope)).sum(axis=1)
        found -= fit.predicted_height(values)
        found[~np.isfinite(found)] = np.nan
        return found

    def _directions(self) -> Floats:
        """Return rows of signs and zeros whose squares add up to 1 in each column.

        The rows are unit vectors, unless most second derivatives are zero.
        """
        return np.eye(self.rest.size) if self.sparsity is None else self.sparsity.directions()

    def _climbed(
        self, x: Floats, lengths: Floats, shape: Shape | SparseShape | None = None
    ) -> Task[ConditionalFit | None]:
        """Climb by Newton's method from a point with fixed hyperparameters; None if that fails.

        The curvature of another point, if one is given, is used while it is good enough. The
        lengths, shape (m,), are about the scales of the curvature along each variable.
        """
        is_here, is_old, last, factor = False, shape is not None, inf, 1.0
        height, gradient = (each[0] for each in (yield x[None]))
        if not np.isfinite(gradient).all():
            return None
        for _ in range(_MOST_STEPS):
            if shape is None:
                shape = yield from self._shape(x, gradient, lengths)
                if shape is None:
                    return None
                lengths, is_old, last, factor = shape.lengths, False, inf, 1.0
            slope = gradient[self.rest]
            move = factor * shape.covariance_times(slope[None])[0]
            gain = 0.5 * float(slope @ move)
            is_here = not is_old and (is_here or gain < _NEAR)
            if gain < _SETTLED and is_here:
                here = replace(shape, mean=x[self.rest])
                return (yield from self._summary(x, height, gradient, here))
            n_left = log(gain / _SETTLED) / log(last / gain) if 0.0 < gain < last else inf
            if gain < _SETTLED or (last < inf and n_left > self.cost):
                shape = None
                continue
            for halving in range(_HALVINGS):
                size = 0.5**halving
                there = self.placed(x[self.given], x[self.rest] + size * move)
                value, new = (each[0] for each in (yield there[None]))
                if value >= height + _SUFFICIENT * size * gain and np.isfinite(new).all():
                    change = float(move @ (slope - new[self.rest])) / (2.0 * gain)
                    factor *= float(np.clip(1.0 / change, *_FACTORS)) if change > 0.0 else 1.0
                    x, height, gradient, last = there, value, new, gain
                    break
            else:
                if not is_old:
                    return None
                shape = None
            is_old = is_old or not is_here
        return None

    def _shape(
        self, x: Floats, gradient: Floats, lengths: Floats
    ) -> Task[Shape | SparseShape | None]:
        """Return location and scale by the curvature at a point; None if it has the wrong sign."""
        for _ in range(_CORRECTIONS):
            sparsity, m = self.sparsity, self.rest.size
            if not isinstance(sparsity, KnownSparsity):
                steps = np.zeros((m if sparsity is None else sparsity.n_groups, x.size))
                own = np.diag(lengths) if sparsity is None else sparsity.steps(lengths)
                steps[:, self.rest] = own
                _, gradients = yield x + STEP * steps
                change = (gradient - gradients)[:, self.rest] / STEP
            if isinstance(sparsity, KnownSparsity):
                diagonal, below = sparsity.elements(x, lengths)
                self.n_evaluations += sparsity.n_groups
            elif sparsity is None:
                scaled = 0.5 * (change * lengths + (change * lengths).T)
                diagonal = np.diag(scaled) / lengths**2
                if not self._is_measured:
                    self._is_measured, self.sparsity = True, Sparsity.of(scaled)
                    if self.sparsity is not None:
                        order = self.sparsity.order
                        self.rest = self.rest[order]
                        return (yield from self._shape(x, gradient, lengths[order]))
                if not self.may_be_dense:
                    return None
            else:
                diagonal, below = sparsity.elements(change, lengths)
            if not ((diagonal > 0.0) & np.isfinite(diagonal)).all():
                return None
            wrong, lengths = np.abs(np.log(diagonal**-0.5 / lengths)), diagonal**-0.5
            if wrong.max(initial=0.0) < _CORRECTED:
                break
        if sparsity is not None:
            if not numerics.factorise(sparsity.pattern, diagonal, below):
                return None
            return SparseShape(x[self.rest], np.arange(m), sparsity.pattern, diagonal, below)
        scales = np.sqrt(np.diag(scaled))
        try:
            inverse = np.linalg.inv(np.linalg.cholesky(scaled / np.outer(scales, scales))) * lengths
            return Shape(x[self.rest], np.linalg.cholesky(inverse.T @ inverse))
        except np.linalg.LinAlgError:
            return None

    def _run_together[T](self, tasks: Sequence[Task[T]]) -> list[T]:
        """Return the results of some computations, whose points are evaluated together."""
        if len(tasks) > _SIDE_BY_SIDE:
            first, others = tasks[:_SIDE_BY_SIDE], tasks[_SIDE_BY_SIDE:]
            return self._run_together(first) + self._run_together(others)
        found = dict[int, T]()
        points = {i: next(task) for i, task in enumerate(tasks)}
        while points:
            heights, gradients = self._heights(np.concatenate([*points.values()]))
            start, asked = 0, points
            points = {}
            for i, rows in asked.items():
                mine = slice(start, start := start + len(rows))
                try:
                    with np.errstate(over="ignore", invalid="ignore"):  # far from any peak
                        points[i] = tasks[i].send((heights[mine], gradients[mine]))
                except StopIteration as end:
                    found[i] = end.value
        return [found[i] for i in range(len(tasks))]

    def _heights(self, points: Floats) -> tuple[Floats, Floats]:
        """Return log density and gradient at every row of ``points``."""
        if not len(points):  # no derivatives, where there are no hyperparameters
            return np.empty(0), points
        self.n_evaluations += len(points)
        parts = [points[i : i + _MOST_ROWS] for i in range(0, len(points), _MOST_ROWS)]
        found = [self.posterior.with_gradient(part) for part in parts]
        heights, gradients = zip(*found, strict=True)
        return np.concatenate(heights), np.concatenate(gradients)

    def _summary(
        self, peak: Floats, height: float, gradient: Floats, shape: Shape | SparseShape
    ) -> Task[ConditionalFit | None]:
        """Return the approximation with given location and scale."""
        steps = np.zeros((self.given.size, peak.size))
        steps[np.arange(self.given.size), self.given] = STEP * self.scale
        _, gradients = yield peak + steps
        pull = (gradients - gradient) / (STEP * self.scale)[:, None]
        slope = shape.covariance_times(pull[:, self.rest]).T
        rise, bend = gradient[self.given], pull[:, self.given] + pull[:, self.rest] @ slope
        log_mass = height + 0.5 * self.rest.size * log(2.0 * pi) + shape.log_volume
        log_mass -= self.posterior.target.log_order_mass
        if not (np.isfinite(slope).all() and np.isfinite(log_mass)):
            return None
        return ConditionalFit(peak[self.given], shape, slope, log_mass, height, rise, bend)
