"""The groups of observations, and the observations that are missing."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pytensor.graph.basic import Variable

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.estimated.user_input import given_value

__all__ = ["GroupedData"]


@dataclass(frozen=True)
class GroupedData:
    """Observations in groups.

    Parameters
    ----------
    labels : ndarray, shape (n_groups,)
        Label of every group, sorted.
    index : ndarray of int64, shape (n_obs,)
        Position of every observation's group among the labels.
    kept : ndarray of int64, shape (n_kept,)
        Rows that are not missing.
    event_shape : tuple of int
        Shape of one observation.
    """

    labels: NDArray[Any]
    index: NDArray[np.int64]
    kept: NDArray[np.int64]
    event_shape: tuple[int, ...]

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.labels)

    @classmethod
    def from_user(cls, name: str, observed: Any, groups: Any) -> Self:
        """Return data and groups after checking them.

        Raises
        ------
        TypeError, ValueError
            If data or groups have a wrong type, shape or value.
        """
        values = _values(name, observed)
        labels, index = _by_group(groups, len(values))
        kept = np.flatnonzero(~_missing_rows(name, values))
        empty = np.setdiff1d(np.arange(len(labels)), index[kept])
        if empty.size:
            raise ValueError(
                f"every group must have an observation that is not missing, but {empty.size} of "
                f"{len(labels)} have none, the first {labels[empty[0]].item()!r}: nothing is known "
                "of its effect. Drop its rows from observed and groups."
            )
        return cls(labels, index, kept, values.shape[1:])

    def without_missing(self, name: str, observed: NDArray[Any]) -> NDArray[Any]:
        """Return the rows that are not missing.

        Raises
        ------
        ModelError
            If the shape of the data, or the missing rows, have changed.
        """
        values = _values(name, observed)
        shape = (len(self.index), *self.event_shape)
        if values.shape != shape or not np.array_equal(
            np.flatnonzero(~_missing_rows(name, values)), self.kept
        ):
            raise ModelError(
                f"data of {name!r} may change in their values only, but shape {values.shape} "
                f"(it was {shape}) or missing rows have changed; build the model again."
            )
        return values[self.kept]

    def with_type_of(self, variable: Variable, observed: Any) -> Any:
        """Return the data as the model stores them: in the variable's type unless some are NaN."""
        if isinstance(observed, Variable):
            return observed
        values = _values("observed", observed)
        converted = values.astype(variable.dtype) if len(self.kept) == len(values) else values
        return converted if np.array_equal(converted, values) else values


def _values(name: str, observed: Any) -> NDArray[Any]:
    if isinstance(observed, np.ma.MaskedArray) and observed.dtype.kind in "biuf":
        observed = np.where(np.ma.getmaskarray(observed), np.nan, observed.data)
    values = given_value(f"observed of {name!r}", observed)
    if values.dtype.kind not in "biuf" or values.ndim == 0 or len(values) == 0:
        raise TypeError(
            f"observed of {name!r} must be numbers, one row for every observation, got "
            f"{values.dtype} of shape {values.shape}; pass an array, with NaN where one is missing."
        )
    return values


def _missing_rows(name: str, values: NDArray[Any]) -> NDArray[np.bool_]:
    rows = values.reshape(len(values), -1)
    bad = np.flatnonzero(np.isinf(rows).any(axis=1))
    if bad.size:
        raise ValueError(
            f"observed of {name!r} must be finite, got {values[bad[0]]} in row {bad[0]}; correct "
            "it, or put NaN where an observation is missing."
        )
    missing: NDArray[np.bool_] = np.isnan(rows).any(axis=1)
    partly = np.flatnonzero(missing & ~np.isnan(rows).all(axis=1))
    if partly.size:
        raise ValueError(
            f"an observation of {name!r} must be missing as a whole, but row {partly[0]} is "
            f"{values[partly[0]]}; put NaN in all of it."
        )
    return missing


def _by_group(groups: Any, n_obs: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    groups = given_value("groups", groups)
    if groups.shape != (n_obs,):
        raise ValueError(
            f"groups must give the group of each of the {n_obs} observations, got shape "
            f"{groups.shape}; pass one label for every row of observed."
        )
    if groups.dtype.kind == "f" and not np.array_equal(groups, np.floor(groups)):
        raise ValueError(
            "groups must be whole numbers or labels, got "
            f"{groups[groups != np.floor(groups)][0]}; every observation needs a group."
        )
    if groups.dtype.kind not in "biufUSOM":
        raise ValueError(
            f"groups must be whole numbers or labels, got dtype {groups.dtype}; pass one label for "
            "every row of observed."
        )
    if groups.dtype.kind == "O":
        if not all(isinstance(label, str) for label in groups):
            raise ValueError(
                "groups must be whole numbers or labels, got a mixture of types; every "
                "observation needs a group: pass strings, for example groups.astype(str)."
            )
        groups = groups.astype(str)
    labels, index = np.unique(groups, return_inverse=True)
    return labels, index.astype(np.int64)
