"""When a run ends."""

from dataclasses import dataclass

import numpy as np

__all__ = ["ONE_ROUND", "Limits"]


@dataclass(frozen=True)
class Limits:
    """When the rounds of a run end.

    Parameters
    ----------
    target_mcse : float or None
        Error in nats at which the run ends; None for a single round.
    max_time : float
        Seconds after which no further round starts.
    max_draws : float
        Number of draws beyond which no further round starts.
    asked : bool
        Whether the user set any of them: a run that ends before it has the error then says so.
    """

    target_mcse: float | None = None
    max_time: float = np.inf
    max_draws: float = np.inf
    asked: bool = True


ONE_ROUND = Limits()
