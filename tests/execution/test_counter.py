"""The progress bar of a loop: what it shows, that it ends, and that it keeps quiet when told to."""

import sys
from types import SimpleNamespace

import pytest

from pm_evidence.execution import counter
from pm_evidence.execution.counter import counting


def test_finished_steps_are_shown(capsys):
    with counting("Training", 40, True) as report:
        report(10)
        report(30)
    out = capsys.readouterr().out
    assert "Training" in out and "30/40" in out


def test_nothing_is_shown_when_switched_off(capsys):
    with counting("Training", 40, False) as report:
        report(40)
    assert capsys.readouterr().out == ""


def test_an_error_ends_the_bar(capsys):
    """A bar that goes on would draw over the message of the error."""
    with pytest.raises(KeyError), counting("Training", 40, True) as report:
        report(5)
        raise KeyError("x")
    assert "5/40" in capsys.readouterr().out


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
