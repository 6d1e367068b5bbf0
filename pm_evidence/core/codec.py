"""Values as trees of JSON beside arrays, and back: what results and checkpoints are stored as.

Only dataclasses and enumerations of this package, and those of objects that the reader has, are
ever made from a file, by their constructors. (Pickle would be shorter, and would run whatever code
somebody has put into a file.)
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import import_module
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

_LARGEST_INT = 2**53  # that every reader of JSON keeps
_PACKAGE = __name__.partition(".")[0] + "."


class Unstorable(Exception):
    """A value is of a class that is not stored."""


class Unreadable(Exception):
    """A stored value is not one that this package has written."""


def encoded(value: Any, given: Mapping[str, Any] | None = None) -> tuple[Any, Arrays]:
    """Return the tree of a value, and its numbers as one flat array for each type of number.

    An object that occurs twice is stored once, and is one object again afterwards. Objects that
    are ``given`` by name are not stored: the reader has them.
    """
    writer = _Writer(given or {})
    tree = writer.tree(value)
    return tree, {name: np.concatenate(parts) for name, parts in writer.parts.items()}


def decoded(tree: Any, arrays: Mapping[str, NDArray[Any]], given: Any = None) -> Any:
    """Return the value of a tree; raise ``Unreadable`` if there is none."""
    try:
        return _Reader(given or {}, arrays).value(tree)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, ImportError) as e:
        raise Unreadable(str(e)) from e


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_own(kind: Any) -> bool:
    """Return whether a class is a dataclass or an enumeration of this package."""
    stored = isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, Enum))
    return stored and kind.__module__.startswith(_PACKAGE)


def _classes_in(value: Any) -> set[type]:
    """Return the dataclasses that an object consists of."""
    if isinstance(value, list | tuple):
        return set().union(*map(_classes_in, value))
    if not is_dataclass(value) or isinstance(value, type):
        return set()
    parts = [getattr(value, each.name) for each in fields(value) if each.init]
    return {type(value)}.union(*map(_classes_in, parts))


class _Writer:
    def __init__(self, given: Mapping[str, Any]) -> None:
        self._classes = _classes_in([*given.values()])
        self._given = {id(value): name for name, value in given.items()}
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # alive, so that no other object gets the same id
        self.parts: dict[str, list[NDArray[Any]]] = {}
        self._sizes: dict[str, int] = {}

    def tree(self, value: Any) -> Any:
        """Return the tree of a part of the value."""
        if isinstance(value, Enum) and _is_own(type(value)):
            return {"enum": _name(type(value)), "value": value.value}
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str(value)
        if isinstance(value, int) and not isinstance(value, np.generic):
            return int(value) if abs(value) < _LARGEST_INT else {"int": str(int(value))}
        if isinstance(value, float) and not isinstance(value, np.generic):
            return value if isfinite(value) else {"float": str(value)}
        if isinstance(value, list):
            return [self.tree(each) for each in value]
        if isinstance(value, tuple):
            return {"tuple": [self.tree(each) for each in value]}
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {"dict": [[self.tree(key), self.tree(each)] for key, each in value.items()]}
        return self._shared(value)

    def _shared(self, value: Any) -> Any:
        """Return the tree of an object, which may occur repeatedly."""
        if id(value) in self._given:
            return {"given": self._given[id(value)]}
        if id(value) in self._seen:
            return {"same": self._seen[id(value)]}
        if isinstance(value, np.ndarray | np.generic):
            tree = self._array(np.asarray(value))
            tree |= {"scalar": True} if isinstance(value, np.generic) else {}
        elif type(value) in self._classes or _is_own(type(value)):
            held = [each.name for each in fields(value) if each.init]
            values = {name: self.tree(getattr(value, name)) for name in held}
            tree = {"class": _name(type(value)), "fields": values}
        else:
            raise Unstorable(type(value).__name__)
        self._seen[id(value)] = len(self._kept)
        self._kept.append(value)
        return tree

    def _array(self, array: NDArray[Any]) -> dict[str, Any]:
        if array.dtype.kind not in "biufc":
            raise Unstorable(f"array of {array.dtype}")
        # the order in memory changes the last digits of sums and products
        columns = array.flags.f_contiguous and not array.flags.c_contiguous
        kind = array.dtype.name
        at = self._sizes.get(kind, 0)
        self.parts.setdefault(kind, []).append(array.ravel())
        self._sizes[kind] = at + array.size
        tree = {"array": kind, "at": at, "shape": [*array.shape]}
        return tree | ({"columns": True} if columns else {})


class _Reader:
    def __init__(self, given: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        self._classes = {_name(kind): kind for kind in _classes_in([*given.values()])}
        self._given, self._arrays = given, arrays
        self._read: list[Any] = []

    def value(self, tree: Any) -> Any:
        """Return the value of a part of the tree."""
        if isinstance(tree, list):
            return [self.value(each) for each in tree]
        match tree:
            case {"int": text}:
                return int(text)
            case {"float": text}:
                return float(text)
            case {"tuple": parts}:
                return tuple(self.value(each) for each in parts)
            case {"dict": pairs}:
                return {self.value(key): self.value(each) for key, each in pairs}
            case {"enum": name, "value": value}:
                return self._class(name)(value)
            case {"given": name}:
                return self._given[name]
            case {"same": number}:
                return self._read[number]
            case {"class": name, "fields": held}:
                kind = self._class(name)
                found = kind(**{key: self.value(each) for key, each in held.items()})
            case {"array": kind, "at": at, "shape": shape}:
                found = self._array(self._arrays[kind], at, shape, tree)
            case _:
                return tree
        self._read.append(found)
        return found

    def _class(self, name: str) -> type:
        if name in self._classes:
            return self._classes[name]
        module, _, last = name.rpartition(".")
        own = name.startswith(_PACKAGE)
        found: Any = getattr(import_module(module), last, None) if own else None
        if not _is_own(found) or _name(found) != name:
            raise LookupError(f"{name} is no class that is stored")
        kind: type = found
        return kind

    def _array(self, numbers: NDArray[Any], at: int, shape: Any, tree: Mapping[str, Any]) -> Any:
        array = numbers[at : at + int(np.prod(shape))].reshape(shape).copy()
        array = np.asfortranarray(array) if "columns" in tree else array
        return array[()] if "scalar" in tree else array
