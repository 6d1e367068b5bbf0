"""The display in a notebook whose kernel has no ipywidgets."""

import sys

import nbclient
import nbformat
import pytest
from rich import get_console

from pm_evidence.execution.notebook import Redrawn, in_notebook

# rich needs ipywidgets there, and warns at every picture without them
CODE = """
import sys, time, warnings
sys.modules["ipywidgets"] = None
warnings.simplefilter("always")
from pm_evidence.core.records import LogEvidence
from pm_evidence.execution.display import Display

with Display({enabled}) as display:
    with display.compiling():
        time.sleep(1.6)
    display.round(1, 0.01, LogEvidence(-31.0364, 0.0081, "bridge"))
"""


class Client(nbclient.NotebookClient):
    """Keeps every picture that replaced an earlier one."""

    def process_message(self, msg, cell, cell_index):
        if msg["msg_type"] == "update_display_data":
            self.__dict__.setdefault("pictures", []).append(msg["content"]["data"]["text/html"])
        return super().process_message(msg, cell, cell_index)


@pytest.fixture(scope="module", params=[True, False], ids=["shown", "quiet"])
def executed(request):
    cell = nbformat.v4.new_code_cell(CODE.format(enabled=request.param))
    client = Client(nbformat.v4.new_notebook(cells=[cell]), timeout=120, kernel_name="python3")
    client.execute()
    return request.param, cell.outputs, client.__dict__.get("pictures", [])


def test_one_table_and_no_warning(executed):
    shown, outputs, _ = executed
    assert [output.output_type for output in outputs] == ["display_data"] * shown
    for output in outputs:
        for text in ("Compiling", "0:00:01", "Log evidence -31.036(8) (bridge)"):
            assert text in output.data["text/html"]
            assert text in output.data["text/plain"]


def test_it_is_redrawn_while_code_is_compiled(executed):
    shown, _, pictures = executed
    under_way = [picture for picture in pictures if "Log evidence" not in picture]
    assert all("Compiling" in picture for picture in under_way)
    assert (len(under_way) >= 2) == shown


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


def test_one_that_was_never_started_can_be_stopped():
    Redrawn(lambda: pytest.fail("nothing is to be shown")).stop()


def test_a_terminal_is_no_notebook(monkeypatch):
    """Even where IPython is imported, as its own terminal does."""
    monkeypatch.setitem(sys.modules, "IPython", sys)
    assert not in_notebook()
    monkeypatch.setattr(get_console(), "is_jupyter", True)
    assert in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook()
