"""A live display of a run, in PyMC's style, in a terminal and in a notebook."""

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from math import isnan
from typing import Any, Self

from rich import get_console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from pm_evidence.core.checks import check_flag
from pm_evidence.core.interrupts import Progress as BlockProgress
from pm_evidence.core.records import BlockRecord, LogEvidence


def in_notebook() -> bool:
    """Return whether the output goes to a notebook instead of a terminal."""
    return "IPython" in sys.modules and get_console().is_jupyter


@contextmanager
def redrawn(picture: Callable[[], Any], seconds: float = 0.5) -> Iterator[None]:
    """Show an output that a function returns, and update it at intervals and at the end.

    IPython can update an output by its name, so neither ipywidgets nor an extension of the notebook
    is needed, and the last output is saved with the notebook.
    """
    from IPython.display import display

    place: Any = display(picture(), display_id=True)
    over = threading.Event()

    def redraw() -> None:
        while not over.wait(seconds):
            place.update(picture())

    thread = threading.Thread(target=redraw, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        place.update(picture())


def _shown(bars: Progress) -> AbstractContextManager[Any]:
    """Return a context in which progress bars are shown, in a terminal or in a notebook."""
    if bars.disable or not in_notebook():
        return bars
    return redrawn(lambda: bars.make_tasks_table(bars.tasks))


_FIELDS = ("stage", "beta", "ess", "acceptance")
_HEADERS = ("Stage", "Beta", "ESS", "Accept")
_WORTH_A_ROW = 1.0  # seconds of work from which on it is shown
_TITLE: ContextVar[str] = ContextVar("title", default="")


@contextmanager
def titled(title: str) -> Iterator[None]:
    """Show a title above the tables of all runs that start inside of this context."""
    token = _TITLE.set(title)
    try:
        yield
    finally:
        _TITLE.reset(token)


@contextmanager
def _messages_above() -> Iterator[None]:
    """Let messages of PyMC's log be printed above a table that is drawn in a terminal.

    The handler writes to the stream that was there when PyMC was imported, across the table. While
    the table is drawn, ``sys.stderr`` is a stream that prints above it.
    """
    moved = [
        (handler, handler.setStream(sys.stderr))
        for handler in logging.getLogger("pymc").handlers
        if type(handler) is logging.StreamHandler and handler.stream is sys.__stderr__
    ]
    try:
        yield
    finally:
        for handler, stream in moved:
            handler.setStream(stream or sys.__stderr__)


class _Table(Progress):
    """A progress bar with a header, as PyMC draws it, a title above and a line below."""

    title = caption = ""

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        table = super().make_tasks_table(tasks)
        table.show_header = True
        # as plain text, because rich would read a status in brackets as markup
        table.title = Text(self.title) if self.title else None
        table.title_justify = "left"
        table.caption = Text(self.caption) if self.caption else None
        table.caption_justify = "left"
        return table


class Display:
    """A table with a row for each part of a run that takes time, and the estimate below.

    Messages of the log are printed above it. In a notebook the table is redrawn in place, with or
    without ipywidgets.
    """

    def __init__(self, enabled: bool) -> None:
        check_flag("progressbar", enabled)
        self._progress = _Table(
            TextColumn("{task.description}", table_column=Column("Progress", no_wrap=True)),
            BarColumn(bar_width=24, table_column=Column("", ratio=None)),
            *(
                TextColumn(
                    f"{{task.fields[{field}]}}",
                    table_column=Column(header, min_width=len(header), no_wrap=True),
                )
                for field, header in zip(_FIELDS, _HEADERS, strict=True)
            ),
            TimeElapsedColumn(table_column=Column("Elapsed")),
            disable=not enabled,
            refresh_per_second=8,
        )
        self._progress.title = _TITLE.get()
        self._lock, self._shown = threading.Lock(), ExitStack()
        self._rows: dict[str, TaskID] = {}
        self._run: TaskID | None = None
        self._idle_since, self._spent = 0.0, dict[str, float]()
        self._reached: dict[int, int] = {}

    def __enter__(self) -> Self:
        self._shown.enter_context(_shown(self._progress))
        self._shown.enter_context(_messages_above())
        self._idle_since = self._progress.get_time()
        return self

    def __exit__(self, *error: object) -> None:
        self._shown.close()

    def compiling(self) -> AbstractContextManager[None]:
        """Show that the graph of a model is made, or its code; see `working`."""
        return self.working("Model")

    @contextmanager
    def working(self, description: str) -> Iterator[None]:
        """Show a part of a run whose progress is not known, and its time if it exceeds a second."""
        started = self._progress.get_time()
        row = self._rows.get(description)
        if row is None:
            row = self._add(description, total=None)
        else:
            self._progress.reset(row, total=None)
        before = self._spent.get(description, 0.0)
        self._progress.tasks[self._progress.task_ids.index(row)].start_time = started - before
        try:
            yield
        finally:
            self._idle_since = self._progress.get_time()
            self._spent[description] = spent = before + self._idle_since - started
            if spent < _WORTH_A_ROW:
                self._progress.remove_task(self._rows.pop(description))
            else:
                self._progress.update(row, total=1.0, completed=1.0)

    def pilot(self, progress: BlockProgress) -> None:
        """Show the pilot's progress along the path."""
        row = self._rows.get("Pilot")
        if row is None or progress.stage == 1:  # there are two if a prior is normalised
            row = self._add("Pilot", total=1.0)
            # the pilot began before it could report its first stage
            self._progress.tasks[-1].start_time = self._idle_since
        self._progress.update(row, completed=progress.beta, **_fields(progress))

    def begin(self, description: str, n_blocks: int, n_stages: int) -> None:
        """Start the row of some blocks, which replaces their row of the previous round."""
        with self._lock:
            self._n_stages, self._reached = n_stages, {}
            self._run = self._add(description, total=float(n_blocks * n_stages))

    def block(self, progress: BlockProgress) -> None:
        """Show the progress of a running block."""
        with self._lock:
            self._reached[progress.block] = progress.stage
            stage = f"{progress.stage}/{self._n_stages}"
            self._update(**{**_fields(progress), "stage": stage})

    def done(self, block: int, record: BlockRecord | None = None) -> None:
        """Show that a block has finished, also if its last stages were not reported."""
        with self._lock:
            self._reached[block] = self._n_stages
            self._update()
            self._idle_since = self._progress.get_time()

    def round(self, number: int, target_mcse: float | None, estimate: LogEvidence | None) -> None:
        """Show the number of this round, the error to be reached, and the estimate so far."""
        parts = []
        if estimate is not None:
            parts.append(f"Log evidence {estimate} ({estimate.estimator})")
        if target_mcse is not None:
            parts.append(f"round {number}, target mcse {target_mcse:g}")
        self._progress.caption = ", ".join(parts)

    def _add(self, description: str, total: float | None) -> TaskID:
        """Add a row, and remove the one of the same description."""
        old = self._rows.get(description)
        if old is not None:
            self._progress.remove_task(old)
        fields: dict[str, Any] = dict.fromkeys(_FIELDS, "")
        row = self._progress.add_task(description, total=total, **fields)
        self._rows[description] = row
        return row

    def _update(self, **fields: Any) -> None:
        assert self._run is not None
        self._progress.update(self._run, completed=sum(self._reached.values()), **fields)


def _fields(progress: BlockProgress) -> dict[str, Any]:
    """Return the texts of the columns of a row, empty for what does not apply to the run."""
    return {
        "stage": str(progress.stage),
        "beta": _text(progress.beta, ".4f"),
        "ess": _text(progress.ess, ".0%"),
        "acceptance": _text(progress.acceptance, ".2f"),
    }


def _text(number: float, spec: str) -> str:
    return "" if isnan(number) else format(number, spec)


@contextmanager
def counting(description: str, total: int, enabled: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar while the block of the ``with`` statement runs."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        disable=not enabled,
        refresh_per_second=8,
    )

    row = bar.add_task(description, total=total)
    with _shown(bar):
        yield lambda done: bar.update(row, completed=done)
