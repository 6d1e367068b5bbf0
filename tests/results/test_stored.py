"""A stored result that is not whole, or not of the data beside it, is refused by name."""

import numpy as np
import pytest
import xarray as xr

import pm_evidence as pe
from pm_evidence.results import schema
from pm_evidence.results.stored import estimate_of, evidence_of, group_of, not_a_tree
from tests.results.test_datatree import BAR, JARZYNSKI, OBSERVED, make_idata, make_tree


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


def changed(dt, group, **variables):
    """The tree with other variables in a group."""
    dt = dt.copy(deep=True)
    dt[group] = xr.DataTree(dt[group].to_dataset().assign(variables))
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


@pytest.mark.parametrize("part", EVIDENCE_PARTS)
@pytest.mark.parametrize("reader", READERS)
def test_missing_parts_of_the_evidence(reader, part):
    """A KeyError says neither which argument nor which group."""
    broken = without(make_tree(), "log_evidence", part)
    with pytest.raises(ValueError, match=rf"must have .*'{part}' in its group 'log_evidence'"):
        READERS[reader](broken)


@pytest.mark.parametrize(
    ("plot", "group", "part"),
    [
        (pe.plot_energy, "annealing", "beta"),
        (pe.plot_energy, "annealing", "energy_mean"),
        (pe.plot_energy, "annealing", "direction"),
        (pe.plot_schedule, "annealing", "ess"),
        (pe.plot_schedule, "annealing", "acceptance"),
        (pe.plot_work, "work", "forward"),
    ],
)
def test_missing_parts_of_other_groups(plot, group, part):
    with pytest.raises(ValueError, match=rf"^dt must have .*'{part}' in its group '{group}'"):
        plot(without(make_tree(), group, part), backend="none")


def test_values_of_another_kind():
    """Texts as numbers, or an array with more dimensions, come from a file that was written to."""
    texts = changed(make_tree(), "log_evidence", value=("estimator", np.array(["a", "b"])))
    with pytest.raises(ValueError, match=r"^dt must hold numbers with the dimensions .*'value'"):
        pe.log_evidence(texts)
    short = make_tree()
    short["annealing"] = xr.DataTree(
        short["annealing"].to_dataset().isel(beta_point=slice(1, None))
    )
    with pytest.raises(ValueError, match="one inverse temperature more than stages"):
        pe.plot_energy(short, backend="none")


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("6", r"schema_version 5 or an earlier one, got 6: a later version .* Update pm_evidence"),
        (7, r"schema_version 5 or an earlier one, got 7"),
        ("new", r"a whole number as 'schema_version', got 'new'"),
    ],
)
def test_versions_of_the_schema(version, message):
    """What a later version means by a name is not known to this one."""
    dt = make_tree()
    dt["log_evidence"].attrs["schema_version"] = version
    with pytest.raises(ValueError, match=message):
        pe.log_evidence(dt)


@pytest.mark.parametrize("reader", READERS)
def test_data_that_changed_after_the_run(reader):
    """The evidence of the old data would pass for that of the new."""
    dt = make_tree()
    other = dt["observed_data"].to_dataset().copy(deep=True)
    other["y"] = other["y"] + 1.0
    dt["observed_data"] = xr.DataTree(other)
    with pytest.raises(ValueError, match="must hold the observed data that its evidence was comp"):
        READERS[reader](dt)


def test_attached_evidence_needs_no_data_of_its_own():
    """The fingerprint says what the data were, where they were left out."""
    evidence = make_tree().drop_nodes("observed_data")
    found = pe.attach_evidence(make_idata(OBSERVED), evidence)
    assert pe.log_evidence(found) == pe.log_evidence(make_tree())


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ("x", r"^models must be a mapping of names to results, got 'x'"),
        (
            [pe.LogEvidence(-1.0, 0.1, "bar")],
            r"^models must be a mapping of names to results, got \[",
        ),
        (
            make_tree(),
            r"^models must be a mapping of names to results, got an object of type DataTr",
        ),
        (None, r"^models must be a mapping"),
        ({"a": "x"}, r"^models\['a'\] must be an xarray\.DataTree, got str"),
    ],
)
def test_what_is_no_mapping_of_models(models, message):
    with pytest.raises(TypeError, match=message):
        pe.compare(models)
    with pytest.raises(TypeError, match=message):
        pe.plot_compare(models, backend="none")


@pytest.mark.parametrize("prior", ["ab", [None, 1.0], [[1.0], [1.0, 2.0]], np.array([1j, 1.0]), 5])
def test_prior_probabilities_that_are_none(prior):
    models = {"a": make_tree(), "b": make_tree()}
    with pytest.raises(ValueError, match=r"^prior_probs must"):
        pe.compare(models, prior_probs=prior)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "gnuplot"}, r"^backend must be one of 'matplotlib', .*got 'gnuplot'"),
        ({"backend": 5}, r"^backend must be one of"),
        ({"visuals": 5}, r"^visuals must be a mapping, got 5"),
        (
            {"visuals": {"xlabel": 5}},
            r"^visuals\['xlabel'\] must be a mapping of arguments or False",
        ),
        ({"figure_kwargs": "wide"}, r"^figure_kwargs must be a mapping, got 'wide'"),
    ],
)
@pytest.mark.parametrize(
    "plot", [pe.plot_energy, pe.plot_schedule, pe.plot_estimates, pe.plot_work, pe.plot_compare]
)
def test_options_of_plots(plot, options, message):
    """The same options, and the same words, in all plots."""
    dt = {"a": make_tree()} if plot is pe.plot_compare else make_tree()
    with pytest.raises((ValueError, TypeError), match=message):
        plot(dt, **{"backend": "none", **options})


@pytest.mark.parametrize("reference", ["x", np.nan, [1.0], True])
def test_references_that_are_none(reference):
    with pytest.raises(ValueError, match=r"^reference must be a finite log evidence"):
        pe.plot_estimates(make_tree(), reference=reference, backend="none")


# --- readers of groups ---


def test_a_group_is_read_with_all_that_is_in_it():
    dt = make_tree()
    for name in schema.EVIDENCE_GROUPS:
        xr.testing.assert_identical(group_of(dt, name), dt[name].to_dataset())


def test_estimates_come_back_as_they_were():
    """To the last bit, the recommended one first asked for; NaN is not equal to itself."""
    dt = make_tree()
    assert estimate_of(dt, "dt") == estimate_of(dt, "dt", "bar") == BAR
    for name in ("value", "status", "message", "estimator"):
        assert getattr(estimate_of(dt, "dt", "jarzynski"), name) == getattr(JARZYNSKI, name)
    assert np.isnan(estimate_of(dt, "dt", "jarzynski").mcse)
    older = dt.copy(deep=True)
    older["log_evidence"] = xr.DataTree(older["log_evidence"].to_dataset().drop_vars("dof"))
    assert estimate_of(older, "dt").dof == np.inf
    with pytest.raises(ValueError, match=r"estimator must be one of 'bar', 'jarzynski', got 'smc'"):
        estimate_of(dt, "dt", "smc")


def test_errors_name_the_argument():
    with pytest.raises(TypeError, match=r"dt\['a'\] must be an xarray.DataTree, got int"):
        evidence_of(3, "dt['a']")
    assert not_a_tree("idata", 3).startswith("idata must be an xarray.DataTree, got int;")
