"""Standard errors of estimates that are sums over paths, which may depend on each other."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import plain_array

__all__ = ["Spread", "checked_blocks", "combined", "spread"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Spread:
    """The standard error of an estimate, and how well it is known.

    Parameters
    ----------
    mcse : float
        Standard error.
    dof : float
        Degrees of freedom that it was estimated with.
    """

    mcse: float
    dof: float


def spread(*parts: tuple[Floats, NDArray[np.int64] | None]) -> Spread:
    """Return the spread of a sum of independent parts.

    Parameters
    ----------
    *parts : (contributions, blocks)
        Contribution of each path to the deviation of the estimate from its expectation, shape
        ``(n_paths,)``, and the block that each path belongs to, or None if all paths are
        independent. Only paths of different blocks are taken as independent.

    Notes
    -----
    The sum over blocks of squared contributions, with Satterthwaite's (1946) degrees of freedom.
    """
    found: list[tuple[float, float]] = []
    for contributions, blocks in parts:
        if blocks is not None:
            _, index = np.unique(blocks, return_inverse=True)
            contributions = np.bincount(index, weights=contributions)
        n = len(contributions)
        if n < 2:
            return Spread(float("nan"), 1.0)
        with np.errstate(over="ignore"):  # an error without bounds is infinite
            found.append((float(np.sum(contributions**2)) * n / (n - 1), n - 1))
    return _summed(found)


def combined(*spreads: Spread) -> Spread:
    """Return the spread of a sum or difference of independent estimates.

    Parameters
    ----------
    *spreads : Spread
        Of the estimates; errors add in quadrature.

    Notes
    -----
    With the degrees of freedom of Welch (1947) and Satterthwaite (1946).
    """
    return _summed([(spread.mcse**2, max(spread.dof, 1.0)) for spread in spreads])


def _summed(parts: Sequence[tuple[float, float]]) -> Spread:
    """Return the spread of a sum of parts with these variances and degrees of freedom."""
    variance = sum(part for part, _ in parts)
    if not 0.0 < variance < np.inf:
        return Spread(float(np.sqrt(variance)), 1.0)
    lost = sum((part / variance) ** 2 / free for part, free in parts)
    return Spread(float(np.sqrt(variance)), 1.0 / lost if lost > 0.0 else np.inf)


def checked_blocks(name: str, blocks: ArrayLike | None, work: Floats) -> NDArray[np.int64] | None:
    """Return the blocks of the paths as integers; raise ValueError if they do not fit the work."""
    if blocks is None:
        return None
    index: NDArray[np.int64] = plain_array(name, blocks)
    if index.shape != work.shape or not np.issubdtype(index.dtype, np.integer):
        raise ValueError(
            f"{name} must have one integer per path, shape {work.shape}, got shape {index.shape} "
            f"and dtype {index.dtype}; leave it out where all paths are independent."
        )
    return index
