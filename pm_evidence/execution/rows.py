"""Work on rows, divided among threads, or among the workers of an executor if it takes long."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.blas import one_blas_thread
from pm_evidence.core.progress import Report, silent
from pm_evidence.core.rows import RowWork, divided_by, dividing
from pm_evidence.execution.blocks import Task, run_blocks
from pm_evidence.execution.parcels import NOT_PICKLED, Parcel, parcels

__all__ = ["DividedRows", "dividing_rows", "run_divided"]

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
    """Divide the work on rows that this thread asks for; see ``core.rows``.

    Parameters
    ----------
    cores : int
        Number of threads.
    executor : concurrent.futures.Executor, optional
        Gets work that takes much longer than sending it.
    """
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
        within = [_Within(task, divide) for task in tasks]
        return run_blocks(within, cores=len(tasks), **shown)
    return run_blocks(tasks, cores=cores, executor=executor, **shown)


@dataclass(frozen=True)
class _Within:
    """A block in a thread of this process, whose rows are divided."""

    task: Task
    divide: Any

    def __call__(self, report: Report) -> Any:
        with divided_by(self.divide):
            return self.task(report)


class DividedRows:
    """Carries out work on rows in parts.

    How the rows are divided depends on how long they take, and changes no result, because rows do
    not depend on each other.

    Parameters
    ----------
    cores : int
        Number of threads, the calling one included.
    pool : Executor
        The other threads.
    executor : Executor, optional
        Gets work that takes much longer than sending it.
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
            (parcel,) = parcels([work])
        except NOT_PICKLED:
            return False
        slices = list(parts)
        tasks = [
            _SentRows(parcel, tuple(a[s] for a in read), tuple(a[s] for a in written))
            for s in slices
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


@dataclass(frozen=True)
class _SentRows:
    """A task for a worker: the work, and some rows of its arrays."""

    work: Parcel
    read: tuple[NDArray[Any], ...]
    written: tuple[NDArray[Any], ...]

    def __call__(self, report: Report = silent) -> tuple[NDArray[Any], ...]:
        """Return the changed rows."""
        # copies, because what arrives may be read-only
        read, written = ([np.array(a) for a in arrays] for arrays in (self.read, self.written))
        self.work.opened()(*read, *written)
        return tuple(written)
