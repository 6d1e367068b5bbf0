"""Tempered chains are stored and read back as they were, and damaged ones are refused by name."""

from dataclasses import fields, replace
from functools import cache

import numpy as np
import xarray as xr

import pm_evidence as pe
from pm_evidence.core.records import Role, TemperedChains
from pm_evidence.results.datatree import tempered_variables
from tests.api.refusals import check_refusals
from tests.results.test_datatree import make_block, make_record, make_tree
from tests.results.test_stored import changed, without

CHAIN_VARIABLES = [
    *("tempered_energy", "tempered_rung", "tempered_block", "tempered_chain_block"),
    *("tempered_iterations", "tempered_every", "tempered_ladder", "tempered_restarts"),
    "tempered_round_trips",
]


def chains(n_iterations, n_chains, seed, every=1):
    rng = np.random.default_rng(seed)
    return TemperedChains(
        np.where(rng.random((n_iterations, n_chains)) < 0.1, np.inf, rng.normal(size=1)),
        rng.integers(5, size=(n_iterations, n_chains)).astype(np.int16),
        np.arange(n_chains) // 2,
        rng.integers(9, size=n_chains),
        rng.integers(9, size=n_chains),
        every,
    )


def record(info=None):
    """Blocks of unequal size, whose numbers have gaps."""
    kept = [
        replace(make_block(0, 3), bridge=None, tempered=chains(7, 4, 1)),
        replace(make_block(2, 2), bridge=None, tempered=chains(3, 6, 2, every=4)),
        replace(make_block(5, 2), bridge=None, tempered=chains(1, 1, 3)),
    ]
    info = {"ladders": 9} if info is None else info
    return make_record(forward=kept, reverse=(), info=info)


@cache
def tree():
    return make_tree(record())


def test_chains_come_back_as_they_were():
    """Types as well: indices of temperatures have 16 bits."""
    for one, other in zip(record().tempered, pe.to_record(tree()).tempered, strict=True):
        for field in fields(one):
            old, new = getattr(one, field.name), getattr(other, field.name)
            np.testing.assert_array_equal(new, old)
            assert np.asarray(new).dtype == np.asarray(old).dtype


def test_runs_without_chains_store_none():
    assert tempered_variables(make_record().of(Role.FORWARD)) == {}
    dt = make_tree()
    assert not [name for name in dt["work"].variables if "tempered" in str(name)]
    assert pe.to_record(dt).tempered == ()


def test_energies_have_a_unit():
    assert tree()["work"]["tempered_energy"].attrs["units"] == "nats"


def test_missing_parts():
    """A file that another program cut would give the estimate of another run, or method."""
    none = tree().copy(deep=True)
    none["work"] = xr.DataTree(tree()["work"].to_dataset().drop_vars(CHAIN_VARIABLES))
    unnamed = make_tree(record({"other": 1}))
    cases = [
        (none, r"^dt must have 'tempered_energy' in its group 'work'"),
        (unnamed, r"^dt must have 'ladders' in its group 'log_evidence'"),
    ]
    for part in CHAIN_VARIABLES:
        message = rf"^dt must have .*'{part}' in its group 'work'"
        cases += [(without(tree(), "work", part), message)]
    for dim in ("tempered_state", "tempered_chain", "tempered_block"):
        dt = tree().copy(deep=True)
        dt["work"] = xr.DataTree(dt["work"].to_dataset().isel({dim: slice(-1)}))
        cases += [(dt, "energies of every iteration of every chain in its group")]
    check_refusals(pe.to_record, [({"dt": dt}, ValueError, message) for dt, message in cases])


def test_values_that_no_run_stores():
    """They would lead to an error far away, or to a wrong number."""
    for name, dim, value, message in (
        ("rung", "state", 5, r"numbers from 0 to 4 as 'tempered_rung' .*, got 5; read the orig"),
        ("rung", "state", -1, r"numbers from 0 to 4 as 'tempered_rung' .*, got -1"),
        ("rung", "state", 0.5, r"whole numbers as 'tempered_rung' in its group 'work', got dtype"),
        ("energy", "state", np.nan, r"no NaN as 'tempered_energy' in its group 'work', got 1 of"),
        ("ladder", "chain", -2, r"numbers of at least 0 as 'tempered_ladder' .*, got -2"),
        ("restarts", "chain", -2, r"numbers of at least 0 as 'tempered_restarts'"),
        ("every", "block", 0, r"numbers of at least 1 as 'tempered_every' .*, got 0"),
        ("iterations", "block", -3, r"numbers of at least 1 as 'tempered_iterations'"),
        ("iterations", "block", 700, r"energies of every iteration of every chain"),
        ("chain_block", "chain", 77, r"energies of every iteration of every chain"),
    ):
        key = f"tempered_{name}"
        values = tree()["work"][key].values
        values = values.astype(np.result_type(values, type(value)))
        values[0] = value
        dt = changed(tree(), "work", **{key: (f"tempered_{dim}", values)})
        check_refusals(pe.to_record, [({"dt": dt}, ValueError, rf"^dt must (hold|have) {message}")])


WEIGHTS = {"tempering_log_z": [0.0, 1.0, 2.0, 3.0, 4.0], "tempering_prior": [0.2] * 5}


def test_facts_that_no_run_stores():
    def read(facts):
        info = {"ladders": 9, **WEIGHTS, **facts}
        pe.to_record(make_tree(record({k: v for k, v in info.items() if v is not None})))

    cases = [
        ({"ladders": 0}, r"a whole number of at least 1 as the attribute 'ladders' .*, got 0"),
        ({"ladders": "many"}, r"a whole number of at least 1 as the attribute 'ladders'"),
        ({"tempering_prior": None}, r"all of the attributes 'tempering_log_z', 'tempering_prior'"),
        ({"tempering_prior": [0.2] * 4 + [0.0]}, r"a list of numbers above 0 as the attribute 'te"),
        ({"tempering_log_z": "x"}, r"a list of numbers as the attribute 'tempering_log_z' .*'x'"),
        ({"tempering_log_z": [0.0, None]}, r"a list of numbers as the attribute 'tempering_log_z'"),
        ({"tempering_log_z": [0.0] * 4}, r"a number for each of 5 inverse temperatures as the att"),
    ]
    check_refusals(
        read, [({"facts": facts}, ValueError, rf"^dt must have {said}") for facts, said in cases]
    )


def test_weights_of_simulated_tempering():
    info = {"ladders": 9, **WEIGHTS}
    assert pe.to_record(make_tree(record(info))).info == info
