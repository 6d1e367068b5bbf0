"""A picture in a notebook that is redrawn in place, without widgets."""

import sys
import threading
from collections.abc import Callable
from typing import Any

from rich import get_console

__all__ = ["Redrawn", "in_notebook"]


def in_notebook() -> bool:
    """Return whether output goes to a notebook, where there is no terminal to write to."""
    return "IPython" in sys.modules and get_console().is_jupyter


class Redrawn:
    """What a function returns, shown again and again until it is stopped.

    IPython keeps the place of an output by its name, so neither ipywidgets nor an extension of the
    notebook is needed, and the last picture is saved with the notebook.

    Parameters
    ----------
    picture : callable
        Returns what IPython is to display.
    seconds : float
        Time between two pictures.
    """

    def __init__(self, picture: Callable[[], Any], seconds: float = 0.5) -> None:
        self._picture, self._seconds = picture, seconds
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._place: Any = None

    def start(self) -> None:
        """Show the first picture, and redraw it from a thread of its own from now on."""
        from IPython.display import display

        self._place = display(self._picture(), display_id=True)
        self._thread = threading.Thread(target=self._redraw, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Show the last picture."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._place.update(self._picture())

    def _redraw(self) -> None:
        while not self._over.wait(self._seconds):
            self._place.update(self._picture())
