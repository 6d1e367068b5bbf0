"""Checkpoints: a run that was killed goes on, and one of another call is refused."""

import json
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.execution.journal import Archive, Entry
from pm_evidence.runs.checkpoint import with_journal
from pm_evidence.runs.rounds import Run
from pm_evidence.targets.model.cache import identity_of
from tests.runs.checkpointed import (
    CASES,
    Moment,
    contents,
    killed_at,
    run,
    schools,
    stored,
    watched,
)
from tests.targets.model.described import MODELS

ROOT = Path(__file__).resolve().parents[2]
# What the case smc computes: two pilots, 8 islands, a survey, two fits and 8 bridges.
PARTS = 21


def in_a_process(case, folder, interrupted_at, dies_at):
    """Run a case in a process that kills itself; return what it has printed."""
    arguments = json.dumps([case, str(folder), interrupted_at, dies_at])
    done = subprocess.run(
        [sys.executable, "-m", "tests.runs.checkpointed", arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, "it ended before it was killed"
    return [json.loads(line) for line in done.stdout.splitlines()]


def lines(log):
    """What a process has computed."""
    return log.read_text().splitlines() if log.exists() else []


def check_resumed(case, whole, n_computed, checkpoint, log):
    """Resume a run here, and compare with the run that nothing has disturbed."""
    found = stored(checkpoint)
    with watched(log):
        dt = run(case, checkpoint)
    assert contents(dt) == whole
    assert len(lines(log)) == n_computed - len(found), "stored parts were computed again"
    assert set(found) < set(stored(checkpoint))


@pytest.fixture(scope="module")
def smc(tmp_path_factory):
    """A finished checkpoint of the case smc, and its contents."""
    folder = tmp_path_factory.mktemp("smc")
    dt = run("smc", folder / "run")
    return folder / "run", contents(dt)


@pytest.fixture
def copied(smc, tmp_path):
    """A copy of that checkpoint."""
    return shutil.copytree(smc[0], tmp_path / "run")


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """What a process printed that got SIGINT, and in another run SIGKILL, at its sixth island."""
    folder = tmp_path_factory.mktemp("ended")
    return in_a_process("smc", folder, 2 + 6, 2 * 2 + 2 * 4 + 8), folder


# --- resuming ---


def test_a_killed_run_goes_on_with_what_it_has(ended, smc, tmp_path):
    """Bit for bit the run that was not killed, and no stored part is computed again."""
    assert len(stored(ended[1] / "killed")) >= 3
    check_resumed("smc", smc[1], PARTS, ended[1] / "killed", tmp_path / "log")


@pytest.mark.slow
@pytest.mark.parametrize("case", ["routes", "smc", "both", "ladders"])
def test_six_killed_runs_of_six_are_the_same(case, tmp_path):
    """At random moments, seed 5: during the pilot, blocks, survey and fits, and between rounds."""
    rng = np.random.default_rng(5)
    with watched(tmp_path / "log"):
        whole = contents(run(case))
    moments = Moment(0, print)
    with killed_at(moments, tmp_path / "finished's log"):
        run(case, tmp_path / "finished")
    for i, moment in enumerate(rng.integers(1, moments.count, 6)):
        folder = tmp_path / str(i)
        folder.mkdir()
        in_a_process(case, folder, 0, int(moment))
        n_computed = len(lines(tmp_path / "log"))
        check_resumed(case, whole, n_computed, folder / "killed", folder / "log")


def test_ctrl_c_returns_what_there_is(ended):
    """From the first islands, with a status that says so."""
    found = ended[0][1]
    assert found["status"] == "interrupted" and found["n_islands"] == 5
    assert found["estimator"] == "smc" and np.isfinite([found["value"], found["mcse"]]).all()


def test_what_ctrl_c_stopped_can_be_resumed(ended, smc, tmp_path):
    """What follows Ctrl-C is not stored: it is no part of the run."""
    assert len(stored(ended[1] / "interrupted")) == 2 + 5
    check_resumed("smc", smc[1], PARTS, ended[1] / "interrupted", tmp_path / "log")


def test_a_model_is_the_same_in_another_process(ended):
    """Functions of a user's own and graphs inside operations as well."""
    assert ended[0][0] == {name: identity_of(make()) for name, make in MODELS.items()}


# --- what is in a checkpoint ---


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


def test_damaged_files_are_computed_again(copied, smc, tmp_path, caplog):
    """A changed byte in what the pilot has learnt, a block that is another one, half a description.

    The other parts are read.
    """
    plan, block = (next(copied.glob(f"{name}*")) for name in ("00002-plan", "00003-tasks-00004"))
    whole = plan.read_bytes()
    middle = len(whole) // 2
    plan.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    block.write_bytes((copied / "00003-tasks-00001.zarr.zip").read_bytes())
    description = copied / "call.zarr.zip"
    description.write_bytes(description.read_bytes()[: description.stat().st_size // 2])
    with watched(tmp_path / "log"):
        assert contents(run("smc", copied)) == smc[1]
    assert lines(tmp_path / "log") == ["Pilot._run", "ForwardBlock.__call__"]
    for path in (plan, block, description):
        assert f"{path} is damaged" in caplog.text
    assert contents(run("smc", copied)) == smc[1] and caplog.text.count("is damaged") == 3


# --- other calls ---


OTHER_CALLS = [
    (lambda: schools(first=29.0), {}, "other data"),
    (lambda: schools(errors=11.0), {}, "another model"),
    (lambda: pe.lattices.Ising(6), {}, "another model, other data"),
    (schools, {"random_seed": 4}, r"random_seed=3 \(now 4\)"),
    (schools, {"draws": 400}, r"draws=320 \(now 400\)"),
    (schools, {"method": pe.methods.SMC(islands=9)}, "another method"),
    (schools, {"target_mcse": 0.1, "kernel": "hmc"}, r"kernel='auto' \(now 'hmc'\), target_mcse"),
    (schools, {"schedule": [0.0, 0.1, 1.0]}, r"schedule='adaptive' \(now \[0.0, 0.1, 1.0\]\)"),
]


def test_the_checkpoint_of_another_call_is_refused(smc):
    """All that differs is named, with short values; nothing is written."""
    before = sorted(path.name for path in smc[0].iterdir())
    for target, options, message in OTHER_CALLS:
        arguments = {**CASES["smc"][1], "random_seed": 3, "progressbar": False, **options}
        said = f"checkpoint must be of this very call, got .*{message}"
        with pytest.raises(ValueError, match=said):
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


def test_wrong_paths(tmp_path):
    (tmp_path / "file").write_text("mine")
    for path, error, message in (
        (3, TypeError, "checkpoint must be the path of a folder, got 3"),
        ("", TypeError, "checkpoint must be the path of a folder"),
        (b"run", TypeError, "checkpoint must be the path of a folder"),
        (tmp_path / "file", ValueError, "got that of a file"),
        (tmp_path, ValueError, "with other files, such as 'file'"),
    ):
        with pytest.raises(error, match=message):
            run("gaussian", path)
    assert (tmp_path / "file").read_text() == "mine"


# --- where and how long ---


def test_a_description_of_something_else_is_refused(tmp_path):
    """The checksum is right, and the content is not that of a call."""
    for attributes in ({"format": 1}, {"format": 1, "seed": "1", "parts": {"model": 3}}):
        Archive(tmp_path).write("call", Entry(attributes, {}))
        with pytest.raises(ValueError, match="whose file 'call' describes no call"):
            run("gaussian", tmp_path)


def test_what_cannot_be_compared_is_not_stored(tmp_path):
    """A call with a lock in its density may be another one tomorrow."""
    target = Locked(lock=threading.Lock())
    with pytest.warns(pe.EvidenceWarning, match=r"_thread.lock, whose content cannot be: nothing"):
        kept = with_journal(Run(pe.methods.SMC(), 10, 1, None, 0), target, {}, tmp_path, 1)
    assert kept.seed == 1 and not list(tmp_path.iterdir())


@dataclass(frozen=True)
class Locked(pe.mixtures.Gaussian):
    """A target of a user's own, with an attribute that has no content."""

    lock: object = None


class Shifted(pe.mixtures.Gaussian):
    """A target with private state that no field tells of."""

    def __init__(self, shift):
        super().__init__()
        object.__setattr__(self, "_shift", shift)


class Around:
    """A reference of a user's own, with private state in slots."""

    __slots__ = ("_centre",)

    def __init__(self, centre):
        self._centre = centre


def test_private_state_of_targets_and_references_is_a_part_of_the_call(tmp_path):
    """A target whose private attribute was corrected is another one."""
    start = Run(pe.methods.SMC(), 10, 1, None, 0)
    for number, (target, reference) in enumerate(
        [(Shifted(0.0), Around(0.0)), (Shifted(1.0), Around(0.0)), (Shifted(0.0), Around(1.0))]
    ):
        folder = tmp_path / "run"
        call, where = {"reference": reference}, (folder, 1)
        if number == 0:
            journal = with_journal(start, target, call, *where).journal
            journal.remembered("fact", lambda: 1)
            with_journal(start, Shifted(0.0), {"reference": Around(0.0)}, *where)
        else:
            with pytest.raises(ValueError, match=r"another (model|reference)"):
                with_journal(start, target, call, *where)


@pytest.mark.slow
def test_all_that_a_run_of_a_mixture_has_found_is_read(tmp_path, caplog):
    """Labels are exchanged in survey and fit; nothing of that is computed again."""
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.normal(-2, 0.7, 20), rng.normal(2, 0.7, 20)])
    with pm.Model() as model:
        weight, mean = pm.Dirichlet("w", np.ones(2)), pm.Normal("mu", 0, 3, shape=2)
        pm.NormalMixture("y", w=weight, mu=mean, sigma=0.7, observed=y)
    options = {"random_seed": 1, "progressbar": False, "target_mcse": 0.1, "checkpoint": tmp_path}
    with caplog.at_level("INFO", "pymc.pm_evidence"):
        one, again = (pe.log_evidence(pe.sample_evidence(model, **options)) for _ in range(2))
    assert one == again and "not stored" not in caplog.text
