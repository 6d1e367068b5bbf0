"""Rows that are divided among threads, or sent to workers: the same numbers as without."""

import threading
from concurrent.futures import Executor, ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.core.rows import over_rows
from pm_evidence.execution import blocks as rows
from pm_evidence.execution.blocks import dividing_rows
from tests.execution.tasks import CLOCK, Cumulate, helped
from tests.execution.test_parity import assert_same_bits

N = 400


@pytest.fixture
def clock(monkeypatch):
    """Let rows take the time that they state, whatever else this machine does."""
    monkeypatch.setattr(rows, "perf_counter", CLOCK)
    helped.clear()


def cumulated(work, n=N):
    x, total, count = np.random.default_rng(1).normal(size=(n, 3)), np.zeros((n, 3)), np.zeros(n)
    over_rows(work, (x,), (total, count))
    return x, total, count


def assert_right(work, n=N):
    x, total, count = cumulated(work, n)
    assert np.array_equal(total, work.factor * np.cumsum(x, axis=1))
    assert np.array_equal(count, np.ones(n))  # each row was worked on once


class Here(Executor):
    """Runs at once what is submitted, and counts it."""

    def __init__(self):
        self.n_tasks = 0
        self._pool = ThreadPoolExecutor(1)

    def submit(self, function, /, *args, **kwargs):
        self.n_tasks += 1
        return self._pool.submit(function, *args, **kwargs)


@pytest.mark.parametrize("n", [0, 1, 2, 63, N])
@pytest.mark.parametrize("seconds", [0.0, 1e-5, 1e-3])
def test_threads_work_on_every_row_once(clock, n, seconds):
    with dividing_rows(3, None):
        for _ in range(2):  # without, and with, knowing how long a row takes
            assert_right(Cumulate(2.0, seconds), n)


def test_long_work_is_shared_and_short_work_is_not(clock):
    long, short = Cumulate(1.0, 1e-3, waits=True), Cumulate(1.0, 1e-7)
    for work in (long, short):
        with dividing_rows(2, None):
            cumulated(work)
    assert len(set(long.threads)) == 2
    assert set(short.threads) == {threading.get_ident()}


def test_very_long_work_is_sent(clock, monkeypatch):
    monkeypatch.setattr(rows, "_WORTH_SENDING", 0.01)
    monkeypatch.setattr(rows, "_PART_SENT", 0.01)
    executor, work = Here(), Cumulate(3.0, 1e-3)
    with dividing_rows(2, executor):
        assert_right(work)
    assert executor.n_tasks > 4


def test_work_that_cannot_be_pickled_stays_here(clock, monkeypatch):
    monkeypatch.setattr(rows, "_WORTH_SENDING", 0.01)
    executor, work = Here(), Cumulate(3.0, 1e-3, large=threading.Lock())
    with dividing_rows(2, executor):
        assert_right(work)
    assert executor.n_tasks == 0


def test_sending_ends_where_threads_are_faster(clock, monkeypatch):
    monkeypatch.setattr(rows, "_WORTH_SENDING", 0.01)
    executor = Here()  # which works on one part after the other
    with dividing_rows(4, executor):
        for _ in range(3):
            assert_right(Cumulate(3.0, 1e-3))
        sent = executor.n_tasks
        assert_right(Cumulate(3.0, 1e-3))
    assert executor.n_tasks == sent > 0


def slow_model():
    """A likelihood of many data, and modes that are searched for."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(1000, 4))
    y = rng.random(1000) < 1 / (1 + np.exp(-x @ [0.5, -1.0, 0.2, 0.0]))
    with pm.Model() as model:
        slope = pm.StudentT("slope", nu=5, shape=4)
        pm.Bernoulli("y", logit_p=x @ slope, observed=y.astype(int))
    return model


def watched_division(monkeypatch):
    """Return a list that gets every answer to the question whether blocks are to be divided."""
    answers, usual = [], rows.DividedRows.divides_blocks.fget

    def watched(self):
        answers.append(usual(self))
        return answers[-1]

    monkeypatch.setattr(rows.DividedRows, "divides_blocks", property(watched))
    return answers


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["hmc", "random_walk"])
def test_same_bits_however_rows_are_divided(monkeypatch, kernel):
    """Pilot, survey, fit and results of a run: here, in threads, and on an executor."""
    model = slow_model()

    def run(**options):
        usual = {"backend": "numba", "random_seed": 5, "progressbar": False, "target_mcse": 0.2}
        return pe.sample_evidence(model, kernel=kernel, **usual, **options)

    reference = run(cores=1)
    assert_same_bits(run(cores=3), reference)
    # all work is sent that is asked for once more, in parts that take two milliseconds
    monkeypatch.setattr(rows, "_WORTH_SENDING", 0.0)
    monkeypatch.setattr(rows, "_PART_SENT", 0.002)
    monkeypatch.setattr(rows, "_TRIALS", 1000)
    divides = watched_division(monkeypatch)
    for seconds, expected in ((np.inf, False), (0.0, True)):
        monkeypatch.setattr(rows, "_WORTH_DIVIDING_BLOCKS", seconds)
        divides.clear()
        executor = Here()
        assert_same_bits(run(cores=2, executor=executor), reference)
        assert executor.n_tasks > 20 and divides and any(divides) == expected
