"""What Ctrl-C leaves of a run: the estimates of what had finished."""

from dataclasses import replace
from math import isfinite, nan

from pm_evidence.core.interrupts import interrupt_answered
from pm_evidence.core.records import LogEvidence, Role, RunRecord
from pm_evidence.core.statuses import Status
from pm_evidence.estimators.of_run import estimates
from pm_evidence.execution.journal import Journal

__all__ = ["best_of", "stopped", "was_interrupted"]


def was_interrupted(record: RunRecord) -> bool:
    """Return whether a record is what Ctrl-C left of a run."""
    return record.info.get("stopped_by") == Status.INTERRUPTED


def best_of(whole: RunRecord, latest: RunRecord) -> RunRecord:
    """Return which record an interrupted run ends with.

    Parameters
    ----------
    whole : RunRecord
        That of all whole rounds.
    latest : RunRecord
        The same with the finished part of the round that was interrupted, or without the bridges of
        its islands.

    Notes
    -----
    A bridge is far more precise than a few more islands without one, and is therefore kept.
    """
    blocks = (block for blocks in whole.blocks.values() for block in blocks)
    return whole if any(block.bridge is not None for block in blocks) else latest


def stopped(
    journal: Journal, record: RunRecord, target_mcse: float | None, error: KeyboardInterrupt
) -> tuple[RunRecord, list[LogEvidence]]:
    """Return the record of an interrupted run and its estimates, whose first is never ``"ok"``.

    Parameters
    ----------
    journal : Journal
        That of the run, which is closed: what follows is not a part of the run.
    record : RunRecord
        What had finished.
    target_mcse : float or None
        The error in nats that was asked for.
    error : KeyboardInterrupt
        What interrupted the run.

    Raises
    ------
    KeyboardInterrupt
        The same one, if no estimate with an error can be made.
    """
    if not record.of(Role.GIVEN) and record.work(Role.FORWARD).size < 2:
        raise error
    target = nan if target_mcse is None else target_mcse
    info = {**record.info, "stopped_by": Status.INTERRUPTED.value, "target_mcse": target}
    record = replace(record, info=info)
    found = estimates(record)
    if not (isfinite(found[0].value) and isfinite(found[0].mcse)):
        raise error
    journal.close()
    interrupt_answered()
    return record, found
