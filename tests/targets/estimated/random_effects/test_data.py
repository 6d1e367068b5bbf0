"""Which observation belongs to which group."""

import numpy as np
import pytest

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.estimated.random_effects.data import GroupedData


def test_labels_are_sorted_and_missing_rows_left_out():
    data = GroupedData.from_user("y", [1.0, np.nan, 3.0, 4.0], ["b", "a", "a", "b"])
    assert data.labels.tolist() == ["a", "b"] and data.n_groups == 2
    assert data.index.tolist() == [1, 0, 0, 1] and data.kept.tolist() == [0, 2, 3]
    masked = np.ma.masked_array([1, 2, 3, 4], [0, 1, 0, 0])
    again = GroupedData.from_user("y", masked, ["b", "a", "a", "b"])
    assert again.kept.tolist() == [0, 2, 3]


def test_new_data_may_differ_in_values_only():
    """Another row that is missing would need another graph."""
    data = GroupedData.from_user("y", [1.0, np.nan, 3.0], [0, 0, 1])
    np.testing.assert_array_equal(data.without_missing("y", np.array([5.0, np.nan, 6.0])), [5, 6])
    for other in ([5.0, 1.0, 6.0], [5.0, np.nan, 6.0, 7.0]):
        with pytest.raises(ModelError, match="may change in their values only"):
            data.without_missing("y", np.array(other))


@pytest.mark.parametrize(
    ("observed", "groups", "message"),
    [
        ([1.0, np.nan], [0, 1], "every group must have an observation"),
        ([1.0, np.inf], [0, 1], "must be finite"),
        ([[1.0, np.nan], [1.0, 2.0]], [0, 1], "missing as a whole"),
        ([1.0, 2.0], [0], "must give the group of each"),
        ([1.0, 2.0], [0.5, 1.0], "whole numbers or labels"),
    ],
)
def test_data_that_make_no_sense_are_refused(observed, groups, message):
    with pytest.raises(ValueError, match=message):
        GroupedData.from_user("y", observed, groups)
