"""A stored run reads back as the record that it was, and gives the same estimates again."""

import json
import warnings
from dataclasses import asdict, replace
from functools import cache, partial

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pm_evidence as pe
from pm_evidence.core.records import Role
from pm_evidence.estimators.of_run import applicable
from pm_evidence.results.datatree import record_group
from tests.api.refusals import check_refusals
from tests.models import LEVELS, shared
from tests.results.test_datatree import make_tree
from tests.results.test_stored import without


def normal():
    return shared("normal").model


def few_particles():
    """The shared model of states, with a filter that loses them."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pe.StateSpace(
            "y",
            init=lambda: pm.Normal.dist(mu, 1),
            transition=lambda h, t: pm.Normal.dist(h, 1),
            emission=lambda h, t: pm.Normal.dist(h, 1),
            observed=LEVELS,
            n_particles=2,
        )
    return model


def run(target, **kwargs):
    kwargs = {"draws": 320, "target_mcse": None} | kwargs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pe.EvidenceWarning)
        return pe.sample_evidence(target, random_seed=3, progressbar=False, **kwargs)


RUNS = {
    "smc": lambda: run(normal()),
    "smc in rounds": lambda: run(normal(), target_mcse=0.001),
    "smc until max_draws": lambda: run(normal(), target_mcse=1e-4, max_draws=700),
    "smc discrete": lambda: run(shared("discrete").model),
    "ais forward": lambda: run(normal(), method=pe.methods.AIS(direction="forward"), draws=100),
    "ais both ways": lambda: run(normal(), method="ais", draws=100),
    "ais until max_draws": lambda: run(
        normal(), method="ais", draws=100, target_mcse=1e-4, max_draws=200
    ),
    "certify": lambda: pe.simulate_and_certify(
        normal(), draws=100, random_seed=5, progressbar=False
    ),
    "aisel islands": lambda: run(shared("groups").model),
    "aisel paths": lambda: run(
        shared("groups").model, method=pe.methods.AISEL(resampling=None, n_stages=10), draws=100
    ),
    "aisel with noise": lambda: run(few_particles()),
    "gaussian": lambda: run(pe.mixtures.Gaussian(), draws=100),
    "ising": lambda: run(pe.lattices.Ising((4, 4), 0.4), draws=100),
    "no free variable": lambda: run(shared("no variable").model),
    "parallel tempering": lambda: run(
        pe.mixtures.Gaussian(), method=pe.methods.ParallelTempering(ladders=8)
    ),
    "simulated tempering": lambda: run(
        pe.mixtures.Gaussian(),
        method=pe.methods.SimulatedTempering(chains=10, n_temperatures=6, prior="exponential"),
    ),
    "tempering in rounds": lambda: run(
        pe.mixtures.Gaussian(),
        method=pe.methods.ParallelTempering(ladders=4),
        draws=80,
        target_mcse=0.01,
        max_draws=800,
    ),
    "potentials in the prior": lambda: run(shared("potential").model, potentials="prior"),
}
STOPPED = {"smc until max_draws", "ais until max_draws", "tempering in rounds"}
IN_FILES = {"ais both ways", "smc in rounds", "aisel with noise", "tempering in rounds"}


@cache
def result(name):
    return RUNS[name]()


def same(one, other):
    """Whether two estimates are equal to the last bit, NaN included."""
    pairs = zip(asdict(one).values(), asdict(other).values(), strict=True)
    return all(a == b or (a != a and b != b) for a, b in pairs)


def stored_as(kind, dt, folder):
    """The result in memory, or from a file."""
    folder.mkdir(exist_ok=True)
    if kind == "netcdf":
        dt.to_netcdf(folder / "run.nc", engine="h5netcdf")
        return xr.open_datatree(folder / "run.nc", engine="h5netcdf")
    if kind == "zarr":
        dt.to_zarr(folder / "run.zarr", consolidated=False)
        return xr.open_datatree(folder / "run.zarr", engine="zarr", consolidated=False)
    return dt


# --- the same numbers ---


@pytest.mark.parametrize("name", RUNS)
def test_a_stored_run_gives_its_estimates_again(name, tmp_path):
    """Every estimate of every kind of run: value, error, interval, status and message."""
    dt = result(name)
    names = [str(each) for each in dt["log_evidence"]["estimator"].values]
    there = applicable(pe.to_record(dt))
    for kind in ("memory", "netcdf", "zarr") if name in IN_FILES else ("memory",):
        back = stored_as(kind, dt, tmp_path)
        found = pe.estimate(back)
        assert list(found) == names
        for each in names:
            assert same(found[each], pe.log_evidence(dt, estimator=each)), (kind, each)
        others = pe.estimate(back, list(there))
        assert all(same(others[each], there[each]()) for each in there)
        back.close()
    if name in STOPPED:  # what the run decided after its work had been done
        assert pe.log_evidence(dt).status == "max_draws"


def test_what_these_runs_cover():
    """Without these the test above would not repeat what is decided after the work is done."""
    noisy = pe.log_evidence(result("aisel with noise"))
    assert noisy.status != "ok" and "has a variance of" in noisy.message
    assert "prior_constant" in result("potentials in the prior")["log_evidence"].attrs
    assert len(result("smc in rounds")["work"]["forward"]) > 16
    upper = pe.log_evidence(result("certify"), estimator="upper_bound")
    assert "a strict bound" in upper.message


def test_a_stored_run_says_how_its_schedule_was_found(tmp_path):
    """Name, options (also None) and predicted variance (also NaN), besides inverse temperatures."""
    options = {"largest_step": None, "pilot_stages": 40, "pilot_paths": 256, "smoothing": 0.025}
    facts = {
        "gaussian": ("adaptive", {"ess": 0.5}),
        "learnt": ("varopt", options),
        "linear": ("linear", {}),
    }
    kinds = {"gaussian": "memory", "learnt": "zarr", "linear": "netcdf"}
    method = pe.methods.AIS(n_stages=20, direction="forward")
    made = {
        "gaussian": result("gaussian"),
        "learnt": run(
            pe.mixtures.Gaussian(), method=method, schedule=pe.schedules.VarOpt(pilot_stages=40)
        ),
        "linear": run(pe.mixtures.Gaussian(), method=method, schedule="linear"),
    }
    for each, (name, wanted) in facts.items():
        back = stored_as(kinds[each], made[each], tmp_path / each)
        found = pe.to_record(back).schedule
        assert (found.name, found.options) == (name, wanted)
        np.testing.assert_array_equal(found.beta, made[each]["annealing"]["beta"])
        assert back["log_evidence"].attrs["schedule"] == name
        assert (found.predicted_variance > 0.0) == (name != "linear")
        assert np.isnan(found.predicted_variance) == (name == "linear")
        back.close()


# --- what else can be estimated ---


def test_estimates_that_the_run_did_not_report():
    dt = result("smc")
    exact = shared("normal").log_evidence
    found = pe.estimate(dt, ["power_posterior", "lower_bound", "smc"])
    assert list(found) == ["power_posterior", "lower_bound", "smc"]
    assert found["lower_bound"].value < found["smc"].value
    assert found["power_posterior"].status == "coarse_schedule"
    dt = run(normal(), schedule=np.linspace(0.0, 1.0, 51) ** 4)
    fine = pe.estimate(dt, "power_posterior")["power_posterior"]
    assert fine.value == pytest.approx(exact, abs=5 * fine.mcse)
    assert fine.status == "ok"
    both = pe.estimate(result("ais both ways"), "histogram_posterior")["histogram_posterior"]
    assert both.value == pytest.approx(exact, abs=5 * both.mcse)


def test_every_estimate_takes_off_the_constant_of_the_prior():
    """The run reports one estimate; the others are relative to the same prior."""
    dt = result("potentials in the prior")
    assert list(pe.estimate(dt)) == [pe.log_evidence(dt).estimator]
    found = pe.estimate(dt, ["smc", "importance"])
    error = 5 * np.hypot(found["smc"].mcse, found["importance"].mcse)
    assert found["smc"].value == pytest.approx(found["importance"].value, abs=error)


def test_the_record_of_the_file_is_what_is_read():
    """A planted change of the work changes the estimate by as much."""
    dt = result("smc").copy(deep=True)
    before = pe.to_record(dt)
    moved = before.updated(
        Role.FORWARD, [replace(b, work=b.work + 1.0, bridge=None) for b in before.of(Role.FORWARD)]
    )
    dt["record"] = xr.DataTree(record_group(moved))
    value = pe.log_evidence(dt, estimator="smc").value
    assert pe.estimate(dt, "smc")["smc"].value == pytest.approx(value - 1.0, abs=1e-12)


# --- what is refused ---


def test_estimators_that_do_not_apply():
    message = r"^estimators must be among .*'jarzynski'.*, got 'bar'; choose"
    cases = [
        ({"estimators": "bar"}, ValueError, message),
        ({"estimators": ["smc", "mbar"]}, ValueError, r"got 'mbar'"),
        ({"estimators": [3]}, ValueError, r"got 3"),
        ({"estimators": 3}, TypeError, r"^estimators must be a name or a sequence of names, got 3"),
    ]
    check_refusals(partial(pe.estimate, result("smc")), cases)


def test_records_that_are_not_whole():
    """A file that another program cut or wrote to says so, and makes no object of its own."""
    whole = make_tree()
    missing = whole.drop_nodes("record")
    cut = whole.copy(deep=True)
    cut["record"] = xr.DataTree(cut["record"].to_dataset().isel(float64_number=slice(-1)))
    foreign = whole.copy(deep=True)
    text = json.dumps({"class": "os.system", "fields": {}}).encode()
    tree = xr.Dataset({"tree": ("tree_byte", np.frombuffer(text, np.uint8))})
    foreign["record"] = xr.DataTree(tree)
    cases = [
        (missing, r"^dt must have the record of the run in its group 'record', got none"),
        (without(whole, "record", "tree"), r"^dt must have the record of a run .* 'tree'; read"),
        (cut, r"^dt must have the record of a run in its group 'record', but cannot reshape"),
        (foreign, r"os\.system is no class that is stored"),
    ]
    check_refusals(pe.to_record, [({"dt": dt}, ValueError, said) for dt, said in cases])
    with pytest.raises(TypeError, match=r"dt must be an xarray\.DataTree, got int"):
        pe.estimate(3)
