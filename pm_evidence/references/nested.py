"""A density of a few hyperparameters, times a nearly normal one of the other variables given them.

The normal density is skewed where each of the coordinates in which its covariance is the identity
has a split normal density instead, of different scales on both sides of the mode (Wallis 2014).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.numerics import Pattern
from pm_evidence.core.shape import Shape, SparseShape
from pm_evidence.references.mixture import Component

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]


# Scale of the kernel of the interpolation, in units of the spacing, and what is added to the
# variance of the points that it covers, which bounds the extrapolation.
_KERNEL, _RIDGE = 0.5, 0.01


@dataclass(frozen=True, slots=True)
class MovingLeastSquares:
    """Functions that are interpolated between the points of a lattice.

    Weighted means are taken, whose weights are those of a normal kernel times a linear function
    such that linear functions are reproduced (Lancaster and Salkauskas 1981). Where slopes are
    known, half of what they predict is added, by which quadratic functions are reproduced as well;
    outside of the lattice, where distances do not average to zero, the other half of the average
    distance is.
    """

    at: Floats  # shape (m, k): points of the lattice
    spacing: Floats  # shape (k,): distances of neighbours
    known: Floats  # shape (m, q): the functions at the points
    slope: Floats  # shape (m, k, r): derivatives of the first ``r`` functions

    def __call__(self, values: Floats) -> Floats:
        """Return the functions at every row of ``values``, shape ``(n, q)``."""
        apart = values[:, None] - self.at
        scaled = apart / self.spacing
        exponent = -0.5 * (scaled**2).sum(axis=2) / _KERNEL**2
        weight = np.exp(exponent - exponent.max(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        mean = np.einsum("nm,nmk->nk", weight, scaled)
        centred = scaled - mean[:, None]
        spread = np.einsum("nm,nmj,nmk->njk", weight, centred, centred)
        spread += _RIDGE * np.eye(self.spacing.size)
        tilt = np.linalg.solve(spread, mean[:, :, None])[:, :, 0]
        weight *= 1.0 - np.einsum("nmk,nk->nm", centred, tilt)
        found: Floats = weight @ self.known
        with_slope = found[:, : self.slope.shape[2]]
        for j in range(self.spacing.size):
            weighted = weight * apart[:, :, j]
            left_over = weighted.sum(axis=1, keepdims=True)
            with_slope += 0.5 * (weighted + left_over * weight) @ self.slope[:, j]
        return found


# Ratio of the difference of the scales of a split normal density to the third derivative that it
# replaces. Where this is small, it makes the divergence least: it removes 94 % of it.
_SHARE_OF_SKEWNESS, _LARGEST_SHARE = 0.586, 0.8
# Largest number of elements of the matrices that are computed at once: it bounds the memory.
_MOST_ELEMENTS = 4_000_000


@dataclass(frozen=True, slots=True)
class NestedNormal:
    """The density of hyperparameters, and of other variables whose mean and covariance they set."""

    given: Positions  # positions of the hyperparameters and of the other variables
    rest: Positions
    hyper: Component  # density of the hyperparameters
    # Means of the other variables as functions of the hyperparameters; logs of the diagonals of the
    # lower Cholesky factors of their inverse covariances; the elements of these factors below the
    # diagonal, divided by the diagonal element of their column; and, if the density is skewed,
    # third derivatives of its log in the coordinates of covariance 1
    surface: MovingLeastSquares
    pattern: Pattern  # where the elements below the diagonal are
    is_skewed: bool = False  # whether there are third derivatives

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Return ``n`` independent draws, shape ``(n, k + r)``."""
        x = np.empty((n, self.given.size + self.rest.size))
        x[:, self.given] = self.hyper.draw(n, rng)
        for rows in self._chunks(n):
            mean, log_diagonal, elements, skewness = self._moments(x[rows, self.given])
            apart = self._noise(skewness, mean.shape, rng) * np.exp(-log_diagonal)
            for j in reversed(range(self.rest.size)):
                mine = slice(self.pattern.start[j], self.pattern.start[j + 1])
                below = apart[:, self.pattern.row[mine]]
                apart[:, j] -= (elements[:, mine] * below).sum(axis=1)
            x[rows, self.rest] = mean + apart
        return x

    def log_density(self, x: Floats) -> Floats:
        """Return the normalised log density of every row of ``x`` in nats."""
        found: Floats = self.hyper.log_density(x[:, self.given])
        start = self.pattern.start
        used = np.flatnonzero(np.diff(start))
        for rows in self._chunks(len(x)):
            mean, log_diagonal, elements, skewness = self._moments(x[rows, self.given])
            apart = x[rows, self.rest] - mean
            elements *= apart[:, self.pattern.row]
            if used.size:
                apart[:, used] += np.add.reduceat(elements, start[used], axis=1)
            noise = apart * np.exp(log_diagonal)
            found[rows[:, 0]] += log_diagonal.sum(axis=1) + self._log_density(skewness, noise)
        return found

    def _moments(self, values: Floats) -> list[Floats]:
        """Return means, logs of diagonals, elements below and third derivatives, one row each."""
        r, n = self.rest.size, self.pattern.row.size
        return np.split(self.surface(values), [r, 2 * r, 2 * r + n], axis=1)

    def _noise(self, skewness: Floats, size: tuple[int, ...], rng: np.random.Generator) -> Floats:
        """Return draws of the coordinates of scale 1."""
        noise = rng.standard_normal(size)
        if not self.is_skewed:
            return noise
        share, scale, mode = _split(skewness)
        above = rng.random(size) < 0.5 * (1.0 + share)
        return mode + scale * np.where(above, 1.0 + share, share - 1.0) * np.abs(noise)

    def _log_density(self, skewness: Floats, noise: Floats) -> Floats:
        """Return the log density of rows of coordinates of scale 1."""
        log_scale = np.zeros_like(noise)
        if self.is_skewed:
            share, scale, mode = _split(skewness)
            apart = (noise - mode) / scale
            noise = apart / (1.0 + share * np.sign(apart))
            log_scale = np.log(scale)
        terms = 0.5 * (noise * noise + np.log(2.0 * np.pi)) + log_scale
        found: Floats = -terms.sum(axis=1)
        return found

    def _chunks(self, n: int) -> list[NDArray[np.int64]]:
        """Return row indices of parts, each of shape ``(n_part, 1)``."""
        n_functions = 2 * self.rest.size + self.pattern.row.size
        n_parts = -(-n * max(n_functions, self.surface.at.size) // _MOST_ELEMENTS)
        return [part[:, None] for part in np.array_split(np.arange(n), max(n_parts, 1))]


def _split(skewness: Floats) -> tuple[Floats, Floats, Floats]:
    """Return split normal densities of mean 0 and variance 1, by their third derivatives."""
    share = np.clip(_SHARE_OF_SKEWNESS * skewness, -_LARGEST_SHARE, _LARGEST_SHARE)
    scale = 1.0 / np.sqrt(1.0 + (3.0 - 8.0 / np.pi) * share**2)
    return share, scale, -np.sqrt(8.0 / np.pi) * scale * share


def functions_of(
    shapes: Sequence[Shape | SparseShape], skewness: Sequence[Floats] = ()
) -> tuple[Floats, Pattern]:
    """Return what a ``NestedNormal`` needs to know of densities at some points."""
    known = [SparseShape.of(each) if isinstance(each, Shape) else each for each in shapes]
    pattern = known[0].pattern
    column = pattern.column
    rows = [
        np.concatenate([each.mean, np.log(each.diagonal), each.below / each.diagonal[column]])
        for each in known
    ]
    functions = np.array(rows)
    return np.column_stack([functions, *([np.array(skewness)] if len(skewness) else [])]), pattern
