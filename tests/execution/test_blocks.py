"""Blocks on threads and executors: the same records in the same order, whatever happens.

Large parts of what is sent travel once, and nothing else changes.
"""

import logging
import os
import pickle
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from pm_evidence.core.exceptions import NumericalError
from pm_evidence.execution import blocks
from pm_evidence.execution.blocks import NOT_PICKLED, Lacking, pickled, run_blocks
from tests.execution import tasks

SQUARES = [block * block for block in range(7)]


def numbered(task, n):
    """A task for each of ``n`` blocks."""
    return [partial(task, block) for block in range(n)]


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.WARNING, logger="pymc.pm_evidence")
    return caplog


def no_threads_left():
    return not [t for t in threading.enumerate() if t.name.startswith("pm_evidence")]


# --- threads ---


@pytest.mark.parametrize("cores", [1, 2, 5, 50])
def test_threads(cores):
    finished = {}
    records = run_blocks(numbered(tasks.square, 7), cores=cores, done=finished.__setitem__)
    assert records == SQUARES
    assert finished == dict(enumerate(SQUARES))
    assert no_threads_left()


def test_as_many_threads_as_cores():
    """Two blocks meet each other, and then the next two: that takes two threads."""
    two = threading.Barrier(2, timeout=120.0)

    def task(block, report):
        two.wait()
        return threading.get_ident()

    assert len(set(run_blocks(numbered(task, 6), cores=2))) == 2


def test_linear_algebra_has_one_thread_a_block():
    """Blocks already use all cores; a model with matrices was 190 times slower without this."""
    assert all(
        n == 1 for counts in run_blocks(numbered(tasks.blas_threads, 2), cores=2) for n in counts
    )


@pytest.mark.parametrize("cores", [1, 3])
def test_error_of_a_block_comes_out_as_itself(cores):
    with pytest.raises(NumericalError, match=r"block 3 is broken\."):
        run_blocks(numbered(tasks.broken, 6), cores=cores)
    assert no_threads_left()


def test_error_stops_the_other_blocks():
    """They would run on for hours, for nothing."""
    under_way = threading.Event()

    def task(block, report):
        if block == 1:
            under_way.wait(120.0)
            raise NumericalError("no support")
        under_way.set()
        tasks.until_stopped(block, report)

    with pytest.raises(NumericalError, match="no support"):
        run_blocks(numbered(task, 20), cores=3)
    assert no_threads_left() and tasks.unstopped == []


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupt_stops_all_blocks(interrupt):
    def done(block, record):
        raise interrupt

    def task(block, report):
        return 0 if block == 0 else tasks.until_stopped(block, report)

    with pytest.raises(interrupt):
        run_blocks(numbered(task, 20), cores=3, done=done)
    assert no_threads_left() and tasks.unstopped == []


# --- processes ---


def test_processes(pool):
    finished = {}
    records = run_blocks(
        numbered(tasks.square, 7), cores=1, executor=pool, done=finished.__setitem__
    )
    assert records == SQUARES
    assert finished == dict(enumerate(SQUARES))
    assert os.getpid() not in run_blocks(numbered(tasks.where, 3), cores=1, executor=pool)


def test_error_in_a_worker_comes_out_as_itself(pool):
    """The executor is the user's, and is left running."""
    with pytest.raises(NumericalError, match=r"block 3 is broken\."):
        run_blocks(numbered(tasks.broken, 6), cores=1, executor=pool)
    assert pool.submit(os.getpid).result() != os.getpid()


def test_worker_killed_in_mid_run(tmp_path, log):
    """The pool is lost, what it finished is not; the rest runs here, to the same numbers."""
    marker = tmp_path / "dead"
    task = tasks.SquareAfterDeath(str(marker), os.getpid())
    with tasks.process() as executor:
        records = run_blocks(numbered(task, 7), cores=2, executor=executor)
    assert marker.exists()
    assert records == SQUARES
    assert "worker died" in log.text
    assert "run in this process" in log.text


# --- executors that lose blocks, but not themselves ---


class Lossy:
    """An executor that loses every block the first few times.

    Like Dask it takes calls for pure: one that is like an earlier one is not made again.
    """

    def __init__(self, n_losses):
        self.n_losses = n_losses
        self.tries, self.futures = {}, {}

    def submit(self, function, task, attempt):
        block = task.opened().args[0]
        call = (task.head, attempt)
        if call in self.futures:
            return self.futures[call]
        future = self.futures[call] = Future()
        self.tries[block] = self.tries.get(block, 0) + 1
        if self.tries[block] <= self.n_losses:
            future.set_exception(ConnectionError("worker is gone"))
        else:
            future.set_result(function(task, attempt))
        return future


@pytest.mark.parametrize("n_losses", [1, 2])
def test_lost_blocks_run_again(n_losses, log):
    executor = Lossy(n_losses)
    assert run_blocks(numbered(tasks.square, 7), cores=1, executor=executor) == SQUARES
    assert set(executor.tries.values()) == {n_losses + 1}
    assert len(log.records) == 7 * n_losses
    assert "The worker of block 3 was lost (worker is gone); the block runs again." in log.text


def test_blocks_that_are_always_lost_are_an_error():
    executor = Lossy(100)
    with pytest.raises(ConnectionError, match="worker is gone"):
        run_blocks(numbered(tasks.square, 7), cores=1, executor=executor)
    assert max(executor.tries.values()) == 3


class Foreign:
    """An executor that returns something else than what it was given."""

    def __init__(self, result):
        self.result = result

    def submit(self, function, *arguments):
        if isinstance(self.result, Future):
            self.result.set_result(3)
        return self.result


@pytest.mark.parametrize(
    ("result", "message"),
    [(None, r"a concurrent.futures.Future from submit, got None"), (Future(), r"returns, got 3;")],
)
def test_an_executor_that_returns_something_else_is_refused(result, message):
    with pytest.raises(TypeError, match=message + ".*pass for example ProcessPoolExecutor"):
        run_blocks(numbered(tasks.square, 1), cores=1, executor=Foreign(result))


def test_classes_travel_by_their_names_to_a_pool_of_processes(pool, monkeypatch):
    """A class that is sent along would be another one in the worker, and could not be returned."""
    monkeypatch.setattr(blocks, "pickled", lambda tasks, *, by_value: by_value)
    assert [blocks._as_sent([], executor) for executor in (pool, Lossy(0))] == [False, True]


def test_error_that_cannot_be_sent_back(pool, log):
    """It breaks the pool, so that it comes out here after all; a broken pool is not needed.

    So this is the last of the tests with this pool.
    """
    with pytest.raises(tasks.TwoArguments, match="block="):
        run_blocks(numbered(tasks.broken_and_unpicklable, 2), cores=1, executor=pool)
    assert run_blocks(numbered(tasks.square, 7), cores=2, executor=pool) == SQUARES
    assert "the remaining 7 blocks run in this process" in log.text


# --- a worker that dies while it sends its result ---


class Waiting:
    """A process pool that waits for the rest of a result, as far as blocks see it."""

    def __init__(self, exitcode):
        self.killed, self.futures = [], []
        self._processes = {1: self.process(exitcode), 2: self.process(None)}
        self._result_queue = SimpleNamespace(_writer=SimpleNamespace(close=self.close))
        self.closed = False

    def process(self, exitcode):
        return SimpleNamespace(exitcode=exitcode, kill=lambda: self.killed.append(exitcode))

    def close(self):
        self.closed = True

    def submit(self, function, *arguments):
        self.futures.append(Future())
        return self.futures[-1]


def test_a_pool_that_waits_for_a_dead_worker_is_ended(monkeypatch, log):
    """The pool itself would wait for ever; the blocks run in this process instead."""
    monkeypatch.setattr(blocks, "_POLL_SECONDS", 1e-3)
    waiting = Waiting(exitcode=-9)
    found = run_blocks(numbered(tasks.square, 3), cores=1, executor=waiting)
    assert found == SQUARES[:3] and "broke the pool" in log.text
    assert len(waiting.killed) == 2 and waiting.closed
    assert all(future.cancelled() for future in waiting.futures)


def test_a_pool_whose_workers_live_or_ended_well_is_waited_for():
    """A worker that ended after its last task has the exit code 0."""
    for exitcode in (None, 0):
        waiting = Waiting(exitcode)
        assert not blocks._hangs(waiting)
        assert not waiting.killed and not waiting.closed
    assert not blocks._hangs(ThreadPoolExecutor(1))


def test_interrupt_leaves_the_executor_running():
    def done(block, record):
        raise KeyboardInterrupt

    with ThreadPoolExecutor(2) as executor:
        with pytest.raises(KeyboardInterrupt):
            run_blocks(numbered(tasks.square, 7), cores=1, executor=executor, done=done)
        assert executor.submit(pow, 2, 3).result() == 8


def test_error_of_a_block_is_not_tried_again():
    """It would fail again: only the loss of a worker is bad luck."""
    executor = Lossy(0)
    with pytest.raises(NumericalError):
        run_blocks(numbered(tasks.broken, 7), cores=1, executor=executor)
    assert executor.tries[3] == 1


# --- what is sent ---


@dataclass(frozen=True)
class Thing:
    number: int
    large: bytes
    array: np.ndarray


@pytest.fixture
def things(monkeypatch):
    """Two objects that share a large part, for a process that has received nothing yet."""
    monkeypatch.setattr(blocks, "_KEPT", type(blocks._KEPT)())
    rng = np.random.default_rng(3)
    shared = rng.bytes(100_000)
    return [Thing(number, shared, rng.normal(size=5)) for number in (1, 2)]


def assert_equal(one, other):
    assert (one.number, one.large) == (other.number, other.large)
    assert np.array_equal(one.array, other.array)


def test_a_parcel_holds_the_object(things):
    for made, thing in zip(pickled(things), things, strict=True):
        assert_equal(pickle.loads(pickle.dumps(made)).opened(), thing)


@pytest.mark.parametrize("by_value", [False, True])
def test_large_parts_are_needed_once(things, by_value):
    first, second = pickled(things, by_value=by_value)
    assert len(first.head) < 2000 and list(first.large) == list(second.large)
    with pytest.raises(Lacking):
        second.without_large().opened()
    first.opened()
    assert_equal(second.without_large().opened(), things[1])


def test_what_is_defined_in_a_notebook_is_sent_along():
    def doubled(x):
        return 2 * x

    (made,) = pickled([doubled], by_value=True)
    assert made.opened()(4) == 8
    with pytest.raises(NOT_PICKLED):
        pickled([doubled])


@pytest.mark.parametrize("by_value", [False, True])
def test_what_cannot_be_pickled_is_an_error(by_value):
    with pytest.raises(NOT_PICKLED):
        pickled([threading.Lock()], by_value=by_value)
