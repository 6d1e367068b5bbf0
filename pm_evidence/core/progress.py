"""Reports of the progress of a block."""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Progress", "Report", "silent"]


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a block.

    Parameters
    ----------
    block : int
        Index of the block; -1 for the pilot.
    stage : int
        Number of finished stages.
    beta : float
        Present inverse temperature; NaN if chains are at several.
    ess : float
        Effective sample size of the last weights, as a share (0 to 1); NaN without weights.
    acceptance : float
        Mean acceptance probability of the last moves; NaN if there were none.
    log_evidence : float
        Log of the normalising constant at ``beta``, estimated so far, in nats.
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
    """Report nothing.

    Parameters
    ----------
    progress : Progress
        Is not looked at.
    """
