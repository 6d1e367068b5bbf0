"""A stored result that is not whole, or not of the data beside it, is refused by name."""

from functools import partial

import xarray as xr

import pm_evidence as pe
from tests.api.refusals import check_refusals
from tests.results.test_datatree import OBSERVED, make_idata, make_tree


def without(dt, group, name):
    """The tree without a variable, a coordinate or an attribute of a group."""
    dt = dt.copy(deep=True)
    data = dt[group].to_dataset()
    if name in data.attrs:
        del data.attrs[name]
    else:
        data = data.drop_vars(name)
    dt[group] = xr.DataTree(data)
    return dt


READERS = {
    "log_evidence": lambda dt: pe.log_evidence(dt),
    "compare": lambda dt: pe.compare({"a": dt}),
    "bayes_factor": lambda dt: pe.bayes_factor(dt, dt),
    "attach_evidence": lambda dt: pe.attach_evidence(make_idata(OBSERVED), dt),
    "plot_estimates": lambda dt: pe.plot_estimates(dt, backend="none"),
    "plot_compare": lambda dt: pe.plot_compare({"a": dt}, backend="none"),
}
EVIDENCE_PARTS = [
    *("value", "mcse", "lower", "upper", "status", "message", "estimator"),
    *("recommended", "fingerprint", "schema_version"),
]


def test_missing_parts_of_the_evidence():
    """A KeyError says neither which argument nor which group."""
    for part in EVIDENCE_PARTS:
        broken = without(make_tree(), "log_evidence", part)
        message = rf"must have .*'{part}' in its group 'log_evidence'"
        for read in READERS.values():
            check_refusals(read, [({"dt": broken}, ValueError, message)])


def test_missing_parts_of_other_groups():
    for plot, group, part in (
        (pe.plot_energy, "annealing", "beta"),
        (pe.plot_energy, "annealing", "energy_mean"),
        (pe.plot_energy, "annealing", "direction"),
        (pe.plot_schedule, "annealing", "ess"),
        (pe.plot_schedule, "annealing", "acceptance"),
        (pe.plot_work, "work", "forward"),
    ):
        given = {"dt": without(make_tree(), group, part), "backend": "none"}
        message = rf"^dt must have .*'{part}' in its group '{group}'"
        check_refusals(plot, [(given, ValueError, message)])


def test_versions_of_the_schema():
    """What a later version means by a name is not known to this one."""
    cases = []
    for version, message in (
        ("7", r"schema_version 6 or an earlier one, got 7: a later version .* Update pm_evidence"),
        (8, r"schema_version 6 or an earlier one, got 8"),
        ("new", r"a whole number as 'schema_version', got 'new'"),
    ):
        dt = make_tree()
        dt["log_evidence"].attrs["schema_version"] = version
        cases += [({"dt": dt}, ValueError, message)]
    check_refusals(pe.log_evidence, cases)


def test_data_that_changed_after_the_run():
    """The evidence of the old data would pass for that of the new."""
    dt = make_tree()
    other = dt["observed_data"].to_dataset().copy(deep=True)
    other["y"] = other["y"] + 1.0
    dt["observed_data"] = xr.DataTree(other)
    message = "must hold the observed data that its evidence was comp"
    for read in READERS.values():
        check_refusals(read, [({"dt": dt}, ValueError, message)])


def test_attached_evidence_needs_no_data_of_its_own():
    """The fingerprint says what the data were, where they were left out."""
    evidence = make_tree().drop_nodes("observed_data")
    found = pe.attach_evidence(make_idata(OBSERVED), evidence)
    assert pe.log_evidence(found) == pe.log_evidence(make_tree())


def test_what_is_no_mapping_of_models():
    evidence = [pe.LogEvidence(-1.0, 0.1, "bar")]
    rule = r"^models must be a mapping of names to results"
    cases = [
        ("x", rf"{rule}, got 'x'"),
        (evidence, rf"{rule}, got \["),
        (make_tree(), rf"{rule}, got an object of type DataTr"),
        (None, r"^models must be a mapping"),
        ({"a": "x"}, r"^models\['a'\] must be an xarray\.DataTree, got str"),
    ]
    for function in (pe.compare, partial(pe.plot_compare, backend="none")):
        check_refusals(function, [({"models": each}, TypeError, said) for each, said in cases])
