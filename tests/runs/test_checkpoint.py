"""Checkpoints: a run that was killed goes on, and one of another call is refused."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.execution.archive import Archive
from pm_evidence.runs.checkpoint import opened
from pm_evidence.runs.normalise import over_prior
from tests.runs import checkpointed
from tests.runs.checkpointed import CASES, contents, run, schools, stored, watched

ROOT = Path(__file__).resolve().parents[2]
SLOW_DOWN = 0.05  # seconds for each part, so that a process can be met in the middle


def start(case, checkpoint, log, **options):
    """Start a process that runs a case."""
    arguments = json.dumps([case, str(checkpoint), str(log), SLOW_DOWN, options])
    return subprocess.Popen(
        [sys.executable, "-m", "tests.runs.checkpointed", arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def lines(log):
    """What a process has computed."""
    return log.read_text().splitlines() if log.exists() else []


def wait_until(process, condition):
    """Wait until a process is so far, or has ended."""
    started = time.monotonic()
    while not condition() and process.poll() is None:
        assert time.monotonic() - started < 120.0, "the process does not get there"
        time.sleep(0.005)


def killed(case, folder, n_parts, delay=0.0):
    """Run a case in a process that is killed when some parts are stored; return the stored ones."""
    checkpoint, log = folder / "run", folder / "log"
    process = start(case, checkpoint, log)
    wait_until(process, lambda: len(stored(checkpoint)) >= n_parts)
    time.sleep(delay)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
    return stored(checkpoint)


def check_killed(case, whole, n_computed, folder, n_parts, delay=0.0):
    """Kill a run, resume it here, and compare with the run that nothing has disturbed."""
    folder.mkdir()
    found = killed(case, folder, n_parts, delay)
    with watched(again := folder / "again"):
        dt = run(case, folder / "run")
    assert contents(dt) == whole
    assert len(lines(again)) == n_computed - len(found), "stored parts were computed again"
    assert set(found) < set(stored(folder / "run"))


def undisturbed(case, folder):
    """The contents of a run without a checkpoint, and how much it has computed."""
    with watched(folder / f"log of {case}"):
        dt = run(case)
    return contents(dt), len(lines(folder / f"log of {case}"))


@pytest.fixture(scope="module")
def smc(tmp_path_factory):
    """A finished checkpoint of the case smc, and its contents."""
    folder = tmp_path_factory.mktemp("smc")
    dt = run("smc", folder / "run")
    return folder / "run", contents(dt)


@pytest.fixture
def copied(smc, tmp_path):
    """A copy of that checkpoint."""
    for path in smc[0].iterdir():
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / path.name).write_bytes(path.read_bytes())
    return tmp_path / "run"


# --- resuming ---


def test_a_killed_run_goes_on_with_what_it_has(tmp_path):
    """Bit for bit the run that was not killed, and no stored part is computed again."""
    whole, n_computed = undisturbed("smc", tmp_path)
    check_killed("smc", whole, n_computed, tmp_path / "killed", 6, 0.03)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["routes", "smc", "both", "ladders"])
def test_ten_killed_runs_of_ten_are_the_same(case, tmp_path):
    """At random moments, seed 5: during the pilot, blocks, survey and fits, and between rounds."""
    rng = np.random.default_rng(5)
    whole, n_computed = undisturbed(case, tmp_path)
    run(case, tmp_path / "finished")
    n_stored = len(stored(tmp_path / "finished"))
    for i in range(10):
        folder = tmp_path / str(i)
        moment = int(rng.integers(0, n_stored - 1)), float(rng.uniform(0.0, SLOW_DOWN))
        check_killed(case, whole, n_computed, folder, *moment)
