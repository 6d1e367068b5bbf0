"""Block Gibbs sampling of machines that have some of their visible units."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count
from pm_evidence.core.contracts import MoveInfo
from pm_evidence.families.rbm.gibbs import draw_layers
from pm_evidence.families.rbm.partial_state import PartialUnits
from pm_evidence.families.sweep_settings import SweepSettings

__all__ = ["PartialGibbs"]

_MOST_SWEEPS = 1_000_000
_TOGETHER = 256  # members whose inputs stay in the cache


@dataclass(frozen=True)
class PartialGibbs:
    """Draws all hidden units given the visible ones, and then the visible units so far.

    Parameters
    ----------
    n_sweeps : int
        Number of times that both layers are drawn.

    Notes
    -----
    The hidden units do not belong to the state: they are drawn first and left behind. As a move of
    the visible units alone, Gibbs sampling is its own time reversal.
    """

    n_sweeps: int = 10

    def __post_init__(self) -> None:
        check_count("n_sweeps", self.n_sweeps, 1, _MOST_SWEEPS)

    def advance(
        self, path: Any, state: PartialUnits, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[PartialUnits, MoveInfo]:
        """Move every member, with the units that it has; see ``contracts.Kernel``."""
        n, layers = len(state), path.layers_at(state.step)
        n_words = layers[0].there.size
        visible, hidden = np.zeros_like(state.visible), state.hidden.copy()
        some = state.visible[:, :n_words].copy()
        settings, beta_of_all = SweepSettings(self.n_sweeps), np.ones((1, 1))
        for first in range(0, n, _TOGETHER):
            part = slice(first, first + _TOGETHER)
            found = np.empty((1, 2, len(some[part])))
            units = some[part], hidden[part]
            draw_layers(layers, units, beta_of_all, settings, streams[part], found)
        visible[:, :n_words] = some
        moved = replace(state, visible=visible, hidden=hidden, log_odds=None)
        return path.with_odds(moved), MoveInfo(1.0, 2 * n * self.n_sweeps)

    def reversed(self) -> Self:
        """Return the kernel itself: it is reversible."""
        return self

    def settings(self) -> dict[str, float]:
        """Return the number of sweeps."""
        return {"n_sweeps": float(self.n_sweeps)}
