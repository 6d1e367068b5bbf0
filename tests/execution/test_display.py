"""The live display, and the bar of a loop: what they show, and that they can be quiet."""

import sys
from types import SimpleNamespace

import nbclient
import nbformat
import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.interrupts import Progress
from pm_evidence.core.records import BlockRecord, LogEvidence
from pm_evidence.execution import display as counter
from pm_evidence.execution.display import Display, counting, redrawn
from tests.models import shared

COLUMNS = ("Progress", "Stage", "Beta", "ESS", "Accept", "Elapsed")
BRIDGE = LogEvidence(-5.2882, 0.0333, "bridge")


@pytest.fixture
def wide(monkeypatch):
    """A console with room for all columns."""
    monkeypatch.setenv("COLUMNS", "160")


def record(block, *work):
    return BlockRecord(block, np.array(work), None)


def show(display):
    with display:
        display.round(1, None, None)
        display.pilot(Progress(-1, 2, 0.25, 0.5, 0.81, -3.21))
        display.begin("SMC", n_blocks=3, n_stages=4)
        display.block(Progress(0, 1, 0.125, 0.62, 0.77, -1.0))
        display.block(Progress(2, 3, 0.5, 0.48, 0.79, -1.0))
        display.done(0, record(0, 5.0))
        display.done(1, record(1, 5.0 + np.log(2.0)))
        display.round(1, None, BRIDGE)


def shown_lines(capsys):
    return [line for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_what_is_shown(wide, capsys):
    show(Display(True))
    header, pilot, run, below = shown_lines(capsys)
    for column in COLUMNS:
        assert column in header
    for text in ("Pilot", "2", "0.2500", "50%", "0.81"):
        assert text in pilot
    for text in ("SMC", "3/4", "0.5000", "48%", "0.79"):
        assert text in run
    # the recommended estimate, and not the mean weight of the blocks, -5.288(333)
    assert below.strip() == "Log evidence -5.288(33) (bridge)"


def test_rounds_tell_their_number_their_aim_and_what_is_recommended_so_far(wide, capsys):
    with Display(True) as display:
        for number, estimate in ((1, None), (2, BRIDGE)):
            display.round(number, 0.005, estimate)
            display.begin("Islands", 2, 4)
            display.begin("AIS", 2, 4)
    _, islands, ais, below = shown_lines(capsys)  # a row of each kind, that of the last round
    assert islands.startswith("Islands")
    assert ais.startswith("AIS")
    assert below.strip() == "Log evidence -5.288(33) (bridge), round 2, target mcse 0.005"


def test_compiling_is_shown_with_its_time(wide, capsys, monkeypatch):
    """Minutes of silence look like a hang. What was at hand took no time, and gets no row."""
    for seconds, rows in (((0.7, 0.8), 1), ((0.1, 0.2), 0)):
        clock = [0.0]
        display = Display(True)
        monkeypatch.setattr(display._progress, "get_time", lambda clock=clock: clock[0])
        with display:
            for part in seconds:  # the density, and its gradient
                with display.compiling():
                    clock[0] += part
        found = [line for line in shown_lines(capsys) if "Model" in line]
        assert len(found) == rows
        assert all("0:00:01" in line for line in found)


def test_disabled_display_is_silent(capfd):
    show(Display(False))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("method", ["smc", pe.methods.AIS(n_stages=10)])
def test_run(method, wide, capfd):
    model = shared("normal").model
    options = {"method": method, "draws": 128, "random_seed": 1}
    shown_dt = pe.sample_evidence(model, **options)
    out, err = capfd.readouterr()
    assert all(column in out for column in COLUMNS)
    assert "Pilot" in out
    assert ("SMC" if method == "smc" else "AIS") in out
    assert f"Log evidence {pe.log_evidence(shown_dt)}" in out
    assert err == ""
    silent_dt = pe.sample_evidence(model, progressbar=False, **options)
    assert capfd.readouterr() == ("", "")
    # watching does not change what is watched
    assert pe.log_evidence(silent_dt).value == pe.log_evidence(shown_dt).value


# --- loops ---


def test_finished_steps_of_a_loop_are_shown(capsys):
    with counting("Training", 40, True) as report:
        report(10)
        report(30)
    out = capsys.readouterr().out
    assert "Training" in out and "30/40" in out


def test_a_notebook_shows_the_last_step(monkeypatch):
    """In a notebook the output is redrawn in place, and the last picture stays."""
    pictures = []
    place = SimpleNamespace(update=pictures.append)

    def display(picture, display_id):
        pictures.append(picture)
        return place

    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr(counter, "in_notebook", lambda: True)
    with counting("Training", 40, True) as report:
        report(40)
    assert len(pictures) >= 2
    assert pictures[-1].row_count == 1


# --- a notebook whose kernel has no ipywidgets ---


# rich needs ipywidgets there, and warns at every picture without them
CODE = """
import sys, threading, warnings
sys.modules["ipywidgets"] = None
warnings.simplefilter("always")
from pm_evidence.core.records import LogEvidence
from pm_evidence.execution.display import Display

display = Display(True)
clock, drawn, table = [0.0], threading.Semaphore(0), display._progress.make_tasks_table
display._progress.get_time = lambda: clock[0]

def watched(tasks):
    drawn.release()
    return table(tasks)

display._progress.make_tasks_table = watched
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
    with redrawn(lambda: next(pictures), seconds=60.0):
        pass
    assert place.shown == ["first", "last"]
