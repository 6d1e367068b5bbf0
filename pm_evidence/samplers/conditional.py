"""Nearly normal approximations of a posterior at fixed values of a few hyperparameters."""

from dataclasses import dataclass, replace
from math import inf, log, pi
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core import numerics
from pm_evidence.core.numerics import Pattern
from pm_evidence.core.shape import Shape, SparseShape, conditioned
from pm_evidence.kernels.ascent import climb
from pm_evidence.paths.geometric import Posterior
from pm_evidence.references.mixture import StudentFit

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]
Bools = NDArray[np.bool_]
Indices = NDArray[np.int64]
_MOST_ROWS = 256


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
    def of(cls, *matrices: Floats) -> Self | None:
        """Return that of symmetric matrices, shape ``(m, m)``; None if few elements are zero."""
        m = len(matrices[0])
        if m < _LEAST_ROWS or not np.isfinite(matrices).all():
            return None
        graph = np.logical_or.reduce([_graph(matrix) for matrix in matrices])
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
        m = self.apart.size
        return _steps(self.apart, np.random.default_rng(m).choice((-1.0, 1.0), m))

    def times(self, diagonal: Floats, below: Floats, vector: Floats) -> Floats:
        """Return the matrix with some elements times a vector, shape ``(m,)``."""
        row, column, m = self.pattern.row, self.pattern.column, vector.size
        found = diagonal * vector
        found += np.bincount(row, below * vector[column], minlength=m)
        found += np.bincount(column, below * vector[row], minlength=m)
        return found

    def elements(self, products: Floats, lengths: Floats) -> tuple[Floats, Floats]:
        """Return the elements on the diagonal, and those of the pattern below it."""
        found = products.ravel()[self.source] / lengths[self.column]
        found[self.source < 0] = 0.0
        return found[: lengths.size], found[lengths.size :]


def _steps(group: Indices, lengths: Floats) -> Floats:
    steps = np.zeros((int(group.max()) + 1, lengths.size))
    steps[group, np.arange(lengths.size)] = lengths
    return steps


def _graph(matrix: Floats) -> Bools:
    """Return which elements of a symmetric matrix are not zero; those on the diagonal are not."""
    size = np.abs(matrix)
    largest = size.max(axis=1)
    graph: Bools = size > _ZERO * np.sqrt(largest[:, None] * largest)
    graph |= graph.T
    np.fill_diagonal(graph, True)
    return graph


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
        colour = _coloured(reach)
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
        further = _coloured(reach)
        if further.max(initial=-1) >= _MOST_DIRECTIONS:
            break
        colour = further
    return colour


def _coloured(conflict: Any) -> Indices:
    """Return colours that differ where elements of a symmetric sparse matrix are not zero."""
    colour = np.full(conflict.shape[0], -1)
    start, row = conflict.indptr, conflict.indices
    for j in range(colour.size):  # the first colour that none of those before it in its rows has
        near = colour[row[start[j] : start[j + 1]]]
        used = np.zeros(near.size + 1, bool)
        used[near[(near >= 0) & (near <= near.size)]] = True
        colour[j] = np.argmin(used)
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


# Step of the finite differences in units of the scale of the curvature, or of the prior.
STEP = 1e-3
# Largest number of gradients that are computed at once: it bounds the memory.
# Second derivatives are overlooked if the change of a gradient differs by more, relative to the
# largest one that the known derivatives may give.
_OVERLOOKED = 0.05


class Differences:
    """Gradients of a log density and their differences."""

    def __init__(self, posterior: Posterior) -> None:
        self.posterior, self.n_evaluations = posterior, 0

    def height(self, x: Floats) -> tuple[float, Floats]:
        """Return log density and gradient at a point."""
        height, gradient = self.heights(x[None])
        return float(height[0]), gradient[0]

    def heights(self, points: Floats) -> tuple[Floats, Floats]:
        """Return log density and gradient at every row of ``points``."""
        self.n_evaluations += len(points)
        return self.posterior.with_gradient(points)

    def change(self, x: Floats, gradient: Floats, steps: Floats) -> Floats:
        """Return how the gradient changes along each row of ``steps``, one in each row."""
        found = np.empty(steps.shape)
        for start in range(0, len(found), _MOST_ROWS):
            rows = slice(start, start + _MOST_ROWS)
            found[rows] = self.heights(x + steps[rows])[1] - gradient
        return found

    def sparsity(
        self, matrix: Floats, rows: Positions, lengths: Floats, tests: Floats
    ) -> Sparsity | None:
        """Return which second derivatives are zero, if most are."""
        matrices, found = [matrix], Sparsity.of(matrix)
        for x in tests:
            if found is not None and self._overlooks(found, x, rows, lengths):
                matrices.append(self._matrix(x, rows, lengths))
                found = Sparsity.of(*matrices)
        return found

    def _overlooks(self, sparsity: Sparsity, x: Floats, rows: Positions, lengths: Floats) -> bool:
        """Return whether second derivatives at a point are overlooked, by one random direction."""
        rows, lengths = rows[sparsity.order], lengths[sparsity.order]
        direction = np.random.default_rng(rows.size).choice((-1.0, 1.0), rows.size) * lengths
        steps = np.zeros((sparsity.n_groups + 1, x.size))
        steps[:, rows] = np.vstack([sparsity.steps(lengths), direction])
        change = self.change(x, self.height(x)[1], STEP * steps)[:, rows] / STEP
        diagonal, below = sparsity.elements(change[:-1], lengths)
        found = sparsity.times(diagonal, below, direction)
        largest = sparsity.times(np.abs(diagonal), np.abs(below), lengths)
        return bool((np.abs(found - change[-1]) > _OVERLOOKED * largest).any())

    def _matrix(self, x: Floats, rows: Positions, lengths: Floats) -> Floats:
        """Return second derivatives at a point in units of the lengths, shape ``(m, m)``."""
        steps = np.zeros((rows.size, x.size))
        steps[np.arange(rows.size), rows] = STEP * lengths
        change = self.change(x, self.height(x)[1], steps)[:, rows] * (lengths / STEP)
        matrix: Floats = 0.5 * (change + change.T)
        return matrix


# Largest number of gradients of one ascent, and of Newton's steps where the matrix of second
# derivatives is sparse.
_MOST, _MOST_STEPS = 600, 30
# An ascent has converged if the gradient predicts a gain below this many nats. A step must gain a
# share of what it predicts, and is halved so many times at most.
_SETTLED, _SUFFICIENT, _HALVINGS = 1e-5, 1e-4, 12
# How often the scale of finite differences is corrected by more than the factor e, before they are
# right.
_CORRECTIONS, _CORRECTED = 4, 1.0
# Node of a quadrature with three points, and bounds of the variances that it gives.
_NODE, _VARIANCES = 3.0**0.5, (0.25, 4.0)
# Largest number of rows of which heights are predicted at once: it bounds the memory.


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


class ConditionalFits:
    """Makes normal approximations at values of the hyperparameters."""

    def __init__(
        self,
        posterior: Posterior,
        given: Positions,
        prior: Shape,
        tests: Floats,
        *,
        may_be_dense: bool = True,
    ) -> None:
        self.posterior, self.given, self.prior = posterior, given, prior
        self.tests, self.may_be_dense = tests, may_be_dense
        self.rest = np.setdiff1d(np.arange(prior.mean.size), given)
        self.sparsity: Sparsity | None = None
        self._differences = Differences(posterior)
        self._is_measured = False

    @property
    def n_evaluations(self) -> int:
        """Evaluations of the density and its gradient so far."""
        return self._differences.n_evaluations

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
        factor = self.prior.factor.copy()
        factor[self.given] = 0.0
        return self._climbed(point, factor)

    def near(self, other: ConditionalFit, values: Floats) -> ConditionalFit | None:
        """Return the approximation at other values of the hyperparameters."""
        moved = self.placed(values, other.predicted(values))
        unmoved = self.placed(values, other.shape.mean)
        if isinstance(other.shape, SparseShape):
            lengths = other.shape.lengths
            return self._by_newton(moved, lengths) or self._by_newton(unmoved, lengths)
        factor = np.zeros((moved.size, moved.size))
        factor[np.ix_(self.rest, self.rest)] = other.shape.factor
        return self._climbed(moved, factor) or self._climbed(unmoved, factor)

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

    def skewed(self, fit: ConditionalFit) -> tuple[ConditionalFit | None, float]:
        """Return an approximation about the mean, with variances and skewness, and what it gains.

        In coordinates ``z`` of covariance 1, in which the log density has third and fourth
        derivatives ``a`` and ``b`` along one of them, its mean is ``a / 2``, its variance ``1 + b /
        2 + a**2``, and the log of its mass is ``b / 8 + 5 a**2 / 24`` larger than that of the
        normal density. Gauss-Hermite quadrature with three points gives ``a`` and ``b``.
        """
        shape = fit.shape if isinstance(fit.shape, SparseShape) else SparseShape.of(fit.shape)
        peak = self.placed(fit.values, fit.shape.mean)
        gradient = self._differences.height(peak)[1]
        signs = self._directions()
        above, below = self._beside(peak, gradient, _NODE * shape.scaled(signs))
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
        found = np.empty(len(values))
        for start in range(0, len(values), _MOST_ROWS):
            rows = slice(start, start + _MOST_ROWS)
            there = values[rows]
            height, gradient = self._differences.heights(self._predicted(fit, there))
            slope = gradient[:, self.rest]
            found[rows] = height + 0.5 * (slope * fit.shape.covariance_times(slope)).sum(axis=1)
            found[rows] -= fit.predicted_height(there)
        found[~np.isfinite(found)] = np.nan
        return found

    def _predicted(self, fit: ConditionalFit, values: Floats) -> Floats:
        """Return the points with rows of hyperparameters, and the other variables at their peak."""
        points = np.empty((len(values), self.prior.mean.size))
        points[:, self.given], points[:, self.rest] = values, fit.predicted(values)
        return points

    def _beside(self, peak: Floats, gradient: Floats, moves: Floats) -> tuple[Floats, Floats]:
        """Return how the gradient changes by each row of ``moves``, and by their negatives."""
        steps = np.zeros((len(moves), peak.size))
        steps[:, self.rest] = moves
        above = self._differences.change(peak, gradient, steps)
        below = self._differences.change(peak, gradient, -steps)
        return above[:, self.rest], below[:, self.rest]

    def _directions(self) -> Floats:
        """Return rows of signs and zeros whose squares add up to 1 in each column.

        The rows are unit vectors, unless most second derivatives are zero.
        """
        return np.eye(self.rest.size) if self.sparsity is None else self.sparsity.directions()

    def _climbed(self, start: Floats, factor: Floats) -> ConditionalFit | None:
        """Climb from a point with fixed hyperparameters; None if that fails."""
        # hyperparameters stay where they are, because the factor moves them by zero
        shape = Shape(self.prior.mean, factor)
        found = climb(self.posterior.target, start[None], shape, _MOST)
        self._differences.n_evaluations += found.n_evaluations
        if not found.settled[0]:
            return None
        peak = found.x[0]
        if self.sparsity is not None:
            return self._by_newton(peak, factor[self.rest, 0])
        return self._fitted(peak, float(found.log_density[0]), factor)

    def _fitted(self, peak: Floats, height: float, factor: Floats) -> ConditionalFit | None:
        """Return the approximation at a peak, whose scales are about those of a factor."""
        gradient = self._differences.height(peak)[1]
        directions = np.diag(factor[:, 0]) if factor.shape[1] == 1 else factor
        directions = directions[:, self.rest]
        for _ in range(_CORRECTIONS):
            change = self._differences.change(peak, gradient, STEP * directions.T)
            curvature = -change @ directions / STEP
            curvature = 0.5 * (curvature + curvature.T)
            if self._is_sparse(curvature):
                return self._by_newton(peak, factor[self.rest, 0])
            scales = _scales(curvature)
            if scales is None or not self.may_be_dense:
                return None
            directions = directions @ scales
            if np.abs(np.log(np.diag(scales))).max(initial=0.0) < _CORRECTED:
                break
        root = directions[self.rest]
        try:
            shape = Shape(peak[self.rest], np.linalg.cholesky(root @ root.T))
        except np.linalg.LinAlgError:
            return None
        return self._summary(peak, height, gradient, shape)

    def _is_sparse(self, curvature: Floats) -> bool:
        """Learn from second derivatives along the coordinates whether most of them are zero."""
        if self._is_measured:
            return False
        self._is_measured = True
        scales = self.prior.factor[self.rest, 0]
        found = self._differences.sparsity(curvature, self.rest, scales, self.tests)
        if found is None:
            return False
        self.sparsity, self.rest = found, self.rest[found.order]
        return True

    def _by_newton(self, x: Floats, lengths: Floats) -> ConditionalFit | None:
        """Climb by Newton's method from a point with fixed hyperparameters; None if that fails.

        The lengths, shape (m,), are about the scales of the curvature along each variable.
        """
        height, gradient = self._differences.height(x)
        for _ in range(_MOST_STEPS):
            shape = self._sparse_shape(x, gradient, lengths)
            if shape is None:
                return None
            corrected = np.abs(np.log(shape.lengths / lengths)).max()
            lengths = shape.lengths
            move = shape.covariance_times(gradient[None, self.rest])[0]
            gain = 0.5 * float(gradient[self.rest] @ move)
            if gain < _SETTLED and corrected < _CORRECTED:
                return self._summary(x, height, gradient, shape)
            if gain < _SETTLED:
                continue
            for halving in range(_HALVINGS):
                size = 0.5**halving
                there = self.placed(x[self.given], x[self.rest] + size * move)
                value, slope = self._differences.height(there)
                if value >= height + _SUFFICIENT * size * gain and np.isfinite(slope).all():
                    break
            else:
                return None
            x, height, gradient = there, value, slope
        return None

    def _sparse_shape(self, x: Floats, gradient: Floats, lengths: Floats) -> SparseShape | None:
        """Return location and scale by the curvature at a point; None if it has the wrong sign."""
        sparsity = self.sparsity
        assert sparsity is not None
        steps = np.zeros((sparsity.n_groups, x.size))
        steps[:, self.rest] = sparsity.steps(lengths)
        change = self._differences.change(x, gradient, STEP * steps)[:, self.rest]
        diagonal, below = sparsity.elements(-change / STEP, lengths)
        pattern = sparsity.pattern
        if not numerics.factorise(pattern, diagonal, below):
            return None
        return SparseShape(x[self.rest], np.arange(self.rest.size), pattern, diagonal, below)

    def _summary(
        self, peak: Floats, height: float, gradient: Floats, shape: Shape | SparseShape
    ) -> ConditionalFit | None:
        """Return the approximation with given location and scale."""
        steps = np.zeros((self.given.size, peak.size))
        steps[np.arange(self.given.size), self.given] = STEP * self.scale
        pull = self._differences.change(peak, gradient, steps) / (STEP * self.scale)[:, None]
        slope = shape.covariance_times(pull[:, self.rest]).T
        rise, bend = gradient[self.given], pull[:, self.given] + pull[:, self.rest] @ slope
        log_mass = height + 0.5 * self.rest.size * log(2.0 * pi) + shape.log_volume
        log_mass -= self.posterior.target.log_order_mass
        if not (np.isfinite(slope).all() and np.isfinite(log_mass)):
            return None
        return ConditionalFit(peak[self.given], shape, slope, log_mass, height, rise, bend)


def _scales(curvature: Floats) -> Floats | None:
    """Return a factor of the inverse of a matrix, or of its diagonal if it has none; or None."""
    if not np.isfinite(curvature).all():
        return None
    try:
        scales: Floats = np.linalg.inv(np.linalg.cholesky(curvature)).T
    except np.linalg.LinAlgError:
        diagonal = np.diag(curvature)
        return np.diag(1.0 / np.sqrt(diagonal)) if (diagonal > 0.0).all() else None
    return scales
