"""What a run knows of its schedule: how it was found, and the variance of the work it predicts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["PathVariance", "UsedSchedule"]

Floats = NDArray[np.float64]

# Names of these facts in ``RunRecord.info``, and so in the attributes of a stored result.
_NAME, _OPTIONS, _PREDICTED = "schedule", "schedule_options", "schedule_predicted_variance"


@dataclass(frozen=True, slots=True)
class PathVariance:
    """The variance of the energy along a path, as a step function of the inverse temperature.

    Parameters
    ----------
    beta : ndarray, shape (m + 1,)
        Ends of pieces of [0, 1], strictly rising from 0 to 1.
    variance : ndarray, shape (m,)
        Variance of the energy in each piece, in square nats.
    """

    beta: Floats
    variance: Floats


@dataclass(frozen=True, slots=True)
class UsedSchedule:
    """The schedule that a run used.

    Parameters
    ----------
    beta : ndarray, shape (n_stages + 1,)
        Inverse temperatures, strictly rising from 0 to 1.
    name : str
        How it was found: ``"adaptive"``, ``"linear"``, ``"sm08"``, ``"gms13"``, ``"varopt"``, or
        ``"given"`` by the user.
    options : mapping of str to number or None
        Options with which it was found.
    predicted_variance : float
        Variance of the log weights in square nats if every move drew independently, from the
        variances that the schedule was learnt from; NaN if nothing was learnt.
    """

    beta: Floats
    name: str = "given"
    options: Mapping[str, Any] = field(default_factory=dict)
    predicted_variance: float = float("nan")

    def facts(self) -> dict[str, Any]:
        """Return all but the inverse temperatures as entries of ``RunRecord.info``."""
        return {
            _NAME: self.name,
            _OPTIONS: dict(self.options),
            _PREDICTED: float(self.predicted_variance),
        }

    @classmethod
    def of(cls, beta: Floats, info: Mapping[str, Any]) -> Self:
        """Return the schedule of a record from its inverse temperatures and its ``info``.

        Results of earlier versions do not say how their schedule was found: its name is then
        ``"unknown"``.
        """
        return cls(
            beta,
            str(info.get(_NAME, "unknown")),
            info.get(_OPTIONS, {}),
            float(info.get(_PREDICTED, float("nan"))),
        )
