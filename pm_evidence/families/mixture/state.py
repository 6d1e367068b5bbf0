"""Populations of parameters of a mixture, with the components of the points so far."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["ABSENT", "MixtureStates", "states_of"]

Floats = NDArray[np.float64]

ABSENT = -1  # in place of the component of a point that has not been added yet


@dataclass(frozen=True, slots=True)
class MixtureStates:
    """A population of parameters and assignments.

    Parameters
    ----------
    step : int
        Number of points that have been added.
    mean, variance, weight : ndarray of float64, shape (n, k)
        Parameters of the components; ``variance`` has one column if all components share it.
    component : ndarray of int8, shape (n, n_points)
        Component of each point, in the order of the data; ``ABSENT`` if it is not there yet.
    """

    step: int
    mean: Floats
    variance: Floats
    weight: Floats
    component: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays by name, in the order of the coordinates of a draw."""
        return {
            "mean": self.mean,
            "variance": self.variance,
            "weight": self.weight,
            "component": self.component,
        }

    def take(self, index: NDArray[np.int64]) -> Self:
        """Return the members at ``index`` as a new population."""
        return self.with_arrays({name: rows[index] for name, rows in self.arrays.items()})

    def join(self, others: Sequence[Self]) -> Self:
        """Return this population followed by ``others``."""
        parts = [self.arrays, *(other.arrays for other in others)]
        return self.with_arrays(
            {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        )

    def with_arrays(self, arrays: dict[str, NDArray[Any]]) -> Self:
        """Return a population with other arrays; see ``arrays``."""
        found: Self = replace(self, **arrays)  # type: ignore[arg-type]
        return found

    def to_draws(self) -> Floats:
        """Return means, variances, weights and components, shape ``(n, n_dim)``."""
        return np.hstack([rows.astype(np.float64) for rows in self.arrays.values()])


def states_of(draws: Floats, n_components: int, n_variances: int) -> MixtureStates:
    """Return the population whose ``to_draws`` is ``draws``; see ``MixtureStates``."""
    ends = np.cumsum([n_components, n_variances, n_components])
    mean, variance, weight, component = (
        np.array(part, order="C") for part in np.split(draws, ends, axis=1)
    )
    step = int((component[0] != ABSENT).sum()) if len(draws) else 0
    return MixtureStates(step, mean, variance, weight, component.astype(np.int8))
