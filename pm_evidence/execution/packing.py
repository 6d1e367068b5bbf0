"""Values as arrays and as what JSON can hold, and back, without running code of a file."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Packing", "Unpackable", "Unstorable", "classes_in"]

# Numbers of an array that are written as text instead of as a Zarr array, which takes 2 ms.
_SHORT = 100
_LARGEST_INT = 2**53
_SEPARATOR = "."
_PACKAGE = __name__.partition(".")[0] + "."


class Unstorable(Exception):
    """A value is of a class that is not stored."""


class Unpackable(Exception):
    """A stored value is not one that this package has written."""


class Packing:
    """Turns values into trees of JSON with arrays beside them, and back.

    Only dataclasses of this package, and those that are named here, are ever made from a file, by
    their constructors. (Pickle would be shorter, and would run whatever code somebody has put into
    a file.) An object that occurs twice is stored once, and is one object again afterwards.

    Parameters
    ----------
    classes : iterable of type
        Further dataclasses that are stored by name.
    given : mapping of str to object
        Objects that the reader has as well: only their names are stored.
    """

    def __init__(
        self, classes: Iterable[type] = (), given: Mapping[str, Any] | None = None
    ) -> None:
        self._classes = {_name(kind): kind for kind in classes}
        self._given = dict(given or {})

    def pack(self, value: Any) -> tuple[Any, dict[str, NDArray[Any]]]:
        """Return the tree of a value, and its long arrays by name.

        Raises
        ------
        Unstorable
            If a part of it is of a class that is not stored.
        """
        writer = _Writer(self._classes, self._given)
        return writer.tree(value, ""), writer.arrays

    def unpack(self, tree: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """Return the value of a tree.

        Raises
        ------
        Unpackable
            If the tree is not one that ``pack`` returns.
        """
        try:
            return _Reader(self._classes, self._given, arrays).value(tree)
        except (
            *(LookupError, TypeError, ValueError, AttributeError, RecursionError),
            ImportError,
        ) as error:
            raise Unpackable(str(error)) from error


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_own(kind: Any) -> bool:
    """Return whether a class is a dataclass of this package."""
    return isinstance(kind, type) and is_dataclass(kind) and kind.__module__.startswith(_PACKAGE)


def _class_of(name: str) -> type:
    """Return the dataclass of this package that has a name; raise LookupError for any other."""
    module, _, last = name.rpartition(".")
    found: Any = getattr(import_module(module), last, None) if name.startswith(_PACKAGE) else None
    if not _is_own(found) or _name(found) != name:
        raise LookupError(f"{name} is no class that is stored")
    kind: type = found
    return kind


class _Writer:
    """Writes one value."""

    def __init__(self, classes: Mapping[str, type], given: Mapping[str, Any]) -> None:
        self._names = {*classes.values()}
        self._given = {id(value): name for name, value in given.items()}
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # alive, so that no other object gets the same id
        self.arrays: dict[str, NDArray[Any]] = {}

    def tree(self, value: Any, name: str) -> Any:
        """Return the tree of a part of the value."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str(value)
        if isinstance(value, int) and not isinstance(value, np.generic):
            return int(value) if abs(value) < _LARGEST_INT else {"int": str(int(value))}
        if isinstance(value, float) and not isinstance(value, np.generic):
            return value if isfinite(value) else {"float": str(value)}
        if isinstance(value, list):
            return [self._part(each, name, i) for i, each in enumerate(value)]
        if isinstance(value, tuple):
            return {"tuple": [self._part(each, name, i) for i, each in enumerate(value)]}
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {"dict": {key: self._part(each, name, key) for key, each in value.items()}}
        return self._shared(value, name)

    def _part(self, value: Any, name: str, key: Any) -> Any:
        return self.tree(value, f"{name}{_SEPARATOR}{key}" if name else str(key))

    def _shared(self, value: Any, name: str) -> Any:
        """Return the tree of an object, which may occur repeatedly."""
        if id(value) in self._given:
            return {"given": self._given[id(value)]}
        if id(value) in self._seen:
            return {"same": self._seen[id(value)]}
        tree: Any
        if isinstance(value, np.ndarray | np.generic):
            tree = self._array(np.asarray(value), name or "value")
            if isinstance(value, np.generic):
                tree["scalar"] = True
        elif type(value) in self._names or _is_own(type(value)):
            held = {
                each.name: self._part(getattr(value, each.name), name, each.name)
                for each in fields(value)
                if each.init
            }
            tree = {"class": _name(type(value)), "fields": held}
        else:
            raise Unstorable(type(value).__name__)
        self._seen[id(value)] = len(self._kept)
        self._kept.append(value)
        return tree

    def _array(self, array: NDArray[Any], name: str) -> dict[str, Any]:
        if array.dtype.kind not in "biufc":
            raise Unstorable(f"array of {array.dtype}")
        # the order in memory changes the last digits of sums and products
        columns = array.flags.f_contiguous and not array.flags.c_contiguous
        tree: dict[str, Any] = {"columns": True} if columns else {}
        if array.size <= _SHORT and array.dtype in (np.float64, np.int64, np.bool_):
            values = [self.tree(each, name) for each in array.ravel().tolist()]
            return tree | {"dtype": array.dtype.name, "shape": [*array.shape], "values": values}
        while name in self.arrays:
            name += "_"
        self.arrays[name] = array
        return tree | {"array": name}


class _Reader:
    """Reads one value."""

    def __init__(
        self,
        classes: Mapping[str, type],
        given: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
    ) -> None:
        self._classes, self._given, self._arrays = classes, given, arrays
        self._read: list[Any] = []

    def value(self, tree: Any) -> Any:
        """Return the value of a part of the tree."""
        if isinstance(tree, list):
            return [self.value(each) for each in tree]
        if not isinstance(tree, dict):
            return tree
        kinds = ("int", "float", "tuple", "dict", "given", "same")
        kind = next((name for name in kinds if name in tree), None)
        match kind:
            case "int":
                return int(tree["int"])
            case "float":
                return float(tree["float"])
            case "tuple":
                return tuple(self.value(each) for each in tree["tuple"])
            case "dict":
                return {key: self.value(each) for key, each in tree["dict"].items()}
            case "given":
                return self._given[tree["given"]]
            case "same":
                return self._read[tree["same"]]
        found = self._instance(tree) if "class" in tree else self._array(tree)
        self._read.append(found)
        return found

    def _instance(self, tree: dict[str, Any]) -> Any:
        name = tree["class"]
        kind = self._classes[name] if name in self._classes else _class_of(name)
        return kind(**{name: self.value(each) for name, each in tree["fields"].items()})

    def _array(self, tree: dict[str, Any]) -> Any:
        if "array" in tree:
            array = self._arrays[tree["array"]]
        else:
            values = [self.value(each) for each in tree["values"]]
            array = np.array(values, tree["dtype"]).reshape(tree["shape"])
        if "columns" in tree:
            array = np.asfortranarray(array)
        return array[()] if "scalar" in tree else array


def classes_in(value: Any) -> set[type]:
    """Return the dataclasses that an object consists of."""
    if isinstance(value, list | tuple):
        return set().union(*map(classes_in, value))
    if not is_dataclass(value) or isinstance(value, type):
        return set()
    parts = [getattr(value, each.name) for each in fields(value) if each.init]
    return {type(value)}.union(*map(classes_in, parts))
