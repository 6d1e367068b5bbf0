"""Ctrl-C while code is compiled: always heard, and answered where nothing is left half made.

Python raises KeyboardInterrupt between any two instructions. Inside the compiler that is harmful in
two ways: LLVM calls back into Python, where an exception is printed and lost, and a table that is
being filled stays incomplete for the rest of the process. So an interrupt that arrives while numba
compiles waits for the start of numba's next pass, which leaves every table whole, and one that
arrives while a table is filled waits for the end.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from numba.core.event import Event, Listener, register

__all__ = ["abandonable", "check_interrupt", "interruptible", "uninterrupted"]


class _Interrupts:
    """What stands between the signal and the handler that was there before, in the main thread."""

    def __init__(self) -> None:
        self.holds = 0  # pieces of work that must not be cut in two
        self.compiling = 0  # depth of calls into numba's compiler
        self._users = 0
        self._pending = False
        self._previous: Callable[..., Any] | None = None

    def install(self) -> None:
        """Take the signal, if nobody here has it, from a handler that is written in Python."""
        self.holds += 1
        if self._users == 0:
            _listen()
            handler = signal.getsignal(signal.SIGINT)
            self._previous = handler if callable(handler) else None
            if self._previous is not None:
                signal.signal(signal.SIGINT, self._receive)
        self._users += 1
        self.holds -= 1

    def remove(self) -> None:
        """Give the signal back when the last user leaves."""
        self.holds += 1
        self._users -= 1
        previous = None
        if self._users == 0:
            self._pending = False
            previous, self._previous = self._previous, None
            if previous is not None and signal.getsignal(signal.SIGINT) == self._receive:
                signal.signal(signal.SIGINT, previous)
        late, self.holds = self._pending, self.holds - 1
        if late and previous is not None:
            self._pending = False
            previous(signal.SIGINT, None)

    def answer(self, frame: FrameType | None = None, *, between_passes: bool = False) -> None:
        """Call the former handler, which raises as a rule, unless nothing came or it has to wait.

        A handler that raised where the exception was lost is called again.
        """
        waits = self.holds > 0 or (self.compiling > 0 and not between_passes)
        if self._pending and not waits and self._previous is not None:
            self._previous(signal.SIGINT, frame)
            self._pending = False  # it was not meant to stop anything

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._pending = True
        self.answer(frame)


class _Checks(threading.local):
    """What ends compilation in a thread."""

    check: Callable[[], None] | None = None


class _Compiler(Listener):
    """Follows numba's compiler, in every thread."""

    def on_start(self, event: Event) -> None:
        """Take notice that the compiler is entered, or end it before a pass."""
        main = _in_main_thread()
        if event.kind == "numba:compiler_lock":
            _interrupts.compiling += main
            return
        if main:
            _interrupts.answer(between_passes=True)
        if _checks.check is not None:
            _checks.check()

    def on_end(self, event: Event) -> None:
        """Take notice that the compiler is left."""
        if event.kind == "numba:compiler_lock" and _in_main_thread():
            _interrupts.compiling = max(_interrupts.compiling - 1, 0)
            _interrupts.answer()


_interrupts = _Interrupts()
_checks = _Checks()
_compiler = _Compiler()
_listening = threading.Lock()  # taken for good once numba has been told


def _listen() -> None:
    if _listening.acquire(blocking=False):
        register("numba:compiler_lock", _compiler)
        register("numba:run_pass", _compiler)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def interruptible() -> Iterator[None]:
    """Hear every Ctrl-C during a piece of work, and let the compiler finish what it must.

    The interrupt stops the work at once, or at the start of numba's next pass where it compiles.
    One that was lost on the way stops it at the end at the latest. Outside the main thread, which
    gets no signals, nothing changes. Also a decorator.
    """
    if not _in_main_thread():
        yield
        return
    _interrupts.install()
    try:
        yield
        _interrupts.answer()
    finally:
        _interrupts.remove()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let an interrupt wait until the end of a piece of work that must not be cut in two."""
    if not _in_main_thread():
        yield
        return
    with interruptible():
        _interrupts.holds += 1
        try:
            yield
        finally:
            _interrupts.holds -= 1


@contextmanager
def abandonable(check: Callable[[], None]) -> Iterator[None]:
    """Let ``check`` end compilation in this thread, by an exception, between numba's passes."""
    _listen()
    _checks.check = check
    try:
        yield
    finally:
        _checks.check = None


def check_interrupt() -> None:
    """Raise KeyboardInterrupt if one came and was lost on its way."""
    if _in_main_thread():
        _interrupts.answer()
