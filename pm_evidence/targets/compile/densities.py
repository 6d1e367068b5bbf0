"""What densities have in common, whatever evaluates them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Density(ABC):
    """Two log densities, and their gradients, as a function of a population."""

    has_gradient: bool  # whether there are gradients
    # Operations without a compiled form: correct, but slow and under Python's lock
    slow_ops: tuple[str, ...] = ()
    by_rows: bool = False  # whether each row is evaluated alone: they may be divided among cores

    @abstractmethod
    def write(self, x: Floats, log_density: Floats, gradient: Floats | None = None) -> None:
        """Write log densities ``(n, 2)`` at ``x``, and gradients ``(n, 2, n_dim)`` if asked for."""

    @abstractmethod
    def reading(self, others: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> Self:
        """Return the density with other arrays in the place of some; see `exchanged`."""

    def evaluate(self, x: Floats) -> tuple[Floats, Floats | None]:
        """Return log densities ``(n, 2)`` and gradients ``(n, 2, n_dim)`` (or None) at ``x``."""
        x = np.ascontiguousarray(x)
        log_density = np.empty((len(x), 2))
        gradient = np.empty((len(x), 2, x.shape[1])) if self.has_gradient else None
        self.write(x, log_density, gradient)
        return log_density, gradient

    def values(self, x: Floats) -> Floats:
        """Return log densities ``(n, 2)`` at ``x``; gradients are not kept."""
        x = np.ascontiguousarray(x)
        log_density = np.empty((len(x), 2))
        self.write(x, log_density)
        return log_density
