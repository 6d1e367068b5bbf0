"""A live display of a run, in PyMC's style."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import isnan
from types import TracebackType
from typing import Any, Self

from rich.progress import BarColumn, Progress, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from pm_evidence.core.checks import check_flag
from pm_evidence.core.progress import Progress as BlockProgress
from pm_evidence.core.records import BlockRecord, LogEvidence
from pm_evidence.execution.notebook import Redrawn, in_notebook

__all__ = ["Display", "titled"]

_FIELDS = ("stage", "beta", "ess", "acceptance")
_HEADERS = ("Stage", "Beta", "ESS", "Accept")
_WORTH_A_ROW = 1.0  # seconds of compilation from which on it is shown
_TITLE: ContextVar[str] = ContextVar("title", default="")


@contextmanager
def titled(title: str) -> Iterator[None]:
    """Show a title above the tables of all runs that start inside of this context."""
    token = _TITLE.set(title)
    try:
        yield
    finally:
        _TITLE.reset(token)


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

    def picture(self) -> Table:
        """Return the table as it is now."""
        return self.make_tasks_table(self.tasks)


class Display:
    """A table with rows for compilation, the pilot and the run, and the recommended estimate below.

    In a notebook the table is redrawn in place, with or without ipywidgets.

    Parameters
    ----------
    enabled : bool
        Whether anything is shown.
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
        self._notebook = Redrawn(self._progress.picture) if enabled and in_notebook() else None
        self._lock = threading.Lock()
        self._rows: dict[str, TaskID] = {}
        self._run: TaskID | None = None
        self._idle_since = self._compiled = 0.0
        self._reached: dict[int, int] = {}

    def __enter__(self) -> Self:
        (self._notebook or self._progress).start()
        self._idle_since = self._progress.get_time()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        (self._notebook or self._progress).stop()

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Show that code is being compiled, and the total time of that if it exceeds a second."""
        started = self._progress.get_time()
        row = self._add("Compiling", total=None)
        self._progress.tasks[-1].start_time = started - self._compiled
        try:
            yield
        finally:
            self._idle_since = self._progress.get_time()
            self._compiled += self._idle_since - started
            if self._compiled < _WORTH_A_ROW:
                self._progress.remove_task(self._rows.pop("Compiling"))
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
        """Show the number of the present round, the error to be reached, and the estimate so far.

        Parameters
        ----------
        number : int
            Number of the round, from 1.
        target_mcse : float or None
            Standard error in nats at which the run ends; None if the run has a single round.
        estimate : LogEvidence or None
            The recommended estimate from all finished rounds; None in the first round.
        """
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
