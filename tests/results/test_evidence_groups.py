"""The groups of this package: every number of a record, under the names that readers know."""

from dataclasses import replace

import numpy as np
import pytest

from pm_evidence.core.records import LogEvidence, Role
from pm_evidence.results import schema
from pm_evidence.results.evidence_groups import annealing_group, evidence_group, work_group
from tests.results.test_datatree import BAR, JARZYNSKI, N_STAGES, make_block, make_record


def test_estimates_are_stored_field_by_field():
    group = evidence_group([BAR, JARZYNSKI], "bar")
    assert group[schema.ESTIMATOR].values.tolist() == ["bar", "jarzynski"]
    for field in ("value", "mcse", "lower", "upper", "dof", "status", "message"):
        expected = [getattr(estimate, field) for estimate in (BAR, JARZYNSKI)]
        np.testing.assert_array_equal(group[field].values, expected)
        assert group[field].dims == (schema.ESTIMATOR,)
    units = {field for field in group if group[field].attrs.get("units") == "nats"}
    assert units == {"value", "mcse", "lower", "upper"}


@pytest.mark.parametrize(
    ("evidence", "recommended", "message"),
    [
        ([], "bar", "evidence must hold estimates with different names, got \\[\\]"),
        ([BAR, BAR], "bar", "different names, got \\['bar', 'bar'\\]; rename or drop some"),
        ([BAR], "smc", "recommended must be one of \\['bar'\\], got 'smc'"),
    ],
)
def test_names_that_do_not_fit(evidence, recommended, message):
    with pytest.raises(ValueError, match=message):
        evidence_group(evidence, recommended)


def test_work_of_each_direction_is_kept_with_its_blocks():
    record = make_record(islands=[make_block(7, 2, variance=0.25)])
    group = work_group(record)
    for name, blocks in (
        (Role.FORWARD, record.of(Role.FORWARD)),
        (Role.REVERSE, record.of(Role.REVERSE)),
        (Role.ISLAND, record.of(Role.ISLAND)),
    ):
        work = np.concatenate([block.work for block in blocks])
        np.testing.assert_array_equal(group[name], work)
        assert group[name].attrs["units"] == "nats"
        index = np.repeat([block.block for block in blocks], [len(b.work) for b in blocks])
        np.testing.assert_array_equal(group[f"{name}_path_block"], index)
        for fact in ("n_evaluations", "n_nan"):
            expected = [getattr(block, fact) for block in blocks]
            np.testing.assert_array_equal(group[f"{name}_{fact}"], expected)
    # blocks of many paths state no variance of their own
    assert group["island_relative_variance"].values.tolist() == [0.25]
    assert "forward_relative_variance" not in group
    # where there are islands, the bridges are theirs
    np.testing.assert_array_equal(group["bridge_forward"], record.of(Role.ISLAND)[0].work + 0.5)


def test_a_run_without_forward_blocks_is_none():
    with pytest.raises(ValueError, match="record must have at least one forward block, got none"):
        work_group(make_record(forward=[]))


def test_stages_carry_the_mean_over_blocks_and_all_of_their_variance():
    """Blocks at 0 and 2 with a variance of 1 each have one of 2 together."""
    group = annealing_group(make_record())
    np.testing.assert_array_equal(group["beta"], [0.0, 0.01, 0.1, 0.5, 1.0])
    np.testing.assert_array_equal(group["energy_var"], [np.full(N_STAGES, 2.0), np.ones(N_STAGES)])
    np.testing.assert_array_equal(group["ess"][0], 0.5 + 0.1 * np.arange(N_STAGES))
    assert group["energy_var"].attrs["units"] == "nats^2"
    assert group["kernel_scale"].values.tolist() == [1.0, 0.7, 0.5, 0.1]
    assert "kernel_part.n_steps" in group and "kernel_part/n_steps" not in group
    assert schema.ENERGY_END not in group
    ended = make_record(forward=[replace(make_block(0, 1), end=(5.0, 1.0))], reverse=())
    assert annealing_group(ended)[schema.ENERGY_END].values.tolist() == [5.0]


def test_an_infinite_energy_has_no_variance():
    block = make_block(0, 1)
    energy = np.array([np.inf, 1.0, 2.0, 3.0])
    infinite = replace(block, trace=replace(block.trace, energy_mean=energy))
    group = annealing_group(make_record(forward=[infinite], reverse=()))
    assert np.isnan(group["energy_var"].values[0, 0])
    assert group["energy_mean"].values[0].tolist() == energy.tolist()


def test_another_number_of_stages_is_refused():
    with pytest.raises(ValueError, match=r"settings\['scale'\] must have one entry per stage"):
        annealing_group(make_record(settings={"scale": np.ones(3)}))
    with pytest.raises(ValueError, match=r"energy_mean of forward block 0 must have one entry"):
        annealing_group(make_record(beta=np.linspace(0, 1, 8), settings={}))


def test_an_estimate_with_few_degrees_of_freedom_keeps_them():
    group = evidence_group([LogEvidence(-1.0, 0.1, "smc", dof=3.0)], "smc")
    assert group["dof"].values.tolist() == [3.0]
