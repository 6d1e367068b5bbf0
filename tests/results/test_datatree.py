"""Stored runs: nothing is lost, padded, or attached to data that it does not belong to."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from pm_evidence.core.random import resolve_seed
from pm_evidence.core.records import BlockRecord, Facts, LogEvidence, Role, RunRecord, StageTrace
from pm_evidence.results import (
    attach_evidence,
    fingerprint,
    log_evidence,
    schema,
    to_datatree,
)
from pm_evidence.results.datatree import (
    annealing_group,
    made_attrs,
    work_group,
)

N_STAGES = 4
BAR = LogEvidence(-31.311, 0.012, "bar", "ok", -31.335, -31.287)
JARZYNSKI = LogEvidence(
    -31.9, float("nan"), "jarzynski", "dominated", message="One path dominates: use more draws."
)
OBSERVED = {"y": np.array([1.5, np.nan, 3.25]), "z": np.array([[1, 2], [3, 4]])}


def make_block(block, n_paths, *, shift=0.0, variance=float("nan")):
    stage = np.arange(N_STAGES, dtype=float)
    trace = StageTrace(stage + shift, np.ones(N_STAGES), 0.5 + 0.1 * stage, 0.25 + 0.1 * stage)
    work = block + np.arange(n_paths) / 7 + shift
    return BlockRecord(
        block,
        work,
        trace,
        relative_variance=variance,
        bridge=(work + 0.5, work[:2] - 0.5),
        n_evaluations=100 + block,
        n_nan=block,
    )


def make_record(*, forward=None, reverse=True, islands=(), facts=None, **changes):
    forward = [make_block(0, 3), make_block(4, 2, shift=2.0)] if forward is None else forward
    reverse = [make_block(1, 4, shift=0.5)] if reverse is True else reverse
    blocks = {Role.FORWARD: forward, Role.REVERSE: reverse or (), Role.ISLAND: islands}
    values = {
        "method": "ais",
        "beta": np.array([0.0, 0.01, 0.1, 0.5, 1.0]),
        "blocks": blocks,
        "settings": {"scale": np.array([1.0, 0.7, 0.5, 0.1]), "part/n_steps": np.arange(4.0)},
        "facts": facts or Facts(),
    }
    return RunRecord(**(values | changes))


def make_tree(record=None, evidence=(BAR, JARZYNSKI), **changes):
    rng = np.random.default_rng(1)
    values = {
        "recommended": "bar",
        "posterior": {"mu": rng.normal(size=(2, 5)), "theta": rng.normal(size=(2, 5, 3))},
        "sample_stats": {"log_likelihood": rng.normal(size=(2, 5))},
        "observed_data": OBSERVED,
        "constant_data": {"x": np.array([0.5, 1.0, 1.5])},
        "coords": {"school": ["Choate", "Deerfield", "Ümlaut"]},
        "dims": {"theta": ["school"], "x": ["school"]},
        "fingerprint": fingerprint(OBSERVED),
        "random_seed": 2**100 + 1,
        "versions": {"pm_evidence": "0.1.0", "pymc": "6.4.0"},
        "sample_attrs": {"sampling_time": 1.25},
    }
    return to_datatree(record or make_record(), evidence, **(values | changes))


# What is stored


def test_groups_and_their_order():
    assert list(make_tree().children) == [
        *("posterior", "sample_stats", "observed_data", "constant_data"),
        *("log_evidence", "work", "annealing", "record"),
    ]


def test_work_of_each_direction_is_kept_with_its_blocks():
    record = make_record(islands=[make_block(7, 2, variance=0.25)])
    group = work_group(record)
    for name in (Role.FORWARD, Role.REVERSE, Role.ISLAND):
        blocks = record.of(name)
        work = np.concatenate([block.work for block in blocks])
        np.testing.assert_array_equal(group[name], work)
        assert group[name].dims == (f"{name}_path",) and group[name].attrs["units"] == "nats"
        index = np.repeat([block.block for block in blocks], [len(b.work) for b in blocks])
        np.testing.assert_array_equal(group[f"{name}_path_block"], index)
        assert group[f"{name}_block"].values.tolist() == [block.block for block in blocks]
        expected = [block.n_evaluations for block in blocks]
        np.testing.assert_array_equal(group[f"{name}_n_evaluations"], expected)


def test_posterior_is_built_as_pm_sample_does():
    dt = make_tree()
    assert dt["posterior/theta"].dims == ("chain", "draw", "school")
    assert dt["posterior/school"].values.tolist() == ["Choate", "Deerfield", "Ümlaut"]
    assert dt["constant_data/x"].dims == ("school",)
    attrs = dt["posterior"].attrs
    assert attrs["inference_library"] == "pm_evidence"
    assert attrs["inference_library_version"] == "0.1.0"
    assert attrs["sampling_time"] == 1.25
    assert attrs["sample_dims"] == ["chain", "draw"]
    assert {"created_at", "creation_library"} <= set(attrs)
    assert dt["sample_stats"].attrs["sampling_time"] == 1.25


def test_attributes_say_where_the_evidence_comes_from():
    facts = Facts(potentials="likelihood", sampling_time=2.5, n_peaks=3, small_islands=True)
    attrs = make_tree(make_record(facts=facts))["log_evidence"].attrs
    assert attrs["recommended"] == "bar"
    assert attrs["method"] == "ais"
    assert attrs["random_seed"] == str(2**100 + 1)  # too large for a number in a file
    assert resolve_seed(attrs["random_seed"]) == 2**100 + 1
    assert attrs["pymc_version"] == "6.4.0"
    assert attrs["fingerprint"] == fingerprint(OBSERVED)
    assert attrs["schema_version"] == schema.SCHEMA_VERSION
    assert attrs["potentials"] == "likelihood" and "stopped_by" not in attrs
    assert (attrs["sampling_time"], attrs["n_peaks"], attrs["small_islands"]) == (2.5, 3, 1)


def test_diagnostics_are_averaged_over_blocks():
    annealing = make_tree()["annealing"]
    stage = np.arange(N_STAGES)
    assert annealing["energy_mean"].dims == ("direction", "stage")
    assert annealing["direction"].values.tolist() == ["forward", "reverse"]
    assert np.array_equal(annealing["energy_mean"], [stage + 1.0, stage + 0.5])
    # Blocks at 0 and 2 with variance 1 each: together 1 + 1 (law of total variance).
    assert np.array_equal(annealing["energy_var"], [np.full(4, 2.0), np.full(4, 1.0)])
    assert np.allclose(annealing["ess"], 0.5 + 0.1 * stage, rtol=1e-15)
    assert np.allclose(annealing["acceptance"], 0.25 + 0.1 * stage, rtol=1e-15)
    assert annealing["beta"].values.tolist() == [0.0, 0.01, 0.1, 0.5, 1.0]
    assert annealing["kernel_scale"].values.tolist() == [1.0, 0.7, 0.5, 0.1]
    assert annealing["kernel_part.n_steps"].dims == ("stage",)


def test_energies_at_the_end_and_infinite_ones():
    assert schema.ENERGY_END not in make_tree()["annealing"]
    ended = make_record(forward=[replace(make_block(0, 1), end=(5.0, 1.0))], reverse=())
    assert annealing_group(ended)[schema.ENERGY_END].values.tolist() == [5.0]
    block = make_block(0, 2)
    block.trace.energy_mean[0] = np.inf
    annealing = make_tree(make_record(forward=[block, make_block(1, 2)]))["annealing"]
    assert annealing["energy_mean"].sel(direction="forward")[0] == np.inf
    assert np.isnan(annealing["energy_var"].sel(direction="forward")[0])


def test_no_padding_without_reverse_or_data():
    dt = make_tree(
        make_record(reverse=False),
        posterior={},
        sample_stats=None,
        observed_data={},
        constant_data=None,
        fingerprint="",
    )
    assert list(dt.children) == ["log_evidence", "work", "annealing", "record"]
    names = [str(name) for name in dt["work"].variables]
    assert not [name for name in names if name.startswith("reverse")]
    assert dt["annealing"]["direction"].values.tolist() == ["forward"]


def test_no_object_dtype_anywhere():
    dt = make_tree(coords={"school": np.array(["a", "b", 3], dtype=object)})
    for node in dt.subtree:
        for name, variable in node.variables.items():
            assert variable.dtype.kind in "fiuU", (node.path, name, variable.dtype)


def test_attributes_are_what_files_can_hold():
    for value, stored in (
        *((None, ""), (True, 1), (np.float64(2.5), 2.5), (float("inf"), "inf")),
        *((2**70, str(2**70)), (-3, -3), ("text", "text")),
    ):
        found = made_attrs({"a": value})["a"]
        assert found == stored and type(found) is type(stored)
    attrs = made_attrs({"a": {"b": [1, 2]}, "c": np.arange(3)})
    assert json.loads(attrs["a"]) == {"b": [1, 2]} and json.loads(attrs["c"]) == [0, 1, 2]


@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
def test_files_give_back_exactly_what_was_written(tmp_path, kind, reverse):
    facts = Facts(potentials="", stepwise=True, tuning_time=float("inf"), n_evaluations=2**70)
    blocks = [make_block(0, 1, variance=0.5), make_block(1, 1)]
    record = make_record(reverse=reverse, facts=facts, forward=blocks)
    dt = make_tree(record, posterior={"k": np.arange(10).reshape(2, 5), "b": np.eye(2, 5) > 0})
    path = tmp_path / f"run.{kind}"
    if kind == "netcdf":
        dt.to_netcdf(path, engine="h5netcdf")
        back = xr.open_datatree(path, engine="h5netcdf")
    else:
        dt.to_zarr(path, consolidated=False)
        back = xr.open_datatree(path, engine="zarr", consolidated=False)
    with back:
        back.load()
    xr.testing.assert_identical(dt, back)
    for node in dt.subtree:
        for name, variable in node.variables.items():
            assert back[node.path][name].dtype == variable.dtype, (node.path, name)
    for estimate in (BAR, JARZYNSKI):
        assert repr(log_evidence(back, estimator=estimate.estimator)) == repr(estimate)
    assert log_evidence(back, estimator="jarzynski").message == JARZYNSKI.message


# What does not fit


def test_a_dimension_name_that_does_not_fit_is_dropped_aloud():
    """A finished run must not be lost, and not be padded, over a label."""
    with pytest.warns(UserWarning, match="'school' has 3 entries elsewhere and 2 here"):
        dt = make_tree(
            posterior={"theta": np.ones((2, 5, 3)), "tau": np.zeros((2, 5, 2))},
            dims={"theta": ["school"], "tau": ["school"]},
        )
    assert dt["posterior/tau"].dims == ("chain", "draw", "tau_dim_0")
    assert dt["posterior/tau"].shape == (2, 5, 2)
    assert not dt["posterior/theta"].isnull().any()


# Reading


def test_log_evidence_returns_the_recommended_estimate_or_the_one_asked_for():
    dt = make_tree()
    assert log_evidence(dt) == BAR
    other = log_evidence(dt, estimator="jarzynski")
    assert (other.value, other.status, other.message) == (-31.9, "dominated", JARZYNSKI.message)
    assert np.isnan(other.mcse)
    assert type(other.value) is float
    assert type(other.status) is str


def test_log_evidence_says_what_is_there():
    dt = make_tree()
    with pytest.raises(ValueError, match="must be one of 'bar', 'jarzynski', got 'mbar'; leave"):
        log_evidence(dt, estimator="mbar")
    with pytest.raises(
        ValueError, match=r"dt must have the group 'log_evidence', got the groups posterior; make"
    ):
        log_evidence(xr.DataTree.from_dict({"posterior": xr.Dataset()}))
    with pytest.raises(ValueError, match=r"got the groups \(none\)"):
        log_evidence(xr.DataTree())
    with pytest.raises(TypeError, match=r"dt must be an xarray\.DataTree, got Dataset; pass"):
        log_evidence(dt["log_evidence"].to_dataset())


# Attaching


def make_idata(observed=None):
    groups = {"posterior": xr.Dataset({"mu": (("chain", "draw"), np.arange(6.0).reshape(2, 3))})}
    if observed is not None:
        groups["observed_data"] = xr.Dataset(
            {name: ([f"{name}_{i}" for i in range(v.ndim)], v) for name, v in observed.items()}
        )
    return xr.DataTree.from_dict(groups)


def test_attach_evidence_adds_to_a_copy():
    idata = make_idata({"other_name": OBSERVED["z"].astype(float), "y": OBSERVED["y"]})
    before = idata.copy(deep=True)
    evidence = make_tree()
    out = attach_evidence(idata, evidence)
    xr.testing.assert_identical(idata, before)
    xr.testing.assert_identical(out["posterior"].to_dataset(), idata["posterior"].to_dataset())
    for name in schema.EVIDENCE_GROUPS:
        xr.testing.assert_identical(out[name].to_dataset(), evidence[name].to_dataset())
    assert log_evidence(out) == BAR
    better = attach_evidence(out, make_tree(evidence=(LogEvidence(-31.3, 0.001, "bar"),)))
    assert log_evidence(better).mcse == 0.001


def test_attach_evidence_refuses_other_data():
    changed = {**OBSERVED, "y": np.array([1.5, np.nan, 3.25 + 1e-12])}
    with pytest.raises(
        ValueError, match=r"same observed data, but idata has y \(3,\), z \(2, 2\) and evidence has"
    ):
        attach_evidence(make_idata(changed), make_tree())
    with pytest.raises(ValueError, match="idata has no group observed_data"):
        attach_evidence(make_idata(), make_tree())


def test_a_planted_fingerprint_does_not_get_other_data_past_attach_evidence():
    """The data themselves decide, not what an attribute claims of them."""
    changed = {"y": np.array([9.0])}
    with pytest.raises(ValueError, match="evidence must hold the observed data that its evidence"):
        attach_evidence(make_idata(changed), make_tree(fingerprint=fingerprint(changed)))


def test_attach_evidence_needs_evidence():
    with pytest.raises(ValueError, match="evidence must have the group 'log_evidence'"):
        attach_evidence(make_idata(), make_idata())
    with pytest.raises(TypeError, match=r"idata must be an xarray\.DataTree, got dict"):
        attach_evidence({}, make_tree())


def test_attach_evidence_without_observed_data():
    evidence = make_tree(observed_data=None, fingerprint="")
    assert log_evidence(attach_evidence(make_idata(), evidence)) == BAR
