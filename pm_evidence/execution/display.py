"""A live display of a run, in PyMC's style."""

import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import numpy as np
from rich.progress import BarColumn, Progress, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.progress import Progress as BlockProgress
from pm_evidence.core.records import BlockRecord

__all__ = ["Display"]


def _text(template: str, header: str) -> TextColumn:
    return TextColumn(template, table_column=Column(header, min_width=len(header), no_wrap=True))


class _Table(Progress):
    """A progress bar with a header, as PyMC draws it."""

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        table = super().make_tasks_table(tasks)
        table.show_header = True
        return table


class Display:
    """Rows for the pilot and for the run: stage, beta, ESS, acceptance, log Z with its error.

    Parameters
    ----------
    enabled : bool
        Whether anything is shown.
    """

    def __init__(self, enabled: bool) -> None:
        self._progress = _Table(
            _text("{task.description}", "Progress"),
            BarColumn(bar_width=24, table_column=Column("", ratio=None)),
            _text("{task.fields[stage]}", "Stage"),
            _text("{task.fields[beta]:.4f}", "Beta"),
            _text("{task.fields[ess]:.0%}", "ESS"),
            _text("{task.fields[acceptance]:.2f}", "Accept"),
            _text("{task.fields[log_z]}", "Log evidence"),
            TimeElapsedColumn(table_column=Column("Elapsed")),
            disable=not enabled,
            refresh_per_second=8,
        )
        self._lock = threading.Lock()
        self._pilot: TaskID | None = None
        self._run: TaskID | None = None
        self._reached: dict[int, int] = {}
        self._work: list[np.ndarray] = []

    def __enter__(self) -> Self:
        self._progress.start()
        self._pilot = self._add("Pilot", total=1.0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def _add(self, description: str, total: float) -> TaskID:
        return self._progress.add_task(
            description, total=total, stage="", beta=0.0, ess=1.0, acceptance=0.0, log_z=""
        )

    def pilot(self, progress: BlockProgress) -> None:
        """Show the pilot's progress along the path."""
        assert self._pilot is not None
        self._progress.update(
            self._pilot,
            completed=progress.beta,
            stage=str(progress.stage),
            beta=progress.beta,
            ess=progress.ess,
            acceptance=progress.acceptance,
            log_z=f"{progress.log_evidence:.2f}",
        )

    def begin(self, description: str, n_blocks: int, n_stages: int, sign: int = 1) -> None:
        """Start the row of some blocks; the work of reverse ones has the sign -1."""
        self._n_stages, self._sign = n_stages, sign
        self._reached, self._work = {}, []
        self._run = self._add(description, total=float(n_blocks * n_stages))

    def block(self, progress: BlockProgress) -> None:
        """Show the progress of a block that is under way."""
        with self._lock:
            self._reached[progress.block] = progress.stage
            self._update(
                stage=f"{progress.stage}/{self._n_stages}",
                beta=progress.beta,
                ess=progress.ess,
                acceptance=progress.acceptance,
            )

    def done(self, block: int, record: BlockRecord) -> None:
        """Show the log evidence of all blocks so far."""
        with self._lock:
            self._reached[block] = self._n_stages
            self._work.append(record.work)
            self._update(log_z=self._running())

    def _update(self, **fields: Any) -> None:
        assert self._run is not None
        self._progress.update(self._run, completed=sum(self._reached.values()), **fields)

    def _running(self) -> str:
        log_weight = -self._sign * np.concatenate(self._work)
        value = log_mean_exp(log_weight)
        if len(log_weight) < 2 or not np.isfinite(value):
            return f"{self._sign * value:.2f}"
        error = np.exp(log_weight - value).std(ddof=1) / np.sqrt(len(log_weight))
        return f"{self._sign * value:.3f} ± {error:.3f}"
