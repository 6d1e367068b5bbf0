"""Values as arrays and JSON, and back."""

import json
import pickle
from dataclasses import dataclass

import numpy as np
import pytest

from pm_evidence.execution.journal import Packing, Unpackable, Unstorable, classes_in


@dataclass(frozen=True)
class Shape:
    """Two arrays."""

    mean: np.ndarray
    factor: np.ndarray | None = None


@dataclass(frozen=True)
class Moves:
    """Parts, and a number that must be positive."""

    parts: tuple
    scale: float = 1.0

    def __post_init__(self):
        if not self.scale > 0.0:
            raise ValueError("scale must be positive")


PACKING = Packing([Shape, Moves])


def through(value, packing=PACKING):
    tree, arrays = packing.pack(value)
    return packing.unpack(json.loads(json.dumps(tree, allow_nan=False)), arrays)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        2**80,
        -(2**63),
        0.1,
        float("inf"),
        -0.0,
        "text",
        (1, (2.5, "a"), []),
        [1, (2,)],
        {"a": (1,), "class": {"given": 2}, "tuple": [3]},
    ],
)
def test_plain_values(value):
    """With their types, and texts that look like the names of the format."""
    found = through(value)
    assert found == value and repr(found) == repr(value)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u8", "i2", "u1", "?", "c16"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (7, 40)])
def test_arrays(dtype, shape):
    array = (np.random.default_rng(1).normal(size=shape) * 100).astype(dtype)
    found = through(array)
    assert found.dtype == array.dtype and found.tobytes() == array.tobytes()


def test_the_order_in_memory_is_kept():
    """As by pickle: sums and products have other last digits in another order."""
    for size in (3, 30):
        array = np.random.default_rng(1).normal(size=(size, size)).T
        found, pickled = through(array), pickle.loads(pickle.dumps(array))
        assert found.flags.f_contiguous and pickled.flags.f_contiguous
        assert np.array_equal(found, array)


def test_numbers_of_numpy_keep_their_type():
    found = through((np.float64(0.1), np.int64(3), np.bool_(True), np.float32(0.1)))
    assert [type(each).__name__ for each in found] == ["float64", "int64", "bool", "float32"]


def test_what_occurs_twice_is_one_object_again():
    """Kernels of many stages are one object, and stretches of stages are found by that."""
    shape = Shape(np.arange(200.0), np.eye(3))
    tree, arrays = PACKING.pack((shape, [shape] * 1000, Moves((shape,))))
    assert len(arrays) == 1, "an array is stored for each time that it occurs"
    first, many, moves = PACKING.unpack(tree, arrays)
    assert all(each is first for each in many) and moves.parts[0] is first
    assert np.array_equal(first.mean, shape.mean) and first.factor.tolist() == np.eye(3).tolist()


def test_what_both_sides_have_is_not_stored():
    """Such as the kernel that the user gives: it may be of any class."""
    kernel = object()
    packing = Packing([Moves], {"kernel": kernel})
    found = through(Moves((kernel, kernel)), packing)
    assert found.parts == (kernel, kernel)
    assert classes_in([Moves((Shape(np.ones(1)), 3))]) == {Moves, Shape}


@pytest.mark.parametrize("value", [object(), {1: 2}, np.array(["a"]), {3}, lambda: 1, Packing])
def test_other_classes_are_refused(value):
    with pytest.raises(Unstorable):
        Packing([Shape]).pack((1, value))


@pytest.mark.parametrize(
    "tree",
    [
        {"class": "os.system", "fields": {}},
        {"class": f"{__name__}.Moves", "fields": {"parts": {"tuple": []}, "scale": -1.0}},
        {"class": f"{__name__}.Moves", "fields": {"no": 1}},
        {"array": "missing"},
        {"same": 5},
        {"given": "unknown"},
        {"dtype": "O", "shape": [2], "values": [1]},
        {},
    ],
)
def test_a_file_makes_nothing_but_the_classes_that_are_named(tree):
    """Their constructors check the fields."""
    with pytest.raises(Unpackable):
        PACKING.unpack(tree, {})
