"""An output in a notebook that is redrawn in place, without widgets."""

import sys
import threading
from collections.abc import Callable
from typing import Any

from rich import get_console

__all__ = ["Redrawn", "in_notebook"]


def in_notebook() -> bool:
    """Return whether the output goes to a notebook instead of a terminal."""
    return "IPython" in sys.modules and get_console().is_jupyter


class Redrawn:
    """An output that a function returns, and that is updated at intervals until it is stopped.

    IPython can update an output by its name, so neither ipywidgets nor an extension of the notebook
    is needed, and the last output is saved with the notebook.

    Parameters
    ----------
    picture : callable
        Returns the object that IPython displays.
    seconds : float
        Time between two updates.
    """

    def __init__(self, picture: Callable[[], Any], seconds: float = 0.5) -> None:
        self._picture, self._seconds = picture, seconds
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._place: Any = None

    def start(self) -> None:
        """Show the output, and start a thread that updates it."""
        from IPython.display import display

        self._place = display(self._picture(), display_id=True)
        self._thread = threading.Thread(target=self._redraw, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop updating, and show the final output."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._place.update(self._picture())

    def _redraw(self) -> None:
        while not self._over.wait(self._seconds):
            self._place.update(self._picture())
