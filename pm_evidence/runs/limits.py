"""When a run ends, and what its evaluations cost."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from pm_evidence.core.exceptions import warn

__all__ = ["EVALUATIONS_EACH", "ONE_ROUND", "Limits", "growth_for", "seconds_each"]

# Evaluations for each particle of a small run from the prior, pilot included: 70 were counted with
# a black-box likelihood of two variables, which is annealed in eight stages.
EVALUATIONS_EACH = 70
# The share of ``max_time`` that the first round is to take, so that what it shows can be used.
_SHARE_OF_FIRST = 0.5
# A run that will take longer than its ``max_time`` says so at its start if it is longer than this.
_WORTH_SAYING = 10.0
# An evaluation is timed at so many prior draws, or until this share of ``max_time`` has passed.
_TIMED, _SHARE_OF_TIMING = 5, 0.1

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

    def affordable(self, seconds: float) -> float:
        """Return how many evaluations the first round may make if each takes so many seconds."""
        return _SHARE_OF_FIRST * self.max_time / seconds

    def warn_of(self, n_evaluations: float, seconds: float) -> None:
        """Warn if the least first round is expected to take longer than ``max_time``."""
        expected = n_evaluations * seconds
        if expected > max(self.max_time, _WORTH_SAYING):
            warn(
                f"max_time={self.max_time:g} is too short: an evaluation of the model takes "
                f"{seconds:.2g} s, and the smallest run needs some {n_evaluations:,.0f} of them, "
                f"which take about {expected:,.0f} s. Pass a larger max_time, or make the model "
                "faster."
            )


ONE_ROUND = Limits()


def seconds_each(limits: Limits, target: Any) -> float:
    """Return the seconds that an evaluation of a model takes; 0 without a limit of time.

    Parameters
    ----------
    limits : Limits
        Those of the run.
    target : PyMCTarget
        What is evaluated, at a few prior draws. The fastest of them counts, because the first one
        may have to be compiled.
    """
    if not np.isfinite(limits.max_time):
        return 0.0
    x = target.finite_prior_points(_TIMED, np.random.SeedSequence(0))
    taken: list[float] = []
    while len(taken) < len(x) and sum(taken) <= _SHARE_OF_TIMING * limits.max_time:
        started = time.perf_counter()
        target.evaluate(x[len(taken)][None])
        taken.append(time.perf_counter() - started)
    return min(taken, default=0.0)


def growth_for(error: float, target: float, reserve: float) -> float:
    """Return by which multiple of the draws so far an error needs more, with a factor of reserve.

    Infinite where there is no error that could be reduced.
    """
    excess = error / target
    return reserve * excess**2 - 1.0 if excess < _FURTHEST else np.inf
