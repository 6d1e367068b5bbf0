"""Permutations of the labels of components, under which a density does not change."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Relabelling"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Relabelling:
    """All permutations of labels, as linear maps that preserve volumes.

    Parameters
    ----------
    names : tuple of str
        The variables whose components are relabelled together.
    maps : ndarray, shape (k!, d, d)
        A point ``x`` is mapped to ``maps[i] @ x``.
    """

    names: tuple[str, ...]
    maps: Floats

    def images(self, x: Floats) -> Floats:
        """Return the images of every row of ``x``, shape ``(k!, n, d)``."""
        images: Floats = x @ self.maps.transpose(0, 2, 1)
        return images

    def shuffled(self, x: Floats, rng: np.random.Generator) -> Floats:
        """Return every row of ``x`` with labels drawn at random, each permutation equally often."""
        n, n_maps = len(x), len(self.maps)
        chosen = (rng.permutation(n) + rng.integers(n_maps)) % n_maps
        images: Floats = np.einsum("nij,nj->ni", self.maps[chosen], x)
        return images
