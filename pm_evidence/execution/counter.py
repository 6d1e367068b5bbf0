"""A progress bar for a loop of known length."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from pm_evidence.execution.notebook import Redrawn, in_notebook

__all__ = ["counting"]


@contextmanager
def counting(description: str, total: int, enabled: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar while the block of the ``with`` statement runs.

    Parameters
    ----------
    description : str
        Text before the bar.
    total : int
        Number of steps of the loop.
    enabled : bool
        Whether anything is shown.

    Yields
    ------
    callable
        To be called with the number of finished steps.
    """
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        disable=not enabled,
        refresh_per_second=8,
    )

    def picture() -> object:
        return bar.make_tasks_table(bar.tasks)

    shown = Redrawn(picture) if enabled and in_notebook() else bar
    row = bar.add_task(description, total=total)
    shown.start()
    try:
        yield lambda done: bar.update(row, completed=done)
    finally:
        shown.stop()
