"""Populations of noisy latent values, to which data points are added one by one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["NoisyValues"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NoisyValues:
    """Latent values with noise, ``z`` of Fraccaro et al. (2016), Eq. 10, of the first data points.

    Parameters
    ----------
    z : ndarray, shape (n, step)
        The values in the order in which data points are added; their signs are the labels.
    precision : ndarray, shape (step, step)
        Inverse of the prior covariance of these data points. Populations share it; it is never
        written to.
    order : ndarray, shape (n_points,)
        The data points in the order in which they are added.
    """

    z: Floats
    precision: Floats
    order: NDArray[np.int64]

    @property
    def step(self) -> int:
        """Number of data points so far."""
        return self.z.shape[1]

    def __len__(self) -> int:
        return len(self.z)

    def take(self, index: NDArray[np.int64]) -> Self:
        """Return the members at ``index`` as a new population."""
        return replace(self, z=self.z[index])

    def join(self, others: Sequence[Self]) -> Self:
        """Return this population followed by ``others``, which are at the same step."""
        return replace(self, z=np.concatenate([self.z, *(other.z for other in others)]))

    def to_draws(self) -> NDArray[Any]:
        """Return the values in the order of the data, shape ``(n, n_points)``.

        Values of points that have not been added yet are 0.
        """
        draws = np.zeros((len(self.z), len(self.order)))
        draws[:, self.order[: self.step]] = self.z
        return draws
