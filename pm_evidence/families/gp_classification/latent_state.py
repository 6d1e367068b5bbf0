"""Populations of latent values of all data points."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["LatentValues"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LatentValues:
    """Latent values ``x``, with what weights need.

    Parameters
    ----------
    x : ndarray, shape (n, n_points)
        The values in the order of the data.
    log_likelihood : ndarray, shape (n,)
        Log probability of the labels given ``x``, in nats.
    log_factors : ndarray, shape (n,)
        Log of the product of the Gaussian factors that approximate the likelihood, in nats.
    """

    x: Floats
    log_likelihood: Floats
    log_factors: Floats

    def __len__(self) -> int:
        return len(self.x)

    def take(self, index: NDArray[np.int64]) -> Self:
        """Return the members at ``index`` as a new population."""
        return type(self)(self.x[index], self.log_likelihood[index], self.log_factors[index])

    def join(self, others: Sequence[Self]) -> Self:
        """Return this population followed by ``others``."""
        parts = [self, *others]
        return type(self)(
            np.concatenate([part.x for part in parts]),
            np.concatenate([part.log_likelihood for part in parts]),
            np.concatenate([part.log_factors for part in parts]),
        )

    def to_draws(self) -> NDArray[Any]:
        """Return the values, shape ``(n, n_points)``."""
        return self.x
