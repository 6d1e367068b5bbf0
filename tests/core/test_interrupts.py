"""Ctrl-C stops a run while code is compiled, and leaves the process as good as new."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba as nb
import pytest

from pm_evidence.core.interrupts import (
    Interrupted,
    abandonable,
    check_interrupt,
    interrupt_answered,
    interruptible,
    uninterrupted,
)

# While PyTensor's table of implementations is filled, while it rewrites a graph, between passes of
# numba, and where LLVM calls back.
MOMENTS = [["IMPORT", 1], ["REWRITE", 30], ["PASS", 10], ["PASS", 100], ["LLVM", 1], ["LLVM", 5]]


@pytest.fixture(autouse=True)
def heard():
    """A shell's background job inherits that SIGINT is ignored."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


def run(moments: list[Any], **environment: str) -> dict[str, Any]:
    child = Path(__file__).with_name("interrupted.py")
    done = subprocess.run(
        [sys.executable, str(child), json.dumps(moments)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.slow
def test_interrupted_compilation_stops_and_the_next_run_is_that_of_a_fresh_process(tmp_path):
    """An interrupt was lost in LLVM's callback, or left PyTensor without implementations.

    The next run then worked in Python, with other digits for the same seed.
    """
    fresh = run([])
    found = run(MOMENTS, PYTENSOR_FLAGS=f"base_compiledir={tmp_path}")
    passes = found.pop("passes")
    assert all(0 <= n <= 2 for n in passes), passes
    del fresh["passes"]
    assert fresh["slow_ops"] == [] and fresh["handler"]
    assert found == fresh


def test_a_held_interrupt_comes_at_the_end():
    reached = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        signal.raise_signal(signal.SIGINT)
        reached.append(True)
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_lost_interrupt_is_raised_again():
    with pytest.raises(KeyboardInterrupt), interruptible():
        with suppress(KeyboardInterrupt):  # as ctypes would
            signal.raise_signal(signal.SIGINT)
        check_interrupt()
        raise AssertionError
    with pytest.raises(KeyboardInterrupt), interruptible(), suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    check_interrupt()  # what stopped one piece of work does not stop the next


def test_other_handlers_are_asked_and_given_back():
    """A program that counts its interrupts and goes on is not stopped by this package."""
    asked = []

    def handler(number, frame):
        asked.append(number)

    former = signal.signal(signal.SIGINT, handler)
    try:
        with interruptible(), uninterrupted():
            signal.raise_signal(signal.SIGINT)
            assert asked == []
        assert asked == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with interruptible():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, former)


def test_an_error_gives_the_handler_back():
    with pytest.raises(ZeroDivisionError), interruptible(), uninterrupted():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Enough(Exception):
    """Raised by the check below."""


def test_compilation_in_a_thread_ends_when_it_is_told_to():
    """Workers compile kernels, and a stopped run must not wait for them."""
    passes, found = [], []

    def check():
        passes.append(1)
        if len(passes) == 5:
            raise Enough

    def work():
        function = nb.njit(lambda x: x + 1)
        try:
            with abandonable(check):
                function(1)
        except Enough:
            found.append(function.signatures)
        found.append(function(1))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [[], 2] and len(passes) == 5


def test_threads_get_no_signals_and_are_left_alone():
    found = []

    def work():
        with interruptible(), uninterrupted():
            found.append(signal.getsignal(signal.SIGINT))
        check_interrupt()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


def test_an_interrupt_that_was_answered_is_not_raised_again():
    """A run that is interrupted returns what there is, and must then end as any other."""
    with interruptible():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        interrupt_answered()
    with pytest.raises(KeyboardInterrupt) as found, interruptible():
        raise Interrupted((1,))
    assert type(found.value) is KeyboardInterrupt  # which Python ends the process with
    cause = found.value.__cause__
    assert cause.finished == (1,) and cause.record is None
