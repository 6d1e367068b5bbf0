"""The display in a notebook whose kernel has no ipywidgets."""

import nbclient
import nbformat
import pytest

from pm_evidence.execution.display import Redrawn

# rich needs ipywidgets there, and warns at every picture without them
CODE = """
import sys, threading, warnings
sys.modules["ipywidgets"] = None
warnings.simplefilter("always")
from pm_evidence.core.records import LogEvidence
from pm_evidence.execution.display import Display

display = Display(True)
clock, drawn, picture = [0.0], threading.Semaphore(0), display._notebook._picture
display._progress.get_time = lambda: clock[0]

def watched():
    drawn.release()
    return picture()

display._notebook._picture = watched
with display:
    with display.compiling():
        clock[0] = 1.5
        for _ in range(3):
            assert drawn.acquire(timeout=120.0)
    display.round(1, 0.01, LogEvidence(-31.0364, 0.0081, "bridge"))
"""


class Client(nbclient.NotebookClient):
    """Keeps every picture that replaced an earlier one."""

    def process_message(self, msg, cell, cell_index):
        if msg["msg_type"] == "update_display_data":
            self.__dict__.setdefault("pictures", []).append(msg["content"]["data"]["text/html"])
        return super().process_message(msg, cell, cell_index)


@pytest.mark.slow
def test_one_table_that_is_redrawn_while_code_is_compiled_and_no_warning():
    cell = nbformat.v4.new_code_cell(CODE)
    client = Client(nbformat.v4.new_notebook(cells=[cell]), timeout=600, kernel_name="python3")
    client.execute()
    (output,) = cell.outputs
    assert output.output_type == "display_data"
    for text in ("Compiling", "0:00:01", "Log evidence -31.036(8) (bridge)"):
        assert text in output.data["text/html"]
        assert text in output.data["text/plain"]
    under_way = [p for p in client.__dict__.get("pictures", []) if "Log evidence" not in p]
    assert len(under_way) >= 2 and all("Compiling" in picture for picture in under_way)


# --- the picture that is redrawn, without a notebook ---


class Place:
    """What IPython returns of a display."""

    def __init__(self):
        self.shown = []

    def update(self, picture):
        self.shown.append(picture)


def test_the_first_and_the_last_picture_are_shown(monkeypatch):
    """A run that ends before the first redrawing still shows how it ended."""
    place, pictures = Place(), iter(["first", "last"])

    def display(picture, display_id):
        assert display_id
        place.update(picture)
        return place

    monkeypatch.setattr("IPython.display.display", display)
    redrawn = Redrawn(lambda: next(pictures), seconds=60.0)
    redrawn.start()
    redrawn.stop()
    assert place.shown == ["first", "last"]
