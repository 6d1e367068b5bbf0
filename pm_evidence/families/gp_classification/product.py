"""Products of a matrix with the values of many members, whose digits depend on no other member."""

from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.sums import fused

__all__ = ["BLOCK", "add", "multiply", "times", "width_of"]

# Members that are moved together: one number of each fills eight vectors of eight doubles. With 32
# of their values, their sums of products stay in the first cache.
_TOGETHER, BLOCK = 64, 32
_ROWS = 8


def width_of(n: int) -> int:
    """Return how many of ``n`` members are moved together, in whole vectors.

    All groups have about the same size, so that few columns are left empty.
    """
    n_groups = max(-(-n // _TOGETHER), 1)
    return max(-(-n // (n_groups * _ROWS)), 1) * _ROWS


@njit
def multiply(matrix, values, start, stop, out):
    """Set ``out`` to rows ``start`` to ``stop`` of a matrix times values.

    Parameters
    ----------
    matrix : float64 array, shape (n, k)
    values : float64 array, shape (k, width)
        One column for each member.
    start, stop : int64
        At most `BLOCK` rows.
    out : float64 array, shape (BLOCK, width)
    """
    k, width = values.shape
    for i in range(start, stop):
        sums = out[i - start]
        for c in range(width):
            sums[c] = 0.0
    j = 0
    while j + _ROWS <= k:  # eight rows of values stay in the first cache
        for i in range(start, stop):
            _add_rows(out[i - start], matrix[i, j : j + _ROWS], values[j : j + _ROWS])
        j += _ROWS
    for rest in range(j, k):
        for i in range(start, stop):
            add(out[i - start], matrix[i, rest], values[rest])


@njit
def times(matrix, values, out, products):
    """Set ``out`` to a matrix times values; ``products``, shape (BLOCK, width), is overwritten."""
    for start in range(0, matrix.shape[0], BLOCK):
        stop = min(start + BLOCK, matrix.shape[0])
        multiply(matrix, values, start, stop, products)
        out[start:stop] = products[: stop - start]


@njit
def _add_rows(sums, factors, rows):
    a, b, c, d = factors[0], factors[1], factors[2], factors[3]
    e, f, g, h = factors[4], factors[5], factors[6], factors[7]
    for m in range(sums.size):
        total = fused(a, rows[0, m], sums[m])
        total = fused(b, rows[1, m], total)
        total = fused(c, rows[2, m], total)
        total = fused(d, rows[3, m], total)
        total = fused(e, rows[4, m], total)
        total = fused(f, rows[5, m], total)
        total = fused(g, rows[6, m], total)
        sums[m] = fused(h, rows[7, m], total)


@njit
def add(sums, factor, row):
    """Add a number times a row to ``sums``."""
    for m in range(sums.size):
        sums[m] = fused(factor, row[m], sums[m])
