"""The path from the posterior of one model to that of another."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pm_evidence.paths.geometric import GeometricPath
from pm_evidence.targets.points import Particles

__all__ = ["PairPath"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PairPath(GeometricPath):
    """``log f_beta(x) = (1 - beta) log f_a(x) + beta log f_b(x)``.

    Parameters
    ----------
    target : PairTarget
        Defines ``f_a`` and ``f_b``, which are not normalised.
    starts : ndarray, shape (n, n_dim)
        Draws from the posterior of the first model.
    """

    starts: Floats

    def draw(self, n: int, seed: np.random.SeedSequence) -> Particles:
        """Return ``n`` of the starts: all in their order, or some at random if ``n`` differs."""
        if n == len(self.starts):
            return self.at(self.starts)
        return self.at(self.starts[np.random.default_rng(seed).integers(len(self.starts), size=n)])
