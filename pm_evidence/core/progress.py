"""What a running block tells of itself."""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Progress", "Report", "silent"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a block is.

    Parameters
    ----------
    block : int
        Index of the block; -1 for the pilot.
    stage : int
        Stages done.
    beta : float
        Inverse temperature reached.
    ess : float
        Effective sample size of the last weights, as a share (0 to 1).
    acceptance : float
        Mean acceptance probability of the last moves.
    log_evidence : float
        Running log evidence at ``beta`` in nats.
    """

    block: int
    stage: int
    beta: float
    ess: float
    acceptance: float
    log_evidence: float


# A report may raise to stop the block that makes it.
Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Report nothing."""
