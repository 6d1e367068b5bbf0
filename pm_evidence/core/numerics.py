"""Sums of exponentials, sums in a fixed order, and triangular matrices."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy
from llvmlite import ir
from numpy.typing import NDArray

from pm_evidence.core.codegen.numba import cgutils, emitted, nb, njit, types

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


def log_sum_exp(log_terms: Floats) -> float:
    """Return ``log(sum(exp(log_terms)))``; ``-inf`` for an empty or all ``-inf`` array."""
    if log_terms.size == 0:
        return -np.inf
    top = float(np.max(log_terms))
    if not np.isfinite(top):
        return top
    return top + float(np.log(np.sum(np.exp(log_terms - top))))


def log_mean_exp(log_terms: Floats) -> float:
    """Return ``log(mean(exp(log_terms)))``, where terms of ``-inf`` are counted as well."""
    return log_sum_exp(log_terms) - float(np.log(log_terms.size))


def normalised(log_weight: Floats) -> Floats:
    """Return the weights ``exp(log_weight)`` scaled to sum to one."""
    top = np.max(log_weight)
    if not np.isfinite(top):
        raise FloatingPointError(f"weights cannot be normalised: the largest log weight is {top}")
    weight = np.exp(log_weight - top)
    scaled: Floats = weight / weight.sum()
    return scaled


def ess_share(log_weight: Floats) -> Any:
    """Return the effective sample size of weights as a share of their number, in [0, 1].

    It is computed over the last axis, and is 0 if all weights are zero or one is NaN or infinite.
    """
    top = log_weight.max(axis=-1, keepdims=True)
    with np.errstate(all="ignore"):
        weight = np.exp(log_weight - top)
        share = weight.sum(axis=-1) ** 2 / (weight**2).sum(axis=-1) / log_weight.shape[-1]
    return np.where(np.isfinite(top[..., 0]) & (share > 0.0), share, 0.0)[()]


def moments(table: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of the finite entries of every row; NaN where there are none."""
    alive = np.isfinite(table)
    count = alive.sum(axis=1)
    known = np.where(alive, table, 0.0)
    with np.errstate(all="ignore"):
        mean = known.sum(axis=1) / count
        rest = np.where(alive, table - mean[:, None], 0.0)
        return mean, (rest**2).sum(axis=1) / count


def add_up(start: Floats, steps: Floats) -> tuple[Floats, Floats, Floats]:
    """Add rows of log weights to ``start`` one after another."""
    sums = np.cumsum(np.concatenate([start[None], steps]), axis=0)
    return sums[-1], ess_share(steps), ess_share(sums[1:])


_N = 32
_DOUBLE, _BIT, _INDEX = ir.DoubleType(), ir.IntType(1), ir.IntType(64)
_DOUBLES, _BITS, _INDICES = (ir.VectorType(kind, _N) for kind in (_DOUBLE, _BIT, _INDEX))
_ZEROS = ir.Constant(_DOUBLES, [0.0] * _N)


@emitted(lambda: types.float64)
def fused(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """Return ``x * y + z``, rounded only once if the processor has a fast instruction for it."""
    return multiply_add(builder, x, y, z)


def _signature(*arrays: Any) -> Any:
    if not all(a.ndim == 1 and a.layout == "C" and a.dtype == types.float64 for a in arrays):
        raise nb.TypingError(f"sums are of contiguous vectors of float64, not of {arrays}")
    return types.float64(*arrays)


@emitted(lambda: _signature)
def _total(builder: Any, x: Any) -> Any:
    return _summed(builder, [x], builder.fadd)


@emitted(lambda: _signature)
def _dot(builder: Any, x: Any, y: Any) -> Any:
    return _summed(builder, [x, y], lambda *terms: multiply_add(builder, *terms))


@njit
def total(x: Any) -> Any:
    """Return the sum of a contiguous vector of float64."""
    return _total(x)


@njit
def dot(x: Any, y: Any) -> Any:
    """Return the inner product of two contiguous vectors of float64, of one length."""
    return _dot(x, y)


def _summed(builder: Any, arrays: list[Any], add: Callable[..., Any]) -> Any:
    """Build the loop; ``add`` takes terms of every array, and the sums so far."""
    n = cgutils.unpack_tuple(builder, arrays[0].shape)[0]
    whole = builder.and_(n, _INDEX(-_N))
    sums = cgutils.alloca_once_value(builder, _ZEROS)
    with cgutils.for_range_slice(builder, _INDEX(0), whole, _INDEX(_N), _INDEX) as (start, _):
        terms = [builder.load(vector_at(builder, a.data, start, _DOUBLES), align=8) for a in arrays]
        builder.store(add(*terms, builder.load(sums)), sums)
    inside = _below(builder, builder.sub(n, whole))
    rest = [_masked(builder, vector_at(builder, a.data, whole, _DOUBLES), inside) for a in arrays]
    return in_pairs(builder, add(*rest, builder.load(sums)), builder.fadd)


def vector_at(builder: Any, pointer: Any, index: Any, kind: Any) -> Any:
    """Return a pointer to a vector of numbers that begins at ``pointer[index]``."""
    return builder.bitcast(builder.gep(pointer, [index]), kind.as_pointer())


def spread_over(builder: Any, number: Any, kind: Any) -> Any:
    """Return a vector whose elements are all equal to a number."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), number, _INDEX(0))
    return builder.shuffle_vector(
        first, first, ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    )


def _below(builder: Any, n: Any) -> Any:
    """Return which of the numbers 0, 1, ... are below ``n``."""
    numbers = ir.Constant(_INDICES, list(range(_N)))
    return builder.icmp_signed("<", numbers, spread_over(builder, n, _INDICES))


def _masked(builder: Any, pointer: Any, inside: Any) -> Any:
    """Return the numbers at ``pointer`` where ``inside`` is true, and zeros elsewhere."""
    kind = ir.FunctionType(_DOUBLES, [pointer.type, ir.IntType(32), _BITS, _DOUBLES])
    load = cgutils.get_or_insert_function(
        builder.module, kind, f"llvm.masked.load.v{_N}f64.p0v{_N}f64"
    )
    return builder.call(load, [pointer, ir.IntType(32)(8), inside, _ZEROS])


def in_pairs(builder: Any, vector: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """Combine all elements of a vector, those of its lower half with those of its upper half."""
    n = vector.type.count
    while n > 1:
        n //= 2
        halves = [ir.Constant(ir.VectorType(ir.IntType(32), n), [*range(k, k + n)]) for k in (0, n)]
        vector = combine(*(builder.shuffle_vector(vector, vector, half) for half in halves))
    return builder.extract_element(vector, _INDEX(0))


def multiply_add(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """Return ``x * y + z`` of numbers or vectors; see `fused`."""
    kind = x.type.element if isinstance(x.type, ir.VectorType) else x.type
    of_many = f"v{x.type.count}" if kind is not x.type else ""
    name = f"llvm.fmuladd.{of_many}{'f64' if kind == _DOUBLE else 'f32'}"
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(x.type, [x.type] * 3), name
    )
    return builder.call(function, [x, y, z])


# Matrices of at most so many rows are stored whole and left to LAPACK. Compiled loops over the used
# elements are faster where there are more, and worth compiling.
_SMALL = 128


@dataclass(frozen=True, slots=True)
class Pattern:
    """The elements below the diagonal of a lower triangular matrix that need not be zero."""

    # shape (m + 1,): index of the first element of every column, and the number of all elements
    start: Indices
    row: Indices  # shape (n,): rows of the elements, which ascend in every column

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
