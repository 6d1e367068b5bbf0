"""When a run ends."""

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["ONE_ROUND", "Limits", "growth_for"]

# An error that is further from its target than this is no error.
_FURTHEST = 1e9


@dataclass(frozen=True)
class Limits:
    """When the rounds of a run end.

    Parameters
    ----------
    target_mcse : float or None
        Error in nats at which the run ends; None for a single round.
    max_time : float
        Seconds; a further round starts only if it is expected to end within this time.
    max_draws : float
        Largest number of draws that further rounds may add up to.
    asked : bool
        Whether the user set any of these limits. The status then tells if the run ended before it
        reached ``target_mcse``; otherwise the message does.
    """

    target_mcse: float | None = None
    max_time: float = np.inf
    max_draws: float = np.inf
    asked: bool = True

    def missed(self, reason: str) -> dict[str, Any]:
        """Return the facts by which estimates say that the target was not reached, and why."""
        if not self.asked:
            return {"short_of": self.target_mcse}
        return {"stopped_by": str(reason), "target_mcse": self.target_mcse}


ONE_ROUND = Limits()


def growth_for(error: float, target: float, reserve: float) -> float:
    """Return by which multiple of the draws so far an error needs more, with a factor of reserve.

    Infinite where there is no error that could be reduced.
    """
    excess = error / target
    return reserve * excess**2 - 1.0 if excess < _FURTHEST else np.inf
