"""What Ctrl-C leaves of a run."""

import signal
import threading
from contextlib import contextmanager

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.interrupts import Interrupted
from pm_evidence.core.records import BlockRecord, Role, RunRecord, StageTrace
from pm_evidence.runs import importance
from pm_evidence.runs.rounds import Found, Limits, Run, stopped, until_small, was_interrupted
from pm_evidence.samplers.sampler import ForwardBlock
from tests.models import shared
from tests.runs.checkpointed import Moment, interrupt, replaced, schools

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


@contextmanager
def interrupting(owner, name, call):
    """Let SIGINT come when a function is called for the given time, from 1."""
    moment = Moment(call, interrupt)
    with replaced(owner, name, moment, lambda *_: None):
        yield moment


def interrupted(model, owner, name, call, **options):
    """The result of a run that is interrupted.

    Its warning is not looked for: other threads change the filters of warnings at the same time.
    """
    with interrupting(owner, name, call):
        dt = pe.sample_evidence(model, **QUICK, **options)
    found = pe.log_evidence(dt)
    assert "the run was interrupted" in found.message
    return dt, found


def islands(dt, direction="forward"):
    return dt["work"].sizes[f"{direction}_block"]


SMALL = {"method": pe.methods.SMC(islands=8), "draws": 800}
ISLAND = (ForwardBlock, "__call__")


def test_the_first_islands_give_an_estimate(model, tmp_path):
    """They are those of the whole run, bit for bit, and can be stored and estimated again.

    An interrupt that was answered must not be raised again at the end of this call or the next,
    which here is the whole run. Ctrl-C has its usual effect afterwards.
    """
    dt, found = interrupted(model, *ISLAND, 4, **SMALL)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    whole = pe.sample_evidence(model, **QUICK, **SMALL)
    assert pe.log_evidence(whole).status == "ok"
    assert found.status == "interrupted" and found.estimator == "smc"
    assert np.isfinite([found.value, found.mcse, found.lower, found.upper]).all()
    assert islands(dt) == dt["posterior"].sizes["chain"] == 3
    assert np.array_equal(dt["work"]["forward"], whole["work"]["forward"][:3])
    # three islands, and so two degrees of freedom: one in a thousand is farther away
    assert abs(found.value - pe.log_evidence(whole).value) < 32 * found.mcse
    assert dt["log_evidence"].attrs["stopped_by"] == "interrupted"
    dt.to_netcdf(tmp_path / "a.nc")
    assert was_interrupted(pe.to_record(dt))
    assert str(pe.estimate(dt, ["smc"])["smc"]) == str(found)


def test_one_island_gives_no_estimate(model):
    """The run ends with the exception by which Python ends a program, and no thread is left."""
    with interrupting(*ISLAND, 2), pytest.raises(KeyboardInterrupt) as raised:
        pe.sample_evidence(model, **QUICK, **SMALL)
    assert type(raised.value) is KeyboardInterrupt
    assert not [t for t in threading.enumerate() if t.name.startswith("pm_evidence")]


@pytest.mark.slow
def test_a_bridge_outweighs_islands_without_one(model):
    """In the second round the islands of the first, with their bridges, are kept."""
    dt, found = interrupted(model, *ISLAND, 12, target_mcse=1e-3, **SMALL)
    assert found.estimator != "smc" and islands(dt) == 8
    assert "and not 0.001" in found.message


def test_the_first_route_may_be_interrupted(model):
    dt, found = interrupted(model, *ISLAND, 7)
    assert (found.estimator, found.status) == ("smc", "interrupted")
    assert islands(dt) == 6


def test_the_second_route_may_be_interrupted(model, monkeypatch):
    """Then the first one counts, unless the second has as many islands as a round."""
    monkeypatch.setattr(importance, "is_good", lambda *_: False)
    dt, found = interrupted(model, *ISLAND, 16 + 5, target_mcse=0.004)
    assert dt["log_evidence"].attrs["route"] == "importance"
    assert found.status == "interrupted" and found.estimator != "smc"


def test_without_the_constant_of_a_prior_there_is_no_estimate():
    model, options = shared("potential").model, {**SMALL, "potentials": "prior"}
    with interrupting(*ISLAND, 5), pytest.raises(KeyboardInterrupt):
        pe.sample_evidence(model, **QUICK, **options)
    _, found = interrupted(model, *ISLAND, 8 + 5, **options)
    assert found.status == "interrupted"


# --- the parts ---

NO_TRACE = StageTrace(*np.empty((4, 0)))


def record(works, bridge=None):
    blocks = [BlockRecord(i, np.array([w]), NO_TRACE, bridge=bridge) for i, w in enumerate(works)]
    return RunRecord("smc", np.array([0.0, 1.0]), {Role.FORWARD: blocks})


def test_another_status_is_kept():
    """It says more, and the message names the interruption as well."""
    run = Run(pe.methods.SMC(), 10, 1, None, 1, limits=Limits(target_mcse=0.1))
    found = stopped(run, Found(None, record([3.0, 30.0, 30.0, 30.0])), Interrupted()).best
    assert found.status == "dominated" and "In addition, the run was interrupted" in found.message


def test_which_record_is_kept():
    """A bridge is worth more than a few more islands without one."""
    some, more = record([3.0, 3.1]), record([3.0, 3.1, 2.9])
    bridged = record([3.0, 3.1], (np.ones(2), np.ones(2)))
    run = Run(pe.methods.SMC(), 10, 1, None, 1)

    def stops(_):
        error = Interrupted()
        error.record = more
        raise error

    for before, kept in ((some, more), (bridged, bridged)):
        found = until_small(run, Found(None, before), stops, None).record
        assert found.of(Role.FORWARD) == kept.of(Role.FORWARD) and was_interrupted(found)
