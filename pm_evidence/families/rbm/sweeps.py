"""What the kernels of restricted Boltzmann machines share: sweeps through many stages."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import MoveInfo, StageBatch
from pm_evidence.families.rbm.state import Units
from pm_evidence.families.sweep_settings import SweepSettings

__all__ = ["Sweeps"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sweeps(SweepSettings):
    """The base of kernels that move through many stages in compiled code.

    Their compiled loops read inverse temperatures in one form, shape ``(n_stages, 1)`` if members
    share them and ``(n_stages, n)`` if each has its own.
    """

    def advance(
        self, path: Any, state: Units, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Units, MoveInfo]:
        """Move every member; see ``contracts.Kernel``."""
        return self._once(path, state, np.array([beta]), streams)

    def advance_each(
        self, path: Any, state: Units, beta: Floats, streams: NDArray[np.uint64]
    ) -> tuple[Units, MoveInfo]:
        """Move member ``i`` at ``beta[i]``; see ``contracts.PerMemberKernel``.

        Raises
        ------
        ValueError
            If there is not one inverse temperature for each member.
        """
        if np.shape(beta) != (len(state),):
            raise ValueError(
                f"beta must have one inverse temperature for each of the {len(state)} members, got "
                f"shape {np.shape(beta)}; pass an array of shape ({len(state)},)."
            )
        return self._once(path, state, np.asarray(beta)[None], streams)

    @abstractmethod
    def advance_many(
        self, path: Any, state: Units, beta: Floats, streams: NDArray[np.uint64]
    ) -> StageBatch:
        """Move every member at every inverse temperature; see ``contracts.BatchedKernel``.

        ``beta`` has the shape ``(n_stages,)``, or ``(n_stages, n)`` with one column for each
        member.
        """

    def _once(
        self, path: Any, state: Units, beta: Floats, streams: NDArray[np.uint64]
    ) -> tuple[Units, MoveInfo]:
        """Move through one stage, and leave the population that is given as it is."""
        state = replace(state, layers=tuple(words.copy() for words in state.layers))
        batch = self.advance_many(path, state, beta, streams)
        return batch.state, MoveInfo(float(batch.acceptance[0]), batch.n_evaluations)

    @staticmethod
    def _columns(beta: Floats, n: int) -> Floats:
        """Return inverse temperatures of ``n`` members as compiled code reads them."""
        columns = np.array(beta, np.float64, order="C").reshape(len(beta), -1)
        if columns.shape[1] not in (1, n):
            raise ValueError(
                f"beta must have one column for each of the {n} members, or the shape (n_stages,), "
                f"got {np.shape(beta)}; pass one of these."
            )
        return columns
