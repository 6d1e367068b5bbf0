"""Lower triangular matrices of which only some elements are not zero, stored by columns."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from pm_evidence.core.codegen.numba import njit

__all__ = [
    "Pattern",
    "factorise",
    "multiply",
    "multiply_by_transposed",
    "multiply_rows_by_transposed",
    "solve_rows",
    "solve_rows_transposed",
    "solved",
]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

# Matrices of at most so many rows are stored whole and left to LAPACK. Compiled loops over the used
# elements are faster where there are more, and worth compiling.
_SMALL = 128


@dataclass(frozen=True, slots=True)
class Pattern:
    """The elements below the diagonal of a lower triangular matrix that need not be zero.

    Parameters
    ----------
    start : ndarray of int64, shape (m + 1,)
        Index of the first element of every column, and the number of all elements.
    row : ndarray of int64, shape (n,)
        Rows of the elements, which ascend in every column.
    """

    start: Indices
    row: Indices

    @classmethod
    def of(cls, is_used: NDArray[np.bool_]) -> Self:
        """Return the pattern of a matrix whose used elements below the diagonal are marked."""
        column, row = np.nonzero(np.tril(is_used, -1).T)
        return cls(np.searchsorted(column, np.arange(len(is_used) + 1)), row)

    @classmethod
    def full(cls, m: int) -> Self:
        """Return the pattern of a matrix of which no element is known to be zero."""
        return cls.of(np.ones((m, m), bool))

    @property
    def column(self) -> Indices:
        """Columns of the elements, shape ``(n,)``."""
        return np.repeat(np.arange(self.start.size - 1), np.diff(self.start))


def factorise(pattern: Pattern, diagonal: Floats, below: Floats) -> bool:
    """Overwrite the lower triangle of a matrix by its Cholesky factor.

    Elements outside of the pattern must be zero in the factor as well. Return whether the matrix is
    positive definite.
    """
    if diagonal.size > _SMALL:
        return bool(_factorise(pattern.start, pattern.row, diagonal, below))
    try:
        factor = np.linalg.cholesky(_whole(pattern, diagonal, below))
    except np.linalg.LinAlgError:
        return False
    diagonal[:], below[:] = np.diag(factor), factor[pattern.row, pattern.column]
    return bool(np.isfinite(diagonal).all())


def multiply_rows_by_transposed(
    pattern: Pattern, diagonal: Floats, below: Floats, rows: Floats
) -> None:
    """Multiply every row by a transposed lower triangular matrix, in place."""
    if diagonal.size > _SMALL:
        _multiply_rows(pattern.start, pattern.row, diagonal, below, rows)
    else:
        rows[:] = rows @ _whole(pattern, diagonal, below)


def solve_rows(pattern: Pattern, diagonal: Floats, below: Floats, rows: Floats) -> None:
    """Multiply every row by the inverse of a lower triangular matrix, in place."""
    if diagonal.size > _SMALL:
        _solve_rows(pattern.start, pattern.row, diagonal, below, rows)
    else:
        rows[:] = solved(_whole(pattern, diagonal, below), rows)


def solve_rows_transposed(pattern: Pattern, diagonal: Floats, below: Floats, rows: Floats) -> None:
    """Multiply every row by the transposed inverse of a lower triangular matrix, in place."""
    if diagonal.size > _SMALL:
        _solve_rows_transposed(pattern.start, pattern.row, diagonal, below, rows)
    else:
        rows[:] = solved(_whole(pattern, diagonal, below), rows, transposed=True)


def solved(factor: Floats, rows: Floats, *, transposed: bool = False) -> Floats:
    """Return every row times the inverse of a lower triangular matrix, or its transpose."""
    if not rows.size:
        return rows.copy()
    found, _ = scipy.linalg.lapack.dtrtrs(factor, rows.T, lower=1, trans=int(transposed))
    return np.asarray(found.T)


def _whole(pattern: Pattern, diagonal: Floats, below: Floats) -> Floats:
    """Return a lower triangular matrix with its zeros, in the order of Fortran."""
    whole = np.zeros((diagonal.size, diagonal.size), order="F")
    np.fill_diagonal(whole, diagonal)
    whole[pattern.row, pattern.column] = below
    return whole


@njit
def _factorise(start: Any, row: Any, diagonal: Any, below: Any) -> Any:
    """Do what `factorise` does, by loops over the used elements."""
    m = diagonal.size
    work, at = np.zeros(m), start[:m].copy()
    first, following = np.full(m, -1), np.full(m, -1)
    for j in range(m):
        pivot = diagonal[j]
        for e in range(start[j], start[j + 1]):
            work[row[e]] = below[e]
        # columns whose next element is in this row
        k = first[j]
        while k >= 0:
            after, here = following[k], at[k]
            factor = below[here]
            pivot -= factor * factor
            for e in range(here + 1, start[k + 1]):
                work[row[e]] -= factor * below[e]
            at[k] = here + 1
            if at[k] < start[k + 1]:
                following[k], first[row[at[k]]] = first[row[at[k]]], k
            k = after
        if not pivot > 0.0:
            return False
        diagonal[j] = np.sqrt(pivot)
        for e in range(start[j], start[j + 1]):
            below[e] = work[row[e]] / diagonal[j]
            work[row[e]] = 0.0
        if start[j] < start[j + 1]:
            following[j], first[row[start[j]]] = first[row[start[j]]], j
    return True


@njit
def multiply(start: Any, row: Any, diagonal: Any, below: Any, x: Any) -> None:
    """Multiply a vector by a lower triangular matrix, in place."""
    for back in range(diagonal.size):
        j = diagonal.size - 1 - back
        value = x[j]
        x[j] = diagonal[j] * value
        for e in range(start[j], start[j + 1]):
            x[row[e]] += below[e] * value


@njit
def multiply_by_transposed(start: Any, row: Any, diagonal: Any, below: Any, x: Any) -> None:
    """Multiply a vector by a transposed lower triangular matrix, in place."""
    for j in range(diagonal.size):
        total = diagonal[j] * x[j]
        for e in range(start[j], start[j + 1]):
            total += below[e] * x[row[e]]
        x[j] = total


@njit
def _multiply_rows(start: Any, row: Any, diagonal: Any, below: Any, rows: Any) -> None:
    """Multiply every row by a transposed lower triangular matrix, in place."""
    for x in rows:
        multiply_by_transposed(start, row, diagonal, below, x)


@njit
def _solve_rows(start: Any, row: Any, diagonal: Any, below: Any, rows: Any) -> None:
    """Multiply every row by the inverse of a lower triangular matrix, in place."""
    for x in rows:
        for j in range(diagonal.size):
            x[j] /= diagonal[j]
            for e in range(start[j], start[j + 1]):
                x[row[e]] -= below[e] * x[j]


@njit
def _solve_rows_transposed(start: Any, row: Any, diagonal: Any, below: Any, rows: Any) -> None:
    """Multiply every row by the transposed inverse of a lower triangular matrix, in place."""
    for x in rows:
        for back in range(diagonal.size):
            j = diagonal.size - 1 - back
            total = x[j]
            for e in range(start[j], start[j + 1]):
                total -= below[e] * x[row[e]]
            x[j] = total / diagonal[j]
