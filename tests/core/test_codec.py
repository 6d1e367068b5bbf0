"""Values as trees of JSON beside arrays, and back."""

import json
import pickle
from dataclasses import dataclass

import numpy as np
import pytest

from pm_evidence.core.codec import Unreadable, Unstorable, decoded, encoded
from pm_evidence.core.records import Role, Status


@dataclass(frozen=True)
class Moves:
    """Parts, and a number that must be positive."""

    parts: object
    scale: float = 1.0

    def __post_init__(self):
        if not self.scale > 0.0:
            raise ValueError("scale must be positive")


GIVEN = {"kernel": Moves(())}  # whose class is one that the reader has


def through(value, given=GIVEN):
    tree, arrays = encoded(value, given)
    return decoded(json.loads(json.dumps(tree, allow_nan=False)), arrays, given)


def test_plain_values():
    """With their types, and texts that look like the names of the format."""
    for value in (
        *(None, True, 3, 2**80, -(2**63), 0.1, float("inf"), -0.0, "text", Status.OK),
        *((1, (2.5, "a"), []), [1, (2,)], {"a": (1,), "class": {"given": 2}, "tuple": [3]}),
        {Role.FORWARD: 1},
    ):
        found = through(value)
        assert found == value and repr(found) == repr(value)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u8", "i2", "u1", "?", "c16"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (7, 40)])
def test_arrays(dtype, shape):
    array = (np.random.default_rng(1).normal(size=shape) * 100).astype(dtype)
    for found in (through(array), through((np.ones(2, dtype), array))[1]):
        assert found.dtype == array.dtype and found.tobytes() == array.tobytes()


def test_the_order_in_memory_is_kept():
    """As by pickle: sums and products have other last digits in another order."""
    array = np.random.default_rng(1).normal(size=(30, 30)).T
    found, pickled = through(array), pickle.loads(pickle.dumps(array))
    assert found.flags.f_contiguous and pickled.flags.f_contiguous
    assert np.array_equal(found, array)


def test_numbers_of_numpy_keep_their_type():
    found = through((np.float64(0.1), np.int64(3), np.bool_(True), np.float32(0.1)))
    assert [type(each).__name__ for each in found] == ["float64", "int64", "bool", "float32"]


def test_what_occurs_twice_is_one_object_again():
    """Kernels of many stages are one object, and stretches of stages are found by that."""
    shape = Moves(np.arange(200.0))
    tree, arrays = encoded((shape, [shape] * 1000, Moves((shape,))), GIVEN)
    assert arrays["float64"].size == 200, "an array is stored for each time that it occurs"
    first, many, moves = decoded(tree, arrays, GIVEN)
    assert all(each is first for each in many) and moves.parts[0] is first
    assert np.array_equal(first.parts, shape.parts)


def test_what_both_sides_have_is_not_stored():
    """Such as the kernel that the user gives: it may be of any class."""
    given = {"kernel": object(), "class": Moves(())}
    kernel = given["kernel"]
    assert through(Moves((kernel, kernel)), given).parts == (kernel, kernel)


def test_other_classes_are_refused():
    for value in (object(), {1: 2}, np.array(["a"]), {3}, lambda: 1, Moves, Moves(())):
        with pytest.raises(Unstorable):
            encoded((1, value))


def test_a_file_makes_nothing_but_the_classes_that_are_known():
    """Their constructors check the fields."""
    of_moves = {"class": f"{__name__}.Moves"}
    for tree in (
        {"class": "os.system", "fields": {}},
        {"enum": "os.system", "value": 1},
        {**of_moves, "fields": {"parts": {"tuple": []}, "scale": -1.0}},
        {**of_moves, "fields": {"no": 1}},
        {"array": "missing", "at": 0, "shape": [1]},
        {"array": "float64", "at": 0, "shape": [5]},
        {"same": 5},
        {"given": "unknown"},
    ):
        with pytest.raises(Unreadable):
            decoded(tree, {"float64": np.ones(3)}, GIVEN)
