"""An order of points in R^d in which neighbours are close to each other: a Hilbert curve."""

from typing import Any

import numpy as np

from pm_evidence.core.codegen.numba import njit

__all__ = ["order_along_curve"]

_BITS = 62  # of a position along the curve


@njit
def order_along_curve(points: Any) -> Any:
    """Return the order of points, shape ``(n, d)``, by value or along a Hilbert curve.

    The curve fills the box of three standard deviations around the points (Skilling 2004,
    "Programming the Hilbert curve").
    """
    n, d = points.shape
    if d == 1:
        return np.argsort(points[:, 0], kind="mergesort")
    bits = max(1, min(16, _BITS // d))
    used = min(d, _BITS)
    side = 2**bits - 1
    cell = np.empty((n, used), np.int64)
    for k in range(used):
        centre, spread = points[:, k].mean(), points[:, k].std()
        low = centre - 3.0 * spread
        for i in range(n):
            share = (points[i, k] - low) / (6.0 * spread) if spread > 0.0 else 0.5
            cell[i, k] = int(min(max(share, 0.0), 1.0) * side) if share == share else 0
    position = np.empty(n, np.int64)
    for i in range(n):
        position[i] = _along(cell[i], bits)
    return np.argsort(position, kind="mergesort")


@njit
def _along(cell: Any, bits: Any) -> Any:
    """Return the position on the curve of a cell, whose coordinates are overwritten."""
    d = cell.size
    top = 1 << (bits - 1)
    bit = top
    while bit > 1:
        low = bit - 1
        for k in range(d):
            if cell[k] & bit:
                cell[0] ^= low
            else:
                swap = (cell[0] ^ cell[k]) & low
                cell[0] ^= swap
                cell[k] ^= swap
        bit >>= 1
    for k in range(1, d):
        cell[k] ^= cell[k - 1]
    flip = 0
    bit = top
    while bit > 1:
        if cell[d - 1] & bit:
            flip ^= bit - 1
        bit >>= 1
    position = 0
    for level in range(bits - 1, -1, -1):
        for k in range(d):
            position = (position << 1) | (((cell[k] ^ flip) >> level) & 1)
    return position
