"""Populations of machines that have some of their visible units."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.families.rbm.state import Bits, Words, unpack

__all__ = ["PartialUnits"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PartialUnits:
    """A population of states of the first visible units, with the hidden ones summed out.

    Parameters
    ----------
    step : int
        Number of visible units that the machine has.
    visible : ndarray of uint64, shape (n, n_words)
        Visible units in the order in which they are added; those that are not there yet are 0.
    hidden : ndarray of uint64, shape (n, n_hidden_words)
        Hidden units as Gibbs sampling drew them last. They have no influence on the path, and are
        there for draws of both layers.
    order : ndarray of int64, shape (n_visible,)
        Visible units in the order in which they are added.
    n_hidden : int
        Number of hidden units of a draw, 0 if draws consist of visible units only.
    log_odds : ndarray, shape (n,), optional
        Log odds that the next unit is on, in nats; None if they have not been computed.
    """

    step: int
    visible: Words
    hidden: Words
    order: NDArray[np.int64]
    n_hidden: int
    log_odds: Floats | None = None

    def __len__(self) -> int:
        return len(self.visible)

    def take(self, index: NDArray[np.int64]) -> Self:
        """Return the members at ``index`` as a new population."""
        odds = None if self.log_odds is None else self.log_odds[index]
        return replace(self, visible=self.visible[index], hidden=self.hidden[index], log_odds=odds)

    def join(self, others: Sequence[Self]) -> Self:
        """Return this population followed by ``others``."""
        parts = [self, *others]
        known = [part.log_odds for part in parts if part.log_odds is not None]
        return replace(
            self,
            visible=np.concatenate([part.visible for part in parts]),
            hidden=np.concatenate([part.hidden for part in parts]),
            log_odds=np.concatenate(known) if len(known) == len(parts) else None,
        )

    def to_draws(self) -> Bits:
        """Return the units in the order of the machine, shape ``(n, n_units)``."""
        visible = np.empty((len(self), len(self.order)), np.uint8)
        visible[:, self.order] = unpack(self.visible, len(self.order))
        return np.hstack([visible, unpack(self.hidden, self.n_hidden)])
