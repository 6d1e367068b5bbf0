"""Checkpoints: a run that was killed goes on, and one of another call is refused."""

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.runs.checkpoint import with_journal
from pm_evidence.runs.rounds import Run
from pm_evidence.targets.model.identity import identity_of
from tests.runs.checkpointed import CASES, contents, run, schools, stored, watched
from tests.targets.model.described import MODELS

ROOT = Path(__file__).resolve().parents[2]
# What the case smc computes: two pilots, 8 islands, a survey, two fits and 8 bridges.
PARTS = 21
SLOW_DOWN = 0.1  # seconds for each part, so that a process can be met in the middle


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


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """What a process printed that got SIGINT when some islands had finished, and its folder."""
    folder = tmp_path_factory.mktemp("stopped")
    process = start("smc", folder / "run", folder / "log")
    wait_until(process, lambda: len(stored(folder / "run")) >= 6)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate()
    assert process.returncode == 0
    return [json.loads(line) for line in printed.splitlines()], folder / "run"


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


# --- Ctrl-C ---


def test_ctrl_c_returns_what_there_is(stopped):
    """From the first islands, with a status that says so."""
    _, found = stopped[0]
    assert found["status"] == "interrupted" and 3 <= found["n_islands"] <= 8
    assert found["estimator"] == "smc" and np.isfinite([found["value"], found["mcse"]]).all()


def test_what_ctrl_c_stopped_can_be_resumed(stopped, smc, tmp_path):
    with watched(tmp_path / "again"):
        dt = run("smc", stopped[1])
    assert contents(dt) == smc[1]
    assert len(lines(tmp_path / "again")) <= PARTS - 6


def test_a_model_is_the_same_in_another_process(stopped):
    """Functions of a user's own and graphs inside operations as well."""
    assert stopped[0][0] == {name: identity_of(make()) for name, make in MODELS.items()}


# --- what is in a checkpoint ---


def test_a_checkpoint_changes_no_number(smc):
    assert contents(run("smc")) == smc[1]


def test_a_finished_run_is_not_sampled_again(copied, smc, tmp_path):
    """Neither computed nor written; what belongs to no number may differ."""
    before = {path.name: path.stat().st_mtime_ns for path in copied.iterdir()}
    with watched(tmp_path / "log"):
        dt = run("smc", str(copied), cores=1, max_time=1e-6, idata_kwargs={"log_prior": True})
    found = contents(dt)
    assert {key: found[key] for key in smc[1]} == smc[1]
    assert all("/log_prior" in key for key in found.keys() - smc[1].keys())
    assert lines(tmp_path / "log") == []
    after = {path.name: path.stat().st_mtime_ns for path in copied.iterdir()}
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("damage", ["truncated", "changed", "empty", "exchanged"])
def test_damaged_files_are_computed_again(copied, smc, tmp_path, caplog, damage):
    """One block and what the pilot has learnt; the other parts are read."""
    plan, block = (next(copied.glob(f"{name}*")) for name in ("00002-plan", "00003-tasks-00004"))
    for path in (plan, block):
        whole = path.read_bytes()
        middle = len(whole) // 2
        if damage == "exchanged":
            path.write_bytes((copied / "00003-tasks-00001.zarr.zip").read_bytes())
        elif damage == "changed":
            path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
        else:
            path.write_bytes(whole[: middle if damage == "truncated" else 0])
    with watched(tmp_path / "log"):
        assert contents(run("smc", copied)) == smc[1]
    assert lines(tmp_path / "log") == ["Pilot._run", "ForwardBlock.__call__"]
    assert f"{plan} is damaged" in caplog.text and f"{block} is damaged" in caplog.text


def test_a_damaged_description_is_written_again(copied, smc, tmp_path, caplog):
    path = copied / "call.zarr.zip"
    path.write_bytes(path.read_bytes()[:-20])
    with watched(tmp_path / "log"):
        assert contents(run("smc", copied)) == smc[1]
    assert lines(tmp_path / "log") == [] and "call.zarr.zip is damaged" in caplog.text


# --- other calls ---


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        (lambda: schools(first=29.0), {}, "other data"),
        (lambda: schools(errors=11.0), {}, "another model"),
        (lambda: pe.Ising(6), {}, "another model, other data"),
        (schools, {"random_seed": 4}, r"random_seed=3 \(now 4\)"),
        (schools, {"draws": 400}, r"draws=320 \(now 400\)"),
        (schools, {"method": pe.SMC(islands=9)}, "another method"),
        (
            schools,
            {"target_mcse": 0.1, "kernel": "hmc"},
            r"kernel='auto' \(now 'hmc'\), target_mcse",
        ),
        (schools, {"schedule": [0.0, 0.1, 1.0]}, r"schedule='adaptive' \(now \[0.0, 0.1, 1.0\]\)"),
    ],
)
def test_the_checkpoint_of_another_call_is_refused(smc, target, options, message):
    """All that differs is named, with short values; nothing is written."""
    arguments = {**CASES["smc"][1], "random_seed": 3, "progressbar": False, **options}
    before = sorted(path.name for path in smc[0].iterdir())
    with pytest.raises(ValueError, match=f"checkpoint must be of this very call, got .*{message}"):
        pe.sample_evidence(target(), checkpoint=smc[0], **arguments)
    assert sorted(path.name for path in smc[0].iterdir()) == before


def test_the_checkpoint_of_another_version_is_refused(smc, monkeypatch):
    monkeypatch.setattr("pm_evidence.runs.checkpoint.VERSION", "9.9")
    with pytest.raises(ValueError, match=r"version='.*' \(now '9.9'\)"):
        run("smc", smc[0])
    monkeypatch.setattr("pm_evidence.runs.checkpoint._FORMAT", 2)
    with pytest.raises(ValueError, match=r"checkpoint must be of format 2, got .* of format 1"):
        run("smc", smc[0])


def test_a_seed_that_was_drawn_is_kept(tmp_path):
    """With no seed the same call resumes, and the seed that was drawn may be given, too."""
    one = run("gaussian", tmp_path / "run", random_seed=None)
    assert contents(run("gaussian", tmp_path / "run", random_seed=None)) == contents(one)
    seed = one["log_evidence"].attrs["random_seed"]
    assert contents(run("gaussian", tmp_path / "run", random_seed=seed)) == contents(one)
    with pytest.raises(ValueError, match="random_seed="):
        run("gaussian", tmp_path / "run", random_seed=1)


def test_a_call_that_failed_at_once_leaves_the_folder_free(tmp_path):
    """Nothing was computed, so that another call may have it."""
    run = Run(pe.SMC(), 10, 1, None, 0)
    for target, seed in ((schools(), 1), (pe.Ising(4), 2)):
        arguments = {"checkpoint": tmp_path, "random_seed": seed, "draws": seed}
        assert with_journal(run, target, arguments).seed == seed


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda folder: 3, TypeError, "checkpoint must be the path of a folder, got 3"),
        (lambda folder: "", TypeError, "checkpoint must be the path of a folder"),
        (lambda folder: b"run", TypeError, "checkpoint must be the path of a folder"),
        (lambda folder: folder / "file", ValueError, "got that of a file"),
        (lambda folder: folder, ValueError, "with other files, such as 'file'"),
    ],
)
def test_wrong_paths(tmp_path, make, error, message):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(error, match=message):
        run("gaussian", make(tmp_path))
    assert (tmp_path / "file").read_text() == "mine"


# --- where and how long ---


class Clock:
    """A clock that goes on by a second whenever somebody looks at it."""

    seconds = 0.0

    def perf_counter(self):
        self.seconds += 1.0
        return self.seconds


def test_time_that_has_passed_counts(tmp_path, monkeypatch):
    """A limit of time ends a run at the same place again, and a larger one lets it go on."""
    monkeypatch.setattr("pm_evidence.execution.journal.time", Clock())
    first = run("gaussian", tmp_path / "run", max_time=40.0)
    n = first["work"].sizes["forward_path"]
    assert n > 100 and pe.log_evidence(first).status == "ok"
    with watched(tmp_path / "log"):
        again = run("gaussian", tmp_path / "run", max_time=40.0)
    assert contents(again) == contents(first) and lines(tmp_path / "log") == []
    longer = run("gaussian", tmp_path / "run", max_time=400.0)
    assert longer["work"].sizes["forward_path"] > n
    assert np.array_equal(longer["work"]["forward"][:n], first["work"]["forward"])


def test_on_an_executor(smc, tmp_path):
    """Blocks of workers are stored here, and may go on elsewhere."""
    with ThreadPoolExecutor(2) as workers, watched(tmp_path / "log"):
        assert contents(run("smc", tmp_path / "run", executor=workers)) == smc[1]
    assert len(lines(tmp_path / "log")) == PARTS
    with watched(tmp_path / "again"):
        assert contents(run("smc", tmp_path / "run")) == smc[1]
    assert lines(tmp_path / "again") == []


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore::ResourceWarning",
    "ignore::UserWarning",
)
def test_on_dask(copied, smc, tmp_path):
    """Half of the parts are missing, and workers in other processes make them."""
    distributed = pytest.importorskip("distributed")
    for path in sorted(copied.glob("0*"))[::2]:
        path.unlink()
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as client:
        whole = contents(run("smc", copied, executor=client.get_executor()))
    assert whole == smc[1]
    with watched(tmp_path / "again"):
        assert contents(run("smc", copied)) == smc[1]
    assert lines(tmp_path / "again") == []
