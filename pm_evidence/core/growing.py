"""The contracts of paths on which data, or variables, are added."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["FindsSteps", "Growing", "Reseedable"]


@runtime_checkable
class FindsSteps(Protocol):
    """A path that finds the length of a step at less cost than by trying out many lengths."""

    def next_beta(self, state: Any, beta: float, ess: float) -> float:
        """Return the next inverse temperature; see ``schedules.adaptive.next_beta``."""
        ...


@runtime_checkable
class Growing(Protocol):
    """A path whose states grow: see ``paths.growing.GrowingPath``."""

    def reached(self, state: Any, beta: float, streams: NDArray[np.uint64]) -> Any:
        """Return the population with what the density at ``beta`` needs and it does not have yet.

        Member ``i`` draws from ``streams[i]`` only.
        """
        ...

    def part(self, start: float, stop: float) -> str:
        """Return in words what is added between two inverse temperatures, for messages."""
        ...


@runtime_checkable
class Reseedable(Protocol):
    """A path that can make independent states at every ``beta``; see ``samplers.arm``.

    Attributes
    ----------
    can_reseed : bool
        Whether it has what it makes them from, such as data.
    """

    can_reseed: bool

    def reseeded(self, n: int, beta: float, n_moves: int, seed: np.random.SeedSequence) -> Any:
        """Return ``n`` independent states that ``n_moves`` moves have brought to ``beta``."""
        ...
