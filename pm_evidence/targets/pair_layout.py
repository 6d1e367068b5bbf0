"""The coordinates of two models side by side, those of shared variables only once."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.exceptions import ModelError

__all__ = ["PairLayout"]

Positions = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PairLayout:
    """Where the coordinates of two models lie in one flat vector.

    Parameters
    ----------
    of_model : tuple of two ndarray of int64
        Position of every coordinate of each model. The coordinates of the first model come first,
        then those that only the second one has.
    own : tuple of two ndarray of int64
        Positions of the coordinates that only this model has.
    shared : ndarray of int64
        Positions of the coordinates that both models have.
    names : tuple of str
        Names of the shared variables.
    period : ndarray, shape (n_dim,)
        Period of circular coordinates; 0 for all others.
    """

    of_model: tuple[Positions, Positions]
    own: tuple[Positions, Positions]
    shared: Positions
    names: tuple[str, ...]
    period: NDArray[np.float64]

    @classmethod
    def of(cls, first: Any, second: Any) -> Self:
        """Return the layout of two targets.

        Variables of the same name and shape are shared. Of two vectors of different length, such as
        the coefficients of nested regressions, the elements up to the shorter length are shared.

        Parameters
        ----------
        first, second : PyMCTarget
            The two models.

        Raises
        ------
        ModelError
            If they share no variable.
        """
        there = {variable.name: variable for variable in first.layout.variables}
        position = np.full(second.n_dim, -1, np.int64)
        names = []
        for variable in second.layout.variables:
            other = there.get(variable.name)
            n = 0 if other is None else _n_shared(other.shape, variable.shape)
            if other is None or not n:
                continue
            mine, its = (np.arange(n) + found.start for found in (variable, other))
            if np.array_equal(second.period[mine], first.period[its]):
                position[mine] = its
                names.append(variable.name)
        if not names:
            raise ModelError(
                "the models must share a free variable, of the same name and shape, got "
                f"{_named(first)} and {_named(second)}; give variables with the same meaning the "
                "same name, or compare the evidences of both: pe.compare_models."
            )
        shared = np.sort(position[position >= 0])
        missing = np.flatnonzero(position < 0)
        position[missing] = first.n_dim + np.arange(missing.size)
        everyone = np.arange(first.n_dim)
        own = np.setdiff1d(everyone, shared), position[missing]
        period = np.append(first.period, second.period[missing])
        return cls((everyone, position), own, shared, tuple(names), period)

    @property
    def n_dim(self) -> int:
        """Length of the flat vector."""
        return self.of_model[0].size + self.own[1].size

    @property
    def aligned(self) -> Positions:
        """Positions of the shared coordinates that are not circular."""
        return self.shared[self.period[self.shared] == 0.0]

    def aligned_of(self, k: int) -> Positions:
        """Return the indices of these coordinates among those of a model."""
        return np.argsort(self.of_model[k])[
            np.searchsorted(np.sort(self.of_model[k]), self.aligned)
        ]


def _n_shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Return how many elements two variables of one name share."""
    if one == other:
        return int(np.prod(one))
    return min(one[0], other[0]) if len(one) == len(other) == 1 else 0


def _named(target: Any) -> str:
    return ", ".join(f"{v.name} {v.shape}" for v in target.layout.variables) or "(none)"
