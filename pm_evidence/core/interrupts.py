"""Ctrl-C, which is never lost, and reports of progress."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import FrameType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while tasks ran."""

    def __init__(self, finished: tuple[Any, ...] = ()) -> None:
        super().__init__()
        self.finished = finished
        self.record: Any = None


class _Interrupts:
    """The signal handler of the main thread, which calls the previous handler when that is safe."""

    def __init__(self) -> None:
        self.holds = 0  # pieces of work that must not be interrupted
        self.compiling = 0  # depth of calls into numba's compiler
        self._users = 0
        self._pending = False
        self._previous: Callable[..., Any] | None = None

    def install(self) -> None:
        """Install the handler for its first user, if the previous handler is written in Python."""
        self.holds += 1
        if self._users == 0:
            handler = signal.getsignal(signal.SIGINT)
            self._previous = handler if callable(handler) else None
            if self._previous is not None:
                signal.signal(signal.SIGINT, self._receive)
        self._users += 1
        self.holds -= 1

    def remove(self) -> None:
        """Restore the previous handler after the last user."""
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
        """Call the previous handler, which usually raises, if an interrupt came and need not wait.

        If the handler raised where the exception was lost, it is called again.
        """
        waits = self.holds > 0 or (self.compiling > 0 and not between_passes)
        if self._pending and not waits and self._previous is not None:
            self._previous(signal.SIGINT, frame)
            self._pending = False  # the handler did not raise

    def forget(self) -> None:
        """Forget an interrupt whose exception was caught on purpose."""
        self._pending = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._pending = True
        self.answer(frame)


class _Checks(threading.local):
    """The function, for each thread, that can end compilation by raising."""

    check: Callable[[], None] | None = None


class _Compiler:
    """Follows numba's compiler, in every thread."""

    def on_start(self, event: Any) -> None:
        """Count an entry into the compiler, or end compilation before a pass."""
        main = _in_main_thread()
        if event.kind == "numba:compiler_lock":
            _interrupts.compiling += main
            return
        if main:
            _interrupts.answer(between_passes=True)
        if _checks.check is not None:
            _checks.check()

    def on_end(self, event: Any) -> None:
        """Count an exit from the compiler."""
        if event.kind == "numba:compiler_lock" and _in_main_thread():
            _interrupts.compiling = max(_interrupts.compiling - 1, 0)
            _interrupts.answer()


_interrupts = _Interrupts()
_checks = _Checks()
_listening = threading.Lock()  # never released once the listener is registered


def listen() -> None:
    """Follow numba's compiler from now on; called when numba has been imported."""
    if _listening.acquire(blocking=False):
        event = import_module("numba.core.event")

        class Follower(_Compiler, event.Listener):  # type: ignore[misc, name-defined]
            """Is told by numba what it does."""

        for name in ("numba:compiler_lock", "numba:run_pass"):
            event.register(name, Follower())


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def interruptible() -> Iterator[None]:
    """Make a Ctrl-C during a piece of work take effect, also while code is compiled.

    The interrupt stops the work at once or, during compilation, at the start of numba's next pass.
    If the exception was lost, the work stops at its end. Outside the main thread, which receives no
    signals, nothing changes. It can also be used as a decorator. What leaves the work is a
    KeyboardInterrupt itself, by which Python tells the shell that Ctrl-C ended the process.
    """
    if not _in_main_thread():
        yield
        return
    _interrupts.install()
    try:
        yield
        _interrupts.answer()
    except Interrupted as error:
        raise KeyboardInterrupt from error
    finally:
        _interrupts.remove()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay interrupts until the end of a piece of work that must not be interrupted."""
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
    _checks.check = check
    try:
        yield
    finally:
        _checks.check = None


def check_interrupt() -> None:
    """Raise KeyboardInterrupt if an interrupt came whose exception was lost."""
    if _in_main_thread():
        _interrupts.answer()


def interrupt_answered() -> None:
    """Forget an interrupt whose KeyboardInterrupt was caught on purpose.

    Without this call it would be raised again, as one whose exception was lost.
    """
    if _in_main_thread():
        _interrupts.forget()


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a block."""

    block: int  # index of the block; -1 for the pilot
    stage: int  # number of finished stages
    beta: float  # present inverse temperature; NaN if chains are at several
    # Effective sample size of the last weights, as a share (0 to 1); NaN without weights
    ess: float
    acceptance: float  # mean acceptance probability of the last moves; NaN if there were none
    log_evidence: float  # log of the normalising constant at ``beta``, estimated so far, in nats


# A report may raise to stop the block that makes it.
Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Report nothing.

    Parameters
    ----------
    progress : Progress
        Is not looked at.
    """
