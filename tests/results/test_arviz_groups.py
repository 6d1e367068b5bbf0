"""Groups in ArviZ's schema: names that fit, plain types, and nothing padded with NaN."""

import json

import numpy as np
import pandas as pd
import pytest

from pm_evidence.results.arviz_groups import (
    Named,
    data_groups,
    library_attrs,
    made_attrs,
    sample_groups,
)

NAMED = Named({"school": ["a", "b", "c"]}, {"theta": ["school"], "x": ["school"]})
RNG = np.random.default_rng(1)


def test_samples_get_chains_draws_and_the_names_of_the_model():
    theta = RNG.normal(size=(2, 5, 3))
    groups = sample_groups({"posterior": {"theta": theta}, "sample_stats": {}}, NAMED, {"a": 1})
    assert list(groups) == ["posterior"]  # a group without content is none
    found = groups["posterior"]["theta"]
    assert found.dims == ("chain", "draw", "school")
    np.testing.assert_array_equal(found, theta)
    assert found["school"].values.tolist() == ["a", "b", "c"]
    assert groups["posterior"].attrs["a"] == 1


def test_there_may_be_more_chains_than_draws():
    """ArviZ takes these for draws with the wrong names, and would warn."""
    groups = sample_groups({"posterior": {"mu": np.zeros((32, 5))}}, NAMED, {})
    assert dict(groups["posterior"].sizes) == {"chain": 32, "draw": 5}


def test_data_have_no_chains():
    groups = data_groups({"constant_data": {"x": np.arange(3.0)}}, NAMED, {})
    assert groups["constant_data"]["x"].dims == ("school",)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"posterior": {"a": np.zeros(5)}}, r"must have shape \(n_chains, n_draws, ...\), got \(5"),
        (
            {"posterior": {"a": np.zeros((2, 5))}, "sample_stats": {"b": np.zeros((2, 4))}},
            r"sample_stats\['b'\] must have as many chains and draws as posterior\['a'\], \(2, 5\)",
        ),
        (
            {"posterior": {"a": np.full((2, 5), None)}},
            r"posterior\['a'\] must have a plain dtype, got object",
        ),
    ],
)
def test_what_would_be_padded_or_cannot_be_saved(groups, message):
    with pytest.raises(ValueError, match=message):
        sample_groups(groups, NAMED, {})


def test_names_that_do_not_fit_are_dropped_with_a_warning():
    """Labels of three schools on four values would be filled up with NaN."""
    with pytest.warns(UserWarning, match="'school' has 3 entries elsewhere and 4 here"):
        groups = data_groups({"constant_data": {"x": np.arange(4.0)}}, NAMED, {})
    found = groups["constant_data"]["x"]
    assert found.dims != ("school",) and found.values.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_labels_are_plain_or_text():
    dates = pd.date_range("2020-01-01", periods=3)
    for labels, kind in ((list(dates), "M"), ([1, "b", None], "U"), (range(3), "i")):
        named = Named({"when": labels}, {"x": ["when"]})
        group = data_groups({"constant_data": {"x": np.arange(3.0)}}, named, {})["constant_data"]
        assert group["when"].dtype.kind == kind


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, ""),
        (True, 1),
        (np.float64(2.5), 2.5),
        (float("inf"), "inf"),
        (2**70, str(2**70)),
        (-3, -3),
        ("text", "text"),
    ],
)
def test_attributes_are_what_files_can_hold(value, stored):
    found = made_attrs({"a": value})["a"]
    assert found == stored and type(found) is type(stored)


def test_attributes_of_other_kinds_are_json():
    attrs = made_attrs({"a": {"b": [1, 2]}, "c": np.arange(3)})
    assert json.loads(attrs["a"]) == {"b": [1, 2]} and json.loads(attrs["c"]) == [0, 1, 2]


def test_the_library_that_wrote_a_group():
    assert library_attrs({}) == {"inference_library": "pm_evidence"}
    assert library_attrs({"pm_evidence": "0.1", "pymc": "6"}) == {
        "inference_library": "pm_evidence",
        "inference_library_version": "0.1",
    }
