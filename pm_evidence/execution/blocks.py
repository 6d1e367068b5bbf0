"""Independent blocks over threads, or over any ``concurrent.futures`` executor."""

import io
import logging
import pickle
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED as FIRST
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from time import perf_counter
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import described
from pm_evidence.core.digest import digest_of_bytes
from pm_evidence.core.exceptions import exceptions_of_users, usual_floats
from pm_evidence.core.interrupts import (
    Progress,
    Report,
    abandonable,
    check_interrupt,
    interrupt_answered,
    silent,
)
from pm_evidence.core.rows import RowWork, divided_by, dividing, keep_freed_memory, one_blas_thread

# Exceptions that say that an object cannot be pickled.
NOT_PICKLED = (pickle.PicklingError, TypeError, AttributeError)
# Bytes above which a part, such as the data of a model, is sent to a worker only once, and the
# number of such parts that a worker keeps.
_LARGE, _MOST_KEPT = 20_000, 16

# parts that this process got earlier, the oldest first
_KEPT: "OrderedDict[str, bytes]" = OrderedDict()
_KEEPING = Lock()


class Lacking(Exception):
    """A large part has not been sent to this process."""


@dataclass(frozen=True, slots=True)
class Pickled:
    """A pickled object."""

    head: bytes  # the object without its large parts
    # The large parts by digest, or none of them where the receiver has them
    large: Mapping[str, bytes]

    def without_large(self) -> "Pickled":
        """Return it for a receiver that has the large parts."""
        return replace(self, large={})

    def opened(self) -> Any:
        """Return the object."""
        with _KEEPING:
            _KEPT.update(self.large)
            while len(_KEPT) > _MOST_KEPT:
                _KEPT.popitem(last=False)
            known = {**_KEPT, **self.large}
        return _Unpickler(io.BytesIO(self.head), known).load()


def pickled(things: Sequence[Any], *, by_value: bool = False) -> list[Pickled]:
    """Return objects in pickled form."""
    return [(_ByValue if by_value else _ByReference).pickled(thing) for thing in things]


class _WithoutLarge:
    """Replaces large strings of bytes, such as pickled models, by their digests."""

    large: dict[str, bytes]

    @classmethod
    def pickled(cls, thing: Any) -> Pickled:
        buffer = io.BytesIO()
        pickler: Any = cls(buffer, protocol=pickle.HIGHEST_PROTOCOL)  # type: ignore[call-arg]
        pickler.large = {}
        pickler.dump(thing)
        return Pickled(buffer.getvalue(), pickler.large)

    def persistent_id(self, obj: Any) -> str | None:
        if type(obj) is not bytes or len(obj) < _LARGE:
            return None
        digest = digest_of_bytes(obj)
        self.large[digest] = obj
        return digest


class _ByReference(_WithoutLarge, pickle.Pickler):
    """Stores where classes and functions are imported from."""


class _ByValue(_WithoutLarge, cloudpickle.Pickler):
    """Stores classes and functions of a script or a notebook themselves."""


class _Unpickler(pickle.Unpickler):
    """Puts large strings of bytes back, from those that are known by their digests."""

    def __init__(self, file: io.BytesIO, known: Mapping[str, bytes]) -> None:
        super().__init__(file)
        self._known = known

    def persistent_load(self, pid: str) -> bytes:
        if pid not in self._known:
            raise Lacking
        return self._known[pid]


_log = logging.getLogger("pymc.pm_evidence")
_MAX_TRIES = 3
# Time between two checks of the futures by the main thread, which handles Ctrl-C in between.
_POLL_SECONDS = 0.5
# After so many checks without a result, a pool may wait for one that will never come.
_MAX_SILENT = 10


class Stopped(Exception):
    """Raised inside a block in order to stop it."""


# A callable that runs one block and returns its record; it is pickled if blocks run in other
# processes.
Task = Callable[[Report], Any]


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
            _collect(futures, Future.result, records, done)
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _stoppable(task: Task, watch: Report, stop: threading.Event) -> "_Done":
    """Run a block in this thread, so that it can also be stopped while it compiles."""

    def check() -> None:
        if stop.is_set():
            raise Stopped

    with abandonable(check):
        return _Done(task(watch))


def _collect(
    futures: dict[Future[Any], int],
    outcome: Callable[[Future[Any]], Any],
    records: dict[int, Any],
    done: Callable[[int, Any], None],
    executor: Executor | None = None,
) -> None:
    """Fill ``records`` as futures finish; an outcome that is no record is of a block sent again."""
    n_silent = 0
    try:
        while futures:
            finished, _ = wait(futures, timeout=_POLL_SECONDS, return_when=FIRST)
            check_interrupt()
            n_silent = 0 if finished else n_silent + 1
            if n_silent > _MAX_SILENT and _hangs(executor):
                raise BrokenExecutor
            for future in finished:
                block, found = futures[future], outcome(future)
                if isinstance(found, _Done):
                    records[block] = found.record
                    done(block, found.record)
                del futures[future]
    except KeyboardInterrupt:
        # blocks that had finished, and were not looked at yet, are reported; without this call
        # the interrupt would be raised again when the first of them is stored
        interrupt_answered()
        for future, block in futures.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                found = future.result()
                if isinstance(found, _Done):
                    done(block, found.record)
        raise


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
        _collect(sent.futures, sent.outcome, records, done, executor)
    except BrokenExecutor:
        left = len(tasks) - len(records)
        _log.warning(
            "A worker died and broke the pool; the remaining %d blocks run in this process.", left
        )
    finally:
        for future in sent.futures:
            future.cancel()


def _hangs(executor: Executor | None) -> bool:
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
        if isinstance(task, Pickled) and not whole:
            task = task.without_large()
        future: Any = self.executor.submit(_guarded, task, self.losses[block])
        if not isinstance(future, Future):
            raise TypeError(
                "executor must return a concurrent.futures.Future from submit, got "
                f"{described(future)}; pass for example ProcessPoolExecutor(4)."
            )
        self.futures[future] = block

    def outcome(self, future: Future[Any]) -> Any:
        """Return what a worker returned; a block that was lost, or lacks large parts, runs again.

        A new worker lacks the large parts. The error of a block is raised.
        """
        block = self.futures[future]
        try:
            found = future.result()
        except BrokenExecutor:
            raise
        except Exception as error:  # executors raise different errors for a lost worker
            self.losses[block] += 1
            if self.losses[block] == _MAX_TRIES:
                raise
            _log.warning(
                "The worker of block %d was lost (%s); the block runs again.", block, error
            )
            found = _Failure(Lacking())
        if isinstance(found, _Failure):
            if not isinstance(found.error, Lacking):
                raise found.error
            self.send(block, whole=True)
        elif not isinstance(found, _Done):
            raise TypeError(
                "executor must return futures whose result is what the submitted function "
                f"returns, got {described(found)}; pass for example ProcessPoolExecutor(4)."
            )
        return found


def _as_sent(tasks: Sequence[Task], executor: Executor) -> Sequence[Any]:
    """Return tasks in the form in which an executor gets them."""
    if isinstance(executor, ThreadPoolExecutor):
        return tasks
    # processes of a pool import the script that started it, and classes must be theirs
    by_value = not isinstance(executor, ProcessPoolExecutor)
    try:
        return pickled(tasks, by_value=by_value)
    except NOT_PICKLED:  # the executor may know a way
        return tasks


def _guarded(task: Task | Pickled, n_losses: int) -> Any:
    """Run a block in a worker.

    ``n_losses`` makes repeated calls differ: Dask would return the result of the first call again.
    """
    try:
        keep_freed_memory()
        # in the worker, because a pickled exception loses its cause
        with exceptions_of_users(), usual_floats(), one_blas_thread():
            block: Task = task.opened() if isinstance(task, Pickled) else task
            return _Done(block(silent))
    except Exception as error:
        return _Failure(error)


Arrays = Sequence[NDArray[Any]]

# Seconds of work below which no other thread is asked to help, and least seconds of a part: waking
# a thread takes some 50 microseconds.
_WORTH_A_THREAD, _PART = 4e-4, 1e-4
# Seconds of work for each thread above which rows are sent to an executor, and least seconds of a
# part that is sent: sending takes some 10 milliseconds.
_WORTH_SENDING, _PART_SENT = 0.15, 0.05
# So often is work of one kind sent before it is judged whether sending is faster; the first time,
# workers compile the model.
_TRIALS = 3
# Seconds for a single row above which the rows of blocks are sent, instead of whole blocks, so that
# there can be more workers than blocks.
_WORTH_DIVIDING_BLOCKS = 0.5
# Share of the rows that is worked on first, if it is not known how long a row takes.
_FIRST = 1 / 64


@contextmanager
def dividing_rows(cores: int, executor: Executor | None) -> Iterator[None]:
    """Divide the work on rows that this thread asks for; see ``core.rows``."""
    if cores == 1 and executor is None:
        yield
        return
    pool = ThreadPoolExecutor(max(cores - 1, 1), thread_name_prefix="pm_evidence_rows")
    try:
        with one_blas_thread(), divided_by(DividedRows(cores, pool, executor)):
            yield
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def run_divided(
    tasks: Sequence[Task], *, cores: int, executor: Executor | None, **shown: Any
) -> Any:
    """Run blocks where the user asks for it; see ``run_blocks``.

    If a single row of their populations takes seconds, the blocks run in threads of this process,
    and their rows on the executor.
    """
    divide = dividing()
    if isinstance(divide, DividedRows) and divide.divides_blocks and len(tasks) > 1:
        within = [partial(_within, divide, task) for task in tasks]
        return run_blocks(within, cores=len(tasks), **shown)
    return run_blocks(tasks, cores=cores, executor=executor, **shown)


def _within(divide: Any, task: Task, report: Report) -> Any:
    """Run a block in a thread of this process, with its rows divided."""
    with divided_by(divide):
        return task(report)


class DividedRows:
    """Carries out work on rows in parts.

    How the rows are divided depends on how long they take, and changes no result, because rows do
    not depend on each other.
    """

    def __init__(self, cores: int, pool: Executor, executor: Executor | None) -> None:
        self.cores, self.pool, self.executor = cores, pool, executor
        self._seconds: dict[Any, float] = {}
        # seconds of work that workers did in a second, each time that work was sent
        self._speeds: dict[Any, list[float]] = {}

    def __call__(self, work: RowWork, read: Arrays, written: Arrays) -> None:
        """Do the work on all rows; see ``core.rows.over_rows``."""
        arrays = [*read, *written]
        n, key = len(arrays[0]), (type(work), *(array.shape[1:] for array in arrays))
        done, seconds = 0, self._seconds.get(key)
        if seconds is None:
            done, seconds = _tried(work, arrays)
        if done == n:
            return
        started, divisor = perf_counter(), 1
        left = (n - done) * seconds
        if left > self.cores * _WORTH_SENDING and self._sends(key):
            parts = _parts(done, n, max(int(_PART_SENT / seconds), 1), None)
            if self._sent(work, read, written, parts):
                self._seconds.setdefault(key, seconds)
                speed = left / (perf_counter() - started)
                self._speeds.setdefault(key, []).append(speed)
                return
        if left < _WORTH_A_THREAD or self.cores == 1:
            work(*(array[done:] for array in arrays))
        else:
            divisor = self.cores
            self._in_threads(work, arrays, _parts(done, n, int(_PART / seconds) + 1, self.cores))
        measured = divisor * (perf_counter() - started) / (n - done)
        self._seconds[key] = measured if not done else min(seconds, measured)

    def _sends(self, key: Any) -> bool:
        """Return whether the executor may be faster than the threads of this process."""
        speeds = self._speeds.get(key, [])
        return self.executor is not None and (len(speeds) < _TRIALS or max(speeds) > self.cores)

    @property
    def divides_blocks(self) -> bool:
        """Whether rows take so long that those of blocks should be sent one by one."""
        longest = max(self._seconds.values(), default=0.0)
        return self.executor is not None and longest > _WORTH_DIVIDING_BLOCKS

    def _in_threads(self, work: RowWork, arrays: Arrays, parts: deque[slice]) -> None:
        def take() -> None:
            while parts:
                try:
                    part = parts.popleft()
                except IndexError:  # another thread has taken the last one
                    return
                work(*(array[part] for array in arrays))

        helpers = [self.pool.submit(take) for _ in range(min(self.cores, len(parts)) - 1)]
        try:
            take()
        finally:
            parts.clear()  # if an exception ends the work, the other threads end as well
            for helper in helpers:
                if not helper.cancel():
                    helper.result()

    def _sent(self, work: RowWork, read: Arrays, written: Arrays, parts: deque[slice]) -> bool:
        """Do work on an executor; return False if the work cannot be sent."""
        try:
            (sent,) = pickled([work])
        except NOT_PICKLED:
            return False
        slices = list(parts)
        tasks = [
            partial(_worked, sent, [a[s] for a in read], [a[s] for a in written]) for s in slices
        ]
        found = run_blocks(tasks, cores=self.cores, executor=self.executor)
        for part, made in zip(slices, found, strict=True):
            for array, rows in zip(written, made, strict=True):
                array[part] = rows
        return True


def _tried(work: RowWork, arrays: Arrays) -> tuple[int, float]:
    """Work on the first rows; return their number, and the seconds that a row takes.

    Two attempts are made, because the first may include the time of loading compiled code.
    """
    n = len(arrays[0])
    size, done, seconds = max(int(_FIRST * n), 1), 0, np.inf
    for _ in range(2):
        part = slice(done, min(done + size, n))
        if part.stop > part.start:
            started = perf_counter()
            work(*(array[part] for array in arrays))
            seconds = min(seconds, (perf_counter() - started) / (part.stop - part.start))
            done = part.stop
    return done, float(seconds)


def _parts(start: int, stop: int, least: int, cores: int | None) -> deque[slice]:
    """Return slices of at least ``least`` rows: equal ones, or shorter ones towards the end.

    Threads that take one after the other then end at about the same time.
    """
    found: deque[slice] = deque()
    while start < stop:
        size = least if cores is None else max((stop - start) // (2 * cores), least)
        found.append(slice(start, min(start + size, stop)))
        start += size
    return found


def _worked(work: Pickled, read: Arrays, written: Arrays, report: Report) -> Arrays:
    """Return some rows that work has changed, for the process that sent them."""
    # copies, because what arrives may be read-only
    read, written = ([np.array(a) for a in arrays] for arrays in (read, written))
    work.opened()(*read, *written)
    return written
