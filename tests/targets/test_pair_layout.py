"""Which coordinates two models share."""

from types import SimpleNamespace

import numpy as np
import pytest

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.layout import Layout, PairLayout


def target(shapes, circular=()):
    layout = Layout.of(list(shapes.values()), list(shapes))
    period = np.zeros(layout.size)
    for variable in layout.variables:
        period[variable.positions] = 2 * np.pi * (variable.name in circular)
    return SimpleNamespace(layout=layout, n_dim=layout.size, period=period)


def test_variables_of_one_name_lie_in_one_place():
    first = target({"a": (), "b": (2,), "c": ()})
    second = target({"c": (), "d": (2, 2), "b": (2,)})
    layout = PairLayout.of(first, second)
    assert layout.names == ("c", "b") and layout.n_dim == 8
    np.testing.assert_array_equal(layout.of_model[0], [0, 1, 2, 3])
    np.testing.assert_array_equal(layout.of_model[1], [3, 4, 5, 6, 7, 1, 2])
    np.testing.assert_array_equal(layout.own[0], [0])
    np.testing.assert_array_equal(layout.own[1], [4, 5, 6, 7])
    np.testing.assert_array_equal(layout.aligned, [1, 2, 3])
    np.testing.assert_array_equal(layout.aligned_of(0), [1, 2, 3])
    np.testing.assert_array_equal(layout.aligned_of(1), [5, 6, 0])


@pytest.mark.parametrize(("one", "other", "n"), [(2, 3, 2), (3, 1, 1)])
def test_vectors_of_different_length_share_their_first_elements(one, other, n):
    layout = PairLayout.of(target({"b": (one,)}), target({"b": (other,)}))
    assert layout.shared.size == n and layout.n_dim == max(one, other)


def test_circular_variables_are_shared_with_their_like_but_not_aligned():
    shapes = {"angle": (), "a": ()}
    both = target(shapes, circular=["angle"])
    layout = PairLayout.of(both, target(shapes, circular=["angle"]))
    assert layout.shared.size == 2 and layout.aligned.tolist() == [1]
    assert PairLayout.of(both, target(shapes)).names == ("a",)


@pytest.mark.parametrize("shapes", [{"z": (2,)}, {"a": (2, 3)}])
def test_models_that_share_nothing(shapes):
    with pytest.raises(ModelError, match=r"must share a free variable.*compare_models"):
        PairLayout.of(target({"a": (2,)}), target(shapes))
