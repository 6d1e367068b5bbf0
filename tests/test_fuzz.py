"""Wrong arguments everywhere: no crash, no hang, and refusals in our own words that say of what.

The calls are made in a process of its own, so that a crash of the interpreter is a failure of the
test and not of the tests.
"""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence import estimators
from tests.fuzz.cases import Call, covered
from tests.fuzz.run import judge

ROOT = Path(__file__).resolve().parents[1]
# Errors and warnings are raised for users, and not called by them; `NativeTarget` is a base class;
# `RaiseLikelihood` and `TrainingHistory` are returned.
NOT_CALLED = {
    "EvidenceWarning",
    "Linear",
    "ModelError",
    "NumericalError",
    "RaiseLikelihood",
    "SM08",
    "TrainingHistory",
    # needs the client of a cluster; `test_rows_on_workers` calls it wrongly
    "rows_on_workers",
    # kernels of single families, which are called with these
    "BlockGibbs",
    "ColourMetropolis",
    "LatentHMC",
    "RiemannianHMC",
    "SpinMetropolis",
}
MODULES = ("gp", "kernels", "lattices", "methods", "mixtures", "paths", "rbm", "schedules")
LONGEST = 1500.0  # seconds; two minutes are usual, and without compiled code on disk some more
MOST_UNNAMED = 0.01


def run(log, *command):
    """Run Python on something, and return what it printed; fail if it died."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    if done.returncode:
        last = log.read_text().splitlines()[-1:] if log.exists() else "nothing yet"
        pytest.fail(f"died with {done.returncode} in {last}\n{done.stderr[-3000:]}")
    return done.stdout


def check(tmp_path, seed, number, n_pairs):
    log = tmp_path / "calls"
    printed = run(log, "-m", "tests.fuzz.run", str(seed), str(number), str(n_pairs), str(log))
    report = json.loads(printed.rsplit("REPORT", 1)[1])
    complaints = "\n".join(report["complaints"])
    assert report["refused"] > 100 and report["accepted"] > 10
    assert "foreign" not in report, complaints
    assert report.get("unnamed", 0) <= MOST_UNNAMED * report["refused"], complaints


def test_a_part_of_the_calls(tmp_path):
    """A few calls, drawn anew by each seed; all are made by the slow test."""
    check(tmp_path, seed=20260, number=130, n_pairs=30)


@pytest.mark.slow
def test_all_calls(tmp_path):
    """Every public name, every argument, every wrong value; and many pairs of them."""
    check(tmp_path, seed=1, number=0, n_pairs=10_000)


def test_every_public_name_is_called():
    names = {name for name in pe.__all__ if not isinstance(getattr(pe, name), ModuleType)}
    names |= {f"estimators.{name}" for name in estimators.__all__}
    names |= {name for module in MODULES for name in getattr(pe, module).__all__}
    assert covered() == names - NOT_CALLED


def call(function):
    return Call("planted", function, {"size": 3}, {"size": "3"})


def raises(message):
    def function(size):
        raise ValueError(message)

    return function


@pytest.mark.parametrize(
    ("function", "outcome"),
    [
        (lambda size: np.zeros(2) + np.zeros(size), "foreign"),  # NumPy's words
        (lambda size: {}[size], "foreign"),  # no refusal at all
        (raises("size must be small"), "foreign"),  # not raised by the package
        (lambda size: pe.lattices.Ising(4, coupling="x"), "unnamed"),
        (lambda size: pe.methods.SMC(islands=1), "unnamed"),
        (lambda size: size, "accepted"),
    ],
)
def test_what_is_wrong_is_seen(function, outcome):
    """Planted faults, one of each kind."""
    assert judge(call(function))[0] == outcome


def test_a_named_refusal_is_one():
    assert judge(Call("SMC", pe.methods.SMC, {"islands": 1}, {"islands": "1"}))[0] == "refused"


def test_a_crash_is_seen(tmp_path):
    """A planted read of address 0 ends the process: the failure names the call under way."""
    log = tmp_path / "calls"
    log.write_text("DiscreteGibbs(coordinates: planted)\n")
    with pytest.raises(pytest.fail.Exception, match=r"died with -?\d+ in \['DiscreteGibbs\(coo"):
        run(log, "-c", "import ctypes; ctypes.string_at(0)")
