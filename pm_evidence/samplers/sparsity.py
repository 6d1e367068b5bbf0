"""Which second derivatives of a log density are zero, and the few gradients that give the others.

Columns of the matrix that share no row are told apart in a single difference of gradients (Curtis,
Powell and Reid 1974). Rows that are shared with most columns are known from columns of their own,
because the matrix is symmetric (Powell and Toint 1979).
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.triangular import Pattern

__all__ = ["Sparsity"]

Floats = NDArray[np.float64]
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
    """How a symmetric matrix is measured and factorised, most of whose elements are zero.

    Parameters
    ----------
    order : ndarray of int64, shape (m,)
        Rows in the order in which they are eliminated: that of all other arrays.
    group : ndarray of int64, shape (m,)
        Groups of columns, which are measured at once.
    apart : ndarray of int64, shape (m,)
        Groups of rows that are as far from each other in the graph of the matrix as some thirty
        groups allow. Columns of the inverse that belong to rows of one group hardly overlap.
    pattern : Pattern
        Elements of the lower Cholesky factor.
    source : ndarray of int64, shape (m + n,)
        Group and row, as a single index, from which the elements on the diagonal and those of the
        pattern are read; -1 for elements that only the factor has.
    column : ndarray of int64, shape (m + n,)
        Columns of the group that these are the elements of.
    """

    order: Indices
    group: Indices
    apart: Indices
    pattern: Pattern
    source: Indices
    column: Indices

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
        """Return the elements on the diagonal, and those of the pattern below it.

        Parameters
        ----------
        products : ndarray, shape (n_groups, m)
            The matrix times every step.
        lengths : ndarray, shape (m,)
            Lengths of the steps.
        """
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
