"""Populations of targets whose states are points in R^d."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Particles", "Points"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Particles:
    """Points with their log densities.

    Parameters
    ----------
    x : ndarray, shape (n, n_dim)
        Points on the unconstrained scale; discrete coordinates hold whole numbers.
    log_density : ndarray, shape (n, 2)
        Log prior (with Jacobian) and log likelihood of each point, in nats.
    gradient : ndarray, shape (n, 2, n_dim), or None
        Gradients of both; None if not known at the present points.
    """

    x: Floats
    log_density: Floats
    gradient: Floats | None = None

    def __len__(self) -> int:
        return len(self.x)

    def take(self, index: NDArray[np.int64]) -> Self:
        """Return the members at ``index`` as a new population."""
        gradient = None if self.gradient is None else self.gradient[index]
        return type(self)(self.x[index], self.log_density[index], gradient)

    def join(self, others: Sequence[Self]) -> Self:
        """Return this population followed by ``others``."""
        parts = [self, *others]
        gradients = [p.gradient for p in parts if p.gradient is not None]
        return type(self)(
            np.concatenate([p.x for p in parts]),
            np.concatenate([p.log_density for p in parts]),
            np.concatenate(gradients) if len(gradients) == len(parts) else None,
        )

    def to_draws(self) -> Floats:
        """Return the points, shape ``(n, n_dim)``."""
        return self.x


@dataclass(frozen=True, slots=True)
class Points:
    """Points alone.

    Parameters
    ----------
    x : ndarray, shape (n, n_dim)
        The points.
    """

    x: Floats

    def __len__(self) -> int:
        return len(self.x)

    def take(self, index: NDArray[np.int64]) -> Self:
        """Return the members at ``index`` as a new population."""
        return type(self)(self.x[index])

    def join(self, others: Sequence[Self]) -> Self:
        """Return this population followed by ``others``."""
        return type(self)(np.concatenate([self.x, *(other.x for other in others)]))

    def to_draws(self) -> Floats:
        """Return the points, shape ``(n, n_dim)``."""
        return self.x
