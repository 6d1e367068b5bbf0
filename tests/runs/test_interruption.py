"""What Ctrl-C leaves of a run."""

import os
import signal
import threading
import time

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.core.interrupts import Interrupted
from pm_evidence.core.records import BlockRecord, Role, RunRecord, StageTrace
from pm_evidence.core.statuses import Status
from pm_evidence.execution.journal import Journal
from pm_evidence.runs import coarse
from pm_evidence.runs.interruption import best_of, stopped, was_interrupted
from pm_evidence.runs.normalise import over_prior
from pm_evidence.samplers import bridging
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.smc import SMC
from pm_evidence.testing import deceptive_systems
from tests.runs.checkpointed import contents, schools

pytestmark = pytest.mark.filterwarnings("ignore::pm_evidence.EvidenceWarning")
QUICK = {"random_seed": 2, "progressbar": False, "cores": 1}


@pytest.fixture(autouse=True)
def heard():
    """A shell's background job inherits that SIGINT is ignored."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.fixture(scope="module")
def model():
    return schools()


@pytest.fixture(scope="module")
def heavy_tailed():
    """A posterior that is hard to fit, so that the first fit is not the last one."""
    return deceptive_systems()["separated"].build()


def interrupting(monkeypatch, owner, name, call):
    """Send SIGINT to this process when a function is called for the given time, from 1."""
    function, count = getattr(owner, name), [0]
    lock = threading.Lock()

    def wrapped(*args, **kwargs):
        with lock:
            count[0] += 1
            if count[0] == call:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1.0)  # until the main thread has told this one to stop
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, wrapped)
    return count


def interrupted(model, **options):
    """The result of a run that is interrupted.

    Its warning is not looked for: other threads change the filters of warnings at the same time.
    """
    dt = pe.sample_evidence(model, **QUICK, **options)
    found = pe.log_evidence(dt)
    assert "the run was interrupted" in found.message
    return dt, found


def islands(dt, direction="forward"):
    return dt["work"].sizes[f"{direction}_block"]


SMALL = {"method": pe.SMC(islands=8), "draws": 800}


def test_the_first_islands_give_an_estimate(model, monkeypatch):
    """Those before the interrupted one are those of the whole run, bit for bit.

    The fourth is interrupted, or ends before the main thread hears of it.
    """
    whole = pe.sample_evidence(model, **QUICK, **SMALL)
    interrupting(monkeypatch, SMC, "run_block", 4)
    dt, found = interrupted(model, **SMALL)
    assert found.status == "interrupted" and found.estimator == "smc"
    assert np.isfinite([found.value, found.mcse, found.lower, found.upper]).all()
    n = islands(dt)
    assert n in (3, 4)
    assert np.array_equal(dt["work"]["forward"], whole["work"]["forward"][:n])
    assert abs(found.value - pe.log_evidence(whole).value) < 6 * found.mcse
    assert dt["posterior"].sizes["chain"] == n
    assert dt["log_evidence"].attrs["stopped_by"] == "interrupted"


def test_it_can_be_stored_and_estimated_again(model, monkeypatch, tmp_path):
    interrupting(monkeypatch, SMC, "run_block", 4)
    dt, found = interrupted(model, target_mcse=None, **SMALL)
    dt.to_netcdf(tmp_path / "a.nc")
    record = pe.to_record(dt)
    assert was_interrupted(record)
    again = pe.estimate(dt, ["smc"])
    assert str(again["smc"] if isinstance(again, dict) else again[0]) == str(found)


def test_one_island_gives_no_estimate(model, monkeypatch):
    """It may still end after the signal."""
    interrupting(monkeypatch, SMC, "run_block", 1)
    with pytest.raises(KeyboardInterrupt):
        pe.sample_evidence(model, **QUICK, **SMALL)


def test_the_next_run_is_not_interrupted(model, monkeypatch):
    """An interrupt that was answered must not be raised again at the end of this call or the next.

    Ctrl-C has its usual effect afterwards.
    """
    with monkeypatch.context() as patched:
        interrupting(patched, SMC, "run_block", 4)
        interrupted(model, **SMALL)
    assert pe.log_evidence(pe.sample_evidence(model, **QUICK, **SMALL)).status == "ok"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_search_that_is_interrupted_leaves_the_islands(model, monkeypatch):
    interrupting(monkeypatch, bridging, "survey", 1)
    dt, found = interrupted(model, **SMALL)
    assert found.status == "interrupted" and found.estimator == "smc" and islands(dt) == 8


def test_a_bridge_outweighs_islands_without_one(model, monkeypatch):
    """In the second round the islands of the first, with their bridges, are kept."""
    interrupting(monkeypatch, SMC, "run_block", 12)
    dt, found = interrupted(model, target_mcse=1e-3, **SMALL)
    assert found.estimator != "smc" and islands(dt) == 8
    assert "and not 0.001" in found.message


def test_paths_back_may_be_fewer(model, monkeypatch):
    interrupting(monkeypatch, AIS, "run_reverse", 2)
    dt, found = interrupted(model, method="ais", draws=300)
    assert found.estimator == "bar" and found.status == "interrupted"
    assert (islands(dt), islands(dt, "reverse")) == (3, 1)


def test_the_second_route_may_be_interrupted(heavy_tailed, monkeypatch):
    """Then the first one counts, unless the second has as many islands as a round."""
    monkeypatch.setattr(coarse, "is_good", lambda *_: False)
    interrupting(monkeypatch, SMC, "run_block", 16 + 5)
    dt, found = interrupted(heavy_tailed, target_mcse=0.004)
    assert dt["log_evidence"].attrs["route"] == "importance"
    assert found.status == "interrupted" and found.estimator != "smc"


def test_the_first_route_may_be_interrupted(model, monkeypatch):
    interrupting(monkeypatch, SMC, "run_block", 7)
    dt, found = interrupted(model)
    assert (found.estimator, found.status) == ("smc", "interrupted")
    assert islands(dt) == 6


def test_a_refined_fit_may_be_interrupted(heavy_tailed, monkeypatch):
    """The last estimates that were made are those of the result."""
    interrupting(monkeypatch, bridging, "fit_proposal", 3)
    dt, found = interrupted(heavy_tailed, target_mcse=0.004)
    assert dt["log_evidence"].attrs["route"] == "importance"
    assert found.status == "interrupted" and found.estimator != "smc"


def test_without_the_constant_of_a_prior_there_is_no_estimate(monkeypatch):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.Potential("p", -(mu**4))
        pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    options = {**SMALL, "potentials": "prior"}
    with monkeypatch.context() as patched:
        interrupting(patched, SMC, "run_block", 5)
        with pytest.raises(KeyboardInterrupt):
            pe.sample_evidence(model, **QUICK, **options)
    interrupting(monkeypatch, SMC, "run_block", 8 + 5)
    _, found = interrupted(model, **options)
    assert found.status == "interrupted"


def test_an_interrupted_run_can_be_resumed(model, monkeypatch, tmp_path):
    """What follows Ctrl-C is not stored: it is no part of the run."""
    whole = contents(pe.sample_evidence(model, **QUICK, **SMALL))
    with monkeypatch.context() as patched:
        interrupting(patched, SMC, "run_block", 6)
        interrupted(model, checkpoint=tmp_path / "run", **SMALL)
    count = interrupting(monkeypatch, SMC, "run_block", -1)
    again = pe.sample_evidence(model, **QUICK, checkpoint=tmp_path / "run", **SMALL)
    assert contents(again) == whole
    assert count[0] == 8 - 5, "stored islands ran again"


# --- the parts ---

NO_TRACE = StageTrace(*np.empty((4, 0)))


def record(works, bridge=None):
    blocks = [BlockRecord(i, np.array([w]), NO_TRACE, bridge=bridge) for i, w in enumerate(works)]
    return RunRecord("smc", np.array([0.0, 1.0]), {Role.FORWARD: blocks})


def test_what_stopped_returns():
    journal, error = Journal(), Interrupted()
    kept, found = stopped(journal, record([3.0, 3.1, 2.9]), None, error)
    assert found[0].status == Status.INTERRUPTED and np.isnan(kept.info["target_mcse"])
    for nothing in (record([]), record([3.0]), record([np.inf, np.inf])):
        with pytest.raises(Interrupted) as raised:
            stopped(journal, nothing, 0.1, error)
        assert raised.value is error


def test_another_status_is_kept():
    """It says more, and the message names the interruption as well."""
    _, found = stopped(Journal(), record([3.0, 30.0, 30.0, 30.0]), 0.1, Interrupted())
    assert found[0].status == "dominated" and "In addition, the run was interrupted" in (
        found[0].message
    )


def test_without_the_first_run_there_is_no_second():
    kept, _ = stopped(Journal(), record([3.0, 3.1, 2.9]), 0.1, Interrupted())
    with pytest.raises(KeyboardInterrupt):
        over_prior(None, None, None, "auto", None, kept)


def test_which_record_is_kept():
    some, more = record([3.0, 3.1]), record([3.0, 3.1, 2.9])
    assert best_of(some, more) is more
    bridged = record([3.0, 3.1], (np.ones(2), np.ones(2)))
    assert best_of(bridged, more) is bridged
