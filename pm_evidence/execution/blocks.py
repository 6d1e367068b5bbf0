"""Independent blocks over threads, or over any ``concurrent.futures`` executor."""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED as FIRST
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Protocol

from threadpoolctl import threadpool_limits

from pm_evidence.core.exceptions import exceptions_of_users
from pm_evidence.core.interrupts import abandonable, check_interrupt
from pm_evidence.core.progress import Progress, Report, silent

__all__ = ["Stopped", "Task", "run_blocks"]

_log = logging.getLogger("pymc.pm_evidence")
_MAX_TRIES = 3
# How long the main thread sleeps between looks at the futures, so that Ctrl-C is heard.
_POLL_SECONDS = 0.5


class Stopped(Exception):
    """Raised inside a block that has been asked to stop."""


class Task(Protocol):
    """What runs one block; it is pickled when blocks run in other processes."""

    def __call__(self, report: Report) -> Any:
        """Run the block and return its record."""
        ...


@dataclass(frozen=True, slots=True)
class _Failure:
    """An error of the block itself, as against one of the worker that ran it."""

    error: Exception


def run_blocks(
    tasks: Sequence[Task],
    *,
    cores: int,
    executor: Executor | None = None,
    report: Report = silent,
    done: Callable[[int, Any], None] = lambda block, record: None,
) -> list[Any]:
    """Run blocks and return their records in the same order.

    Parameters
    ----------
    tasks : sequence of callable
        One for each block; its result does not depend on where or when it runs.
    cores : int
        Threads, when there is no executor.
    executor : concurrent.futures.Executor, optional
        Where blocks run instead; it is not shut down.
    report : callable
        Told of the progress of blocks that run in threads.
    done : callable
        Told of the position of every finished block, and of its record.

    Raises
    ------
    Exception
        The error of a block, as it was raised there.

    Notes
    -----
    A block whose worker dies is run again, up to three times; when a process pool breaks, the
    blocks that are left run in threads of this process. Numbers do not depend on it.
    """
    records: dict[int, Any] = {}
    if executor is not None:
        _run_elsewhere(tasks, executor, records, done)
    _run_in_threads(tasks, cores, report, records, done)
    return [records[position] for position in range(len(tasks))]


def _run_in_threads(
    tasks: Sequence[Task],
    cores: int,
    report: Report,
    records: dict[int, Any],
    done: Callable[[int, Any], None],
) -> None:
    missing = [position for position in range(len(tasks)) if position not in records]
    if not missing:
        return
    stop = threading.Event()

    def watch(progress: Progress) -> None:
        if stop.is_set():
            raise Stopped
        report(progress)

    pool = ThreadPoolExecutor(min(cores, len(missing)), thread_name_prefix="pm_evidence")
    try:
        with threadpool_limits(limits=1):
            futures = {pool.submit(_stoppable, tasks[i], watch, stop): i for i in missing}
            _collect(futures, records, done)
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _stoppable(task: Task, watch: Report, stop: threading.Event) -> Any:
    """Run a block here, and end it between two passes of the compiler when it is to stop."""

    def check() -> None:
        if stop.is_set():
            raise Stopped

    with abandonable(check):
        return task(watch)


def _collect(
    futures: dict[Future[Any], int], records: dict[int, Any], done: Callable[[int, Any], None]
) -> None:
    while futures:
        finished, _ = wait(futures, timeout=_POLL_SECONDS, return_when=FIRST)
        check_interrupt()
        for future in finished:
            block = futures.pop(future)
            records[block] = future.result()
            done(block, records[block])


def _run_elsewhere(
    tasks: Sequence[Task],
    executor: Executor,
    records: dict[int, Any],
    done: Callable[[int, Any], None],
) -> None:
    """Fill ``records`` from an executor; leave out what a broken one did not finish."""
    tries = dict.fromkeys(range(len(tasks)), 1)
    futures: dict[Future[Any], int] = {}
    try:
        for block, task in enumerate(tasks):
            futures[executor.submit(_guarded, task, 1)] = block
        while futures:
            finished, _ = wait(futures, timeout=_POLL_SECONDS, return_when=FIRST)
            for future in finished:
                block = futures.pop(future)
                try:
                    outcome = future.result()
                except BrokenExecutor:
                    raise
                except Exception as error:  # whatever the executor makes of a lost worker
                    if tries[block] == _MAX_TRIES:
                        raise
                    tries[block] += 1
                    _log.warning("Block %d was lost (%s); it runs again.", block, error)
                    futures[executor.submit(_guarded, tasks[block], tries[block])] = block
                    continue
                if isinstance(outcome, _Failure):
                    raise outcome.error
                records[block] = outcome
                done(block, outcome)
    except BrokenExecutor:
        left = len(tasks) - len(records)
        _log.warning("A worker died and took the pool along; %d blocks run here instead.", left)
    finally:
        for future in futures:
            future.cancel()


def _guarded(task: Task, attempt: int) -> Any:
    """Run a block in a worker; Dask would answer a second, equal call with the first one's fate."""
    try:
        # here, because a pickled exception loses its cause
        with exceptions_of_users(), threadpool_limits(limits=1):
            return task(silent)
    except Exception as error:
        return _Failure(error)
