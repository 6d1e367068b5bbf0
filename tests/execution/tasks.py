"""Blocks and kernels that misbehave; a module of their own, for worker processes to import."""

import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from pm_evidence.core.exceptions import NumericalError
from pm_evidence.core.interrupts import Progress


def process():
    """An executor with one worker; spawned, because forking a process with threads is not safe."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def square(block, report):
    report(Progress(block, 1, 1.0, 1.0, 1.0, 0.0))
    return block * block


def where(block, report):
    return os.getpid()


def blas_threads(block, report):
    return [pool["num_threads"] for pool in threadpool_info()]


def broken(block, report):
    if block == 3:
        raise NumericalError("block 3 is broken.")
    return block


class TwoArguments(Exception):
    """Cannot be unpickled: its arguments are not those of its constructor."""

    def __init__(self, name, value):
        super().__init__(f"{name}={value}")


def broken_and_unpicklable(block, report):
    raise TwoArguments("block", block)


unstopped = []  # blocks that ran on when they should have been stopped


def until_stopped(block, report):
    """Run until the block is stopped, which at the latest should be long before two minutes."""
    started = time.monotonic()
    while time.monotonic() - started < 120.0:
        report(Progress(block, 0, 0.5, 1.0, 1.0, 0.0))
        time.sleep(0.002)
    unstopped.append(block)


def kill_once(marker):
    """Kill this process, unless that has been done before."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class SquareAfterDeath:
    """The first worker that runs block 2 dies."""

    marker: str
    parent: int

    def __call__(self, block, report):
        if block == 2 and os.getpid() != self.parent:
            kill_once(self.marker)
        return block * block


@dataclass(frozen=True)
class Wrapped:
    """A kernel that does as HMC does, and something besides."""

    inner: Any

    def before(self):
        raise NotImplementedError

    def advance(self, path, state, beta, streams):
        self.before()
        return self.inner.advance(path, state, beta, streams)

    def advance_repeatedly(self, path, state, beta, n_moves, streams):
        self.before()
        return self.inner.advance_repeatedly(path, state, beta, n_moves, streams)

    def learn(self, path, state):
        return replace(self, inner=self.inner.learn(path, state))

    def adjust(self, info):
        return replace(self, inner=self.inner.adjust(info))

    def without_exploration(self):
        return replace(self, inner=self.inner.without_exploration())

    def reversed(self):
        return replace(self, inner=self.inner.reversed())

    def settings(self):
        return self.inner.settings()


@dataclass(frozen=True)
class DiesOnce(Wrapped):
    """The first worker that moves a population dies."""

    marker: str
    parent: int

    def before(self):
        if os.getpid() != self.parent:
            kill_once(self.marker)


@dataclass(frozen=True)
class Refuses(Wrapped):
    """Raises an error wherever it is sent."""

    parent: int

    def before(self):
        if os.getpid() != self.parent:
            raise NumericalError("refuses to move")


@dataclass(frozen=True)
class Announces(Wrapped):
    """Takes its time, in the pilot or in blocks, and says where it runs when all is compiled."""

    where: str

    def before(self):
        place = "pilot" if threading.current_thread() is threading.main_thread() else "blocks"
        _moves[place] += 1
        if _moves[place] == 2:
            print(place, flush=True)
        if place == self.where and _moves[place] >= 2:
            time.sleep(1.0)


_moves = {"pilot": 0, "blocks": 0}


class Clock:
    """A clock on which only the work below takes time; workers in this process share it."""

    def __init__(self):
        self.seconds = 0.0
        self._lock = threading.Lock()

    def __call__(self):
        return self.seconds

    def add(self, seconds):
        with self._lock:
            self.seconds += seconds


CLOCK = Clock()
helped = threading.Event()  # another thread than the main one has worked on rows


@dataclass
class Cumulate:
    """Work on rows: sums along each row, which take some time by the clock above."""

    factor: float
    seconds: float = 0.0
    large: Any = b""
    waits: bool = False  # for another thread to help, after the two parts that are tried first
    fails: bool = False  # in another thread than the main one

    def __post_init__(self):
        self.threads = []

    def __call__(self, x, total, count):
        self.threads.append(threading.get_ident())
        CLOCK.add(self.seconds * len(x))
        total[:] = self.factor * np.cumsum(x, axis=1)
        count += 1
        if threading.current_thread() is not threading.main_thread():
            helped.set()
            if self.fails:
                raise ZeroDivisionError("as planned")
        elif self.waits and len(self.threads) > 2:
            assert helped.wait(120.0)
