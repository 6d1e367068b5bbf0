"""Paths whose states grow: by one variable, or one data point, at every step."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class GrowingPath(ABC):
    """A sequence of densities ``f_0, ..., f_N``, each over more variables than the one before.

    Derive from it and define `n_steps` and the abstract methods. ``f_k`` is the density at
    ``beta = k / N``, and there is none between these. The reference ``f_0`` is normalised. States
    have an attribute ``step``, the index ``k`` of the density that they belong to.

    A step first weights a state ``x`` of ``f_k`` by the smoothed ratio ``W(x)``, in which what is
    new has been integrated out, and then draws what is new from its conditional distribution given
    ``x``; the states then follow ``f_{k + 1}``. Kernels do the second part before they move states:
    see ``kernels.cycle.Grows``.

    Notes
    -----
    Fraccaro, Paquet and Winther (2016), Eq. 3 and Algorithm 1: ``smoothed`` is the logarithm of
    their smooth step, ``extended`` is their augment step.
    """

    @property
    @abstractmethod
    def n_steps(self) -> int:
        """Number ``N`` of steps."""

    @abstractmethod
    def draw(self, n: int, seed: np.random.SeedSequence) -> Any:
        """Return ``n`` independent draws from the reference, at step 0."""

    @abstractmethod
    def at(self, draws: NDArray[Any]) -> Any:
        """Return the population at step ``N`` whose ``to_draws`` is ``draws``."""

    @abstractmethod
    def smoothed(self, state: Any) -> Floats:
        """Return ``log W``, shape ``(n,)``, in nats, for the step that follows ``state.step``.

        ``W(x)`` is the integral of ``f_{k + 1} / f_k`` over what the step adds.
        """

    @abstractmethod
    def extended(self, state: Any, streams: NDArray[np.uint64]) -> Any:
        """Return the population one step later: what is new is drawn given the rest.

        Member ``i`` draws from ``streams[i]`` only.
        """

    @abstractmethod
    def shrunk(self, state: Any) -> Any:
        """Return the population one step earlier: what came last is left out."""

    def step_of(self, beta: float) -> int:
        """Return the step whose density is that at ``beta``."""
        return round(beta * self.n_steps)

    def reached(self, state: Any, beta: float, streams: NDArray[np.uint64]) -> Any:
        """Return the population at the step of ``beta``, extended if it is one step behind."""
        return self.extended(state, streams) if state.step < self.step_of(beta) else state

    def part(self, start: float, stop: float) -> str:
        """Return the step in words, for messages."""
        return f"step {self.step_of(stop)} of {self.n_steps}"

    def log_ratio(self, state: Any, start: float, stop: float) -> Floats:
        """Return the smoothed log ratio of the step from ``start`` to ``stop``, shape ``(n,)``.

        The states belong to the earlier one of the two, in both directions.
        """
        first, last = self.step_of(start), self.step_of(stop)
        if abs(first - last) != 1 or state.step != min(first, last):
            raise ValueError(
                f"states at step {state.step} of {self.n_steps} must go one step at a time, got "
                f"start={start:g} and stop={stop:g}, steps {first} and {last}; leave schedule out."
            )
        ratio = self.smoothed(state)
        return ratio if last > first else -ratio

    def energy(self, state: Any, beta: float) -> Floats:
        """Return minus the slope of the log density over the step that follows, in nats."""
        if state.step == self.n_steps:
            return np.zeros(len(state))
        return -self.n_steps * self.smoothed(state)

    def order(self, state: Any) -> NDArray[np.int64]:
        """Return the order of the smoothed ratios of the step that follows."""
        if state.step == self.n_steps:
            return np.arange(len(state))
        return np.argsort(self.smoothed(state), kind="stable")
