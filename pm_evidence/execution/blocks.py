"""Independent blocks over threads, or over any ``concurrent.futures`` executor."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED as FIRST
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import dataclass, field
from typing import Any, Protocol

from pm_evidence.core.blas import one_blas_thread
from pm_evidence.core.checks import described
from pm_evidence.core.exceptions import exceptions_of_users, usual_floats
from pm_evidence.core.interrupts import abandonable, check_interrupt, interrupt_answered
from pm_evidence.core.progress import Progress, Report, silent
from pm_evidence.execution.parcels import NOT_PICKLED, Lacking, Parcel, parcels

__all__ = ["Stopped", "Task", "run_blocks"]

_log = logging.getLogger("pymc.pm_evidence")
_MAX_TRIES = 3
# Time between two checks of the futures by the main thread, which handles Ctrl-C in between.
_POLL_SECONDS = 0.5
# After so many checks without a result, a pool may wait for one that will never come.
_MAX_SILENT = 10


class Stopped(Exception):
    """Raised inside a block in order to stop it."""


class Task(Protocol):
    """A callable that runs one block; it is pickled if blocks run in other processes."""

    def __call__(self, report: Report) -> Any:
        """Run the block and return its record."""
        ...


@dataclass(frozen=True, slots=True)
class _Done:
    """The record of a block, as a worker returns it."""

    record: Any


@dataclass(frozen=True, slots=True)
class _Failure:
    """An error that the block itself raised, in contrast to an error of its worker."""

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
        Number of threads, if there is no executor.
    executor : concurrent.futures.Executor, optional
        Runs the blocks instead of threads; it is not shut down.
    report : callable
        Called with the progress of blocks that run in threads.
    done : callable
        Called with the position and the record of every finished block.

    Raises
    ------
    Exception
        The error of a block, as it was raised there.

    Notes
    -----
    A block whose worker dies is run again, up to three times. If a process pool breaks, the
    remaining blocks run in threads of this process. The results do not depend on this.
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
        with one_blas_thread():
            futures = {pool.submit(_stoppable, tasks[i], watch, stop): i for i in missing}
            _collect(futures, records, done)
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _stoppable(task: Task, watch: Report, stop: threading.Event) -> Any:
    """Run a block in this thread, so that it can also be stopped while it compiles."""

    def check() -> None:
        if stop.is_set():
            raise Stopped

    with abandonable(check):
        return task(watch)


def _collect(
    futures: dict[Future[Any], int], records: dict[int, Any], done: Callable[[int, Any], None]
) -> None:
    try:
        while futures:
            finished, _ = wait(futures, timeout=_POLL_SECONDS, return_when=FIRST)
            check_interrupt()
            for future in finished:
                block = futures[future]
                records[block] = future.result()
                done(block, records[block])
                del futures[future]
    except KeyboardInterrupt:
        _report_finished(futures, done)
        raise


def _report_finished(futures: dict[Future[Any], int], done: Callable[[int, Any], None]) -> None:
    """Report blocks that had finished, and were not looked at yet, when Ctrl-C came."""
    interrupt_answered()  # else it would be raised again when the first of them is stored
    for future, block in futures.items():
        if future.done() and not future.cancelled() and future.exception() is None:
            outcome = future.result()
            if not isinstance(outcome, _Failure):
                done(block, outcome.record if isinstance(outcome, _Done) else outcome)


def _run_elsewhere(
    tasks: Sequence[Task],
    executor: Executor,
    records: dict[int, Any],
    done: Callable[[int, Any], None],
) -> None:
    """Fill ``records`` from an executor; a broken executor leaves some blocks out."""
    sent = _Sent(_as_sent(tasks, executor), executor)
    try:
        for block in range(len(tasks)):
            sent.send(block)
        n_silent = 0
        while sent.futures:
            finished, _ = wait(sent.futures, timeout=_POLL_SECONDS, return_when=FIRST)
            n_silent = 0 if finished else n_silent + 1
            if n_silent > _MAX_SILENT and _hangs(executor):
                raise BrokenExecutor
            for future in finished:
                block = sent.futures[future]
                outcome = sent.outcome(future)
                if isinstance(outcome, _Failure):
                    if not isinstance(outcome.error, Lacking):
                        raise outcome.error
                    sent.send(block, whole=True)
                elif isinstance(outcome, _Done):
                    records[block] = outcome.record
                    done(block, outcome.record)
                else:
                    raise TypeError(
                        "executor must return futures whose result is what the submitted function "
                        f"returns, got {described(outcome)}; pass for example "
                        "ProcessPoolExecutor(4)."
                    )
                del sent.futures[future]
    except KeyboardInterrupt:
        _report_finished(sent.futures, done)
        raise
    except BrokenExecutor:
        left = len(tasks) - len(records)
        _log.warning(
            "A worker died and broke the pool; the remaining %d blocks run in this process.", left
        )
    finally:
        for future in sent.futures:
            future.cancel()


def _hangs(executor: Executor) -> bool:
    """Return whether a worker of a process pool died while it sent its result, and end the pool.

    The pool waits for the rest of that result, and the other workers for their turn to send
    theirs. Without workers and without its own end of the pipe, the pool sees that it is broken.
    """
    processes = [*(getattr(executor, "_processes", None) or {}).values()]
    if all(process.exitcode in (None, 0) for process in processes):
        return False
    for process in processes:
        process.kill()
    writer = getattr(getattr(executor, "_result_queue", None), "_writer", None)
    if writer is not None:
        writer.close()
    return True


@dataclass
class _Sent:
    """Blocks that run on an executor, and how often each was sent to a worker that was lost."""

    tasks: Sequence[Any]
    executor: Executor
    futures: dict[Future[Any], int] = field(default_factory=dict)
    losses: Counter[int] = field(default_factory=Counter)

    def send(self, block: int, *, whole: bool = False) -> None:
        """Send a block, with the large parts of its task only if ``whole``."""
        task = self.tasks[block]
        if isinstance(task, Parcel) and not whole:
            task = task.without_large()
        future: Any = self.executor.submit(_guarded, task, self.losses[block])
        if not isinstance(future, Future):
            raise TypeError(
                "executor must return a concurrent.futures.Future from submit, got "
                f"{described(future)}; pass for example ProcessPoolExecutor(4)."
            )
        self.futures[future] = block

    def outcome(self, future: Future[Any]) -> Any:
        """Return the record of a block or a failure; a new worker lacks the large parts."""
        block = self.futures[future]
        try:
            return future.result()
        except BrokenExecutor:
            raise
        except Exception as error:  # executors raise different errors for a lost worker
            self.losses[block] += 1
            if self.losses[block] == _MAX_TRIES:
                raise
            _log.warning(
                "The worker of block %d was lost (%s); the block runs again.", block, error
            )
            return _Failure(Lacking())


def _as_sent(tasks: Sequence[Task], executor: Executor) -> Sequence[Any]:
    """Return tasks in the form in which an executor gets them."""
    if isinstance(executor, ThreadPoolExecutor):
        return tasks
    # processes of a pool import the script that started it, and classes must be theirs
    by_value = not isinstance(executor, ProcessPoolExecutor)
    try:
        return parcels(tasks, by_value=by_value)
    except NOT_PICKLED:  # the executor may know a way
        return tasks


def _guarded(task: Task | Parcel, n_losses: int) -> Any:
    """Run a block in a worker.

    ``n_losses`` makes repeated calls differ: Dask would return the result of the first call again.
    """
    try:
        # in the worker, because a pickled exception loses its cause
        with exceptions_of_users(), usual_floats(), one_blas_thread():
            block: Task = task.opened() if isinstance(task, Parcel) else task
            return _Done(block(silent))
    except Exception as error:
        return _Failure(error)
