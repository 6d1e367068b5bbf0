"""Digests of values that are the same in every process, to tell whether two calls are the same."""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cached_property, lru_cache
from types import CodeType, FunctionType
from typing import Any

import numpy as np

__all__ = ["Digest", "digest_of", "digest_of_bytes"]

_PLAIN = (bool, int, float, complex, str, bytes, list, tuple, np.ndarray, np.generic)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def digest_of(value: Any, special: Callable[[Any], Any] = lambda value: value) -> str:
    """Return a digest of a value, in hexadecimal digits; see `Digest`."""
    found = Digest(special)
    found.add(value)
    return found.hexdigest()


@lru_cache(maxsize=4)
def digest_of_bytes(value: bytes) -> str:
    """Return the SHA-256 digest of bytes, which is computed once for an object that comes again."""
    return hashlib.sha256(value).hexdigest()


class Digest:
    """A SHA-256 digest of numbers, texts, arrays, containers, functions and objects.

    Objects are described by their class and their public attributes, without those that a
    ``cached_property`` has computed; functions by their code, defaults and closures, and by the
    numbers, texts, arrays and functions of their module that they use.

    Parameters
    ----------
    special : callable
        Called with every value first; returns what takes its place, or the value itself.
    """

    def __init__(self, special: Callable[[Any], Any] = lambda value: value) -> None:
        self._special, self._hash = special, hashlib.sha256()
        self._open: list[
            int
        ] = []  # objects that are being described, which may refer to themselves

    def hexdigest(self) -> str:
        """Return the digest of all values so far."""
        return self._hash.hexdigest()

    def add(self, value: Any) -> None:
        """Add a value."""
        value = self._special(value)
        if isinstance(value, Enum):
            self._text("enum", f"{type(value).__qualname__}.{value.name}")
        elif value is None or isinstance(value, bool | int | float | complex | str):
            self._text(type(value).__name__, repr(value))
        elif isinstance(value, bytes):
            self._bytes("bytes", value)
        elif isinstance(value, np.ndarray | np.generic):
            self._array(value)
        elif isinstance(value, type):
            self._text("class", f"{value.__module__}.{value.__qualname__}")
        elif id(value) in self._open:
            self._text("again", str(self._open.index(id(value))))
        else:
            self._open.append(id(value))
            self._composite(value)
            self._open.pop()

    def _composite(self, value: Any) -> None:
        if isinstance(value, list | tuple):
            self._text("sequence", str(len(value)))
            for each in value:
                self.add(each)
        elif isinstance(value, set | frozenset):
            self.add(sorted(digest_of(each, self._special) for each in value))
        elif isinstance(value, Mapping):
            self._text("mapping", str(len(value)))
            for key in sorted(value, key=repr):
                self.add(key)
                self.add(value[key])
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, CodeType):
            self.add((value.co_name, value.co_code, value.co_names, value.co_consts))
        else:
            self._object(value)

    def _function(self, function: FunctionType) -> None:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        self._text("function", function.__qualname__)
        self.add((function.__code__, function.__defaults__, function.__kwdefaults__, cells))
        self.add({name: _global(function, name) for name in _names(function.__code__)})

    def _object(self, value: Any) -> None:
        kind = type(value)
        self._text("object", f"{kind.__module__}.{kind.__qualname__}")
        if is_dataclass(value):
            held = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        else:
            held = {
                name: each
                for name, each in getattr(value, "__dict__", {}).items()
                if not name.startswith("_")
                and not isinstance(getattr(kind, name, None), cached_property)
            }
            self._text("shown", "" if held else _ADDRESS.sub("", repr(value)))
        self.add(held)

    def _array(self, value: Any) -> None:
        array = np.asarray(value)
        if array.dtype.hasobject:
            self.add((array.shape, array.ravel().tolist()))
        else:
            self._text("array", f"{array.dtype.str}{array.shape}")
            self._bytes("values", array.tobytes())

    def _text(self, kind: str, text: str) -> None:
        self._bytes(kind, text.encode("utf-8", "surrogatepass"))

    def _bytes(self, kind: str, values: bytes) -> None:
        self._hash.update(f"{kind}:{len(values)}:".encode() + values)


def _names(code: CodeType) -> set[str]:
    """Return the names that code, and the code of functions inside it, looks up."""
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _global(function: FunctionType, name: str) -> Any:
    """Return a global variable of a function if it is a plain value; else what kind it is of."""
    value = function.__globals__.get(name)
    if isinstance(value, FunctionType) and value.__module__ == function.__module__:
        return value
    plain = isinstance(value, _PLAIN)
    return value if plain else type(value).__qualname__
