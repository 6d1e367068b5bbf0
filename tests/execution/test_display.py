"""The live display: what it shows, and that it keeps quiet when told to."""

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.core.progress import Progress
from pm_evidence.core.records import BlockRecord
from pm_evidence.execution.display import Display

COLUMNS = ("Progress", "Stage", "Beta", "ESS", "Accept", "Log evidence", "Elapsed")


@pytest.fixture
def wide(monkeypatch):
    """A console with room for all columns."""
    monkeypatch.setenv("COLUMNS", "160")


def record(block, *work):
    return BlockRecord(block, np.array(work), None)


def show(display):
    with display:
        display.pilot(Progress(-1, 2, 0.25, 0.5, 0.81, -3.21))
        display.begin("SMC", n_blocks=3, n_stages=4)
        display.block(Progress(0, 1, 0.125, 0.62, 0.77, -1.0))
        display.block(Progress(2, 3, 0.5, 0.48, 0.79, -1.0))
        display.done(0, record(0, 5.0))
        display.done(1, record(1, 5.0 + np.log(2.0)))


def test_what_is_shown(wide, capsys):
    show(Display(True))
    shown = capsys.readouterr().out
    header, pilot, run = (line for line in shown.splitlines() if line.strip())
    for column in COLUMNS:
        assert column in header
    for text in ("Pilot", "2", "0.2500", "50%", "0.81", "-3.21"):
        assert text in pilot
    # the mean weight of the two blocks is 0.75 exp(-5), with a standard error of a third of it
    for text in ("SMC", "3/4", "0.5000", "48%", "0.79", "-5.288 ± 0.333"):
        assert text in run


def test_one_block_and_no_weight_have_no_error(wide, capsys):
    for works, text in (([5.0], "-5.00"), ([np.inf, np.inf], "-inf")):
        with Display(True) as display:
            display.begin("SMC", 2, 4)
            for block, work in enumerate(works):
                display.done(block, record(block, work))
        shown = capsys.readouterr().out
        assert text in shown
        assert "±" not in shown


def test_disabled_display_is_silent(capfd):
    show(Display(False))
    assert capfd.readouterr() == ("", "")


def test_error_inside_is_passed_on(capsys):
    with pytest.raises(KeyboardInterrupt), Display(True):
        raise KeyboardInterrupt


@pytest.mark.parametrize("method", ["smc", pe.AIS(n_stages=10)])
def test_run(method, wide, capfd):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    options = {"method": method, "draws": 128, "random_seed": 1}
    shown_dt = pe.sample_evidence(model, **options)
    out, err = capfd.readouterr()
    assert all(column in out for column in COLUMNS)
    assert "Pilot" in out
    assert ("SMC" if method == "smc" else "AIS") in out
    assert "±" in out
    assert err == ""
    silent_dt = pe.sample_evidence(model, progressbar=False, **options)
    assert capfd.readouterr() == ("", "")
    # watching does not change what is watched
    assert pe.log_evidence(silent_dt).value == pe.log_evidence(shown_dt).value
