"""Posterior draws that reverse paths start from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.numerics import normalised
from pm_evidence.core.records import BlockRecord
from pm_evidence.schedules.adaptive import no_support

__all__ = ["ReverseStarts"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ReverseStarts:
    """Posterior draws that reverse paths may start from.

    Parameters
    ----------
    draws : ndarray, shape (n, ...)
        In the target's own coordinates.
    group : ndarray of int64, shape (n,), or None
        Draws of different groups are independent; None if all draws are.
    probability : ndarray, shape (n,), optional
        Probability of each draw; equal if left out.
    kind : str
        Where the draws come from: ``"islands"``; ``"relaxed"``, states near the target that have
        to relax first; ``"given"`` by the user; or ``"exact"``, an exact draw from the target.
    """

    draws: NDArray[Any]
    group: NDArray[np.int64] | None = None
    probability: Floats | None = None
    kind: str = "islands"

    @classmethod
    def of_islands(cls, blocks: Sequence[BlockRecord]) -> "ReverseStarts":
        """Return the draws of islands, with probabilities proportional to their evidence.

        Raises
        ------
        NumericalError
            If no island reached the target.
        """
        alive = [block for block in blocks if block.draws is not None]
        if not alive:
            raise no_support(len(blocks))
        draws = [np.asarray(block.draws) for block in alive]
        group = np.repeat([block.block for block in alive], [len(part) for part in draws])
        log_weight = -np.repeat([block.work[0] for block in alive], [len(part) for part in draws])
        return cls(np.concatenate(draws), group, normalised(log_weight))

    @property
    def relaxes(self) -> bool:
        """Whether paths first make moves at the target.

        These moves separate paths that share one exact draw, which remain exact, and relax states
        near the target.
        """
        return self.kind in ("exact", "relaxed")

    def take(self, index: NDArray[np.int64]) -> "ReverseStarts":
        """Return the draws at ``index``, of equal probability."""
        group = None if self.group is None else self.group[index]
        return replace(self, draws=self.draws[index], group=group, probability=None)
