"""Digests of values that are the same in every process, and what a run keeps by them."""

import dis
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, cached_property, lru_cache
from pathlib import Path
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any
from uuid import uuid4

import cloudpickle
import numpy as np

# Of a class, what is no part of what its instances do.
_OF_CLASSES = {"__doc__", "__module__", "__qualname__", "__firstlineno__", "__static_attributes__"}


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
    """A SHA-256 digest of values of any kind, by their content.

    A function is its code, defaults, closure, and the global names that it uses; of a module among
    these, the attributes that it uses. An object is its class and all that pickle would keep of it,
    private attributes included, without what a ``cached_property`` has computed. A class of the
    user's own is its code. Functions and classes of libraries are their names, and the content of
    their files. What has none of these, such as a lock, has a digest that never comes again.
    """

    def __init__(self, special: Callable[[Any], Any] = lambda value: value) -> None:
        self._special, self._hash = special, hashlib.sha256()
        # ids of the objects that are being described, which may refer to themselves
        self._open: list[int] = []
        # digests of the functions, classes and modules that have been described, beside these
        self._known: dict[int, tuple[bytes, Any]] = {}
        self.undescribed: list[str] = []

    def hexdigest(self) -> str:
        """Return the digest of all values so far."""
        return self._hash.hexdigest()

    def add(self, value: Any) -> None:
        """Add a value."""
        self._hash.update(self._of(value))

    def _of(self, value: Any) -> bytes:
        """Return the digest of a value, which is that of its content, or of those of its parts."""
        value = self._special(value)
        if value is None or isinstance(value, bool | int | float | complex | str | Enum):
            shown = value.name if isinstance(value, Enum) else repr(value)
            return _hashed(_name_of(type(value)), shown.encode())
        if isinstance(value, bytes | bytearray):
            return _hashed("bytes", value)
        if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
            numbers = np.ascontiguousarray(value).reshape(-1).view(np.uint8)  # no copy
            return _hashed(f"array {value.dtype.str}{value.shape}", numbers)
        if id(value) in self._open:
            return _hashed("again", b"%d" % self._open.index(id(value)))
        if id(value) in self._known:
            return self._known[id(value)][0]
        self._open.append(id(value))
        found = _hashed("parts", b"".join([self._of(part) for part in self._parts(value)]))
        self._open.pop()
        if isinstance(value, FunctionType | type | ModuleType):
            self._known[id(value)] = found, value
        return found

    def _parts(self, value: Any) -> Iterator[Any]:
        """Yield what kind of object a value is, and its parts."""
        kind = type(value)
        match value:
            case np.ndarray() | np.generic():
                array = np.asarray(value)
                yield from ("array", array.shape, array.ravel().tolist())
            case list() | tuple():
                yield "sequence" if kind in (list, tuple) else _name_of(kind)
                yield from value
            case set() | frozenset():
                yield "set"
                yield from sorted(self._of(each) for each in value)
            case Mapping():
                yield "mapping" if kind is dict else _name_of(kind)
                by_key = {self._of(key): each for key, each in value.items()}
                for key in sorted(by_key):
                    yield from (key, by_key[key])
            case FunctionType():
                yield from self._function(value)
            case CodeType():
                yield from ("code", value.co_name, value.co_code, value.co_names, value.co_consts)
            case type():
                library = _library_of(value.__module__) if is_of_library(value) else None
                yield from ("class", _name_of(value))
                yield library or (value.__bases__, _public(vars(value)))
            case ModuleType():
                library = _library_of(value.__name__)
                yield from ("module", value.__name__, library or _public(vars(value)))
            case _:
                yield from self._object(value)

    def _function(self, function: FunctionType) -> Iterator[Any]:
        library = _library_of(function.__module__)
        yield from ("function", function.__qualname__, function.__closure__)
        yield from (function.__defaults__, function.__kwdefaults__)
        if library is not None:
            yield from (function.__module__, library)
            return
        yield function.__code__
        codes = list(_codes(function.__code__))
        attributes = {name for code in codes for name in code.co_names}
        for name in sorted({name for code in codes for name in _globals(code)}):
            if name in function.__globals__:
                yield name
                yield from self._named(function.__globals__[name], attributes)

    def _named(self, value: Any, attributes: set[str]) -> Iterator[Any]:
        """Yield a value that a function names; of a module of the user's own, these attributes."""
        if not isinstance(value, ModuleType):
            yield value
            return
        library = _library_of(value.__name__)
        yield from ("module", value.__name__, library)
        for name in sorted(attributes & vars(value).keys()) if library is None else ():
            yield name
            # modules may name each other: every name leads to another one at most once
            yield from self._named(vars(value)[name], attributes - {name})

    def _object(self, value: Any) -> Iterator[Any]:
        """Yield what makes an object: its function, its fields, or what pickle would keep of it."""
        kind = type(value)
        inner = getattr(value, "py_func", None) or getattr(value, "__wrapped__", None)
        # functions that are compiled, or whose results are kept
        if isinstance(inner, FunctionType):
            yield from (_name_of(kind), inner)
            return
        if is_dataclass(value) and is_of_library(kind):
            yield from (kind, {f.name: getattr(value, f.name) for f in fields(value) if f.init})
            return
        reduce = cloudpickle.Pickler.dispatch_table.get(kind)
        try:
            reduced: Any = value.__reduce_ex__(4) if reduce is None else reduce(value)
        except Exception:  # whatever an object raises that pickle cannot keep
            reduced = None
        if isinstance(reduced, str):  # the name of a global object, such as a compiled function
            names = (getattr(value, "__module__", None), kind.__module__, "scipy.special")
            homes = (sys.modules.get(name or "") for name in names)
            home = next((each for each in homes if getattr(each, reduced, None) is value), None)
            # None for such as a function of the user's that NumPy calls
            reduced = home and (reduced, home.__name__, _library_of(home.__name__))
        if reduced is None:
            self.undescribed.append(_name_of(kind))
            yield from ("unknown", str(uuid4()))
            return
        make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        yield from (kind, make, arguments, _without_cached(kind, state))
        yield from (list(items or ()), list(pairs or ()))


def _hashed(kind: str, content: Any) -> bytes:
    found = hashlib.sha256(f"{kind}:".encode())
    found.update(content)
    return found.digest()


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _public(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a class or module without what Python adds to it."""

    def is_own(name: str, value: Any) -> bool:
        if isinstance(value, GetSetDescriptorType | MemberDescriptorType):
            return False  # slots and the like, whose values belong to instances
        if not name.startswith("__"):
            return name != "_abc_impl"
        return name not in _OF_CLASSES and isinstance(value, FunctionType)

    return {name: value for name, value in names.items() if is_own(name, value)}


def _without_cached(kind: type, state: Any) -> Any:
    """Return what pickle keeps of an object without results that it can compute again."""
    if isinstance(state, tuple):  # attributes, and those in slots
        return tuple(_without_cached(kind, each) for each in state)
    if not isinstance(state, dict):
        return state
    return {
        name: value
        for name, value in state.items()
        if not isinstance(getattr(kind, str(name), None), cached_property)
    }


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield code, and that of functions inside it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _globals(code: CodeType) -> Iterator[str]:
    """Yield the global names that code looks up."""
    for each in dis.get_instructions(code):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(each.argval)


def is_of_library(kind: type) -> bool:
    """Return whether a class is one of a library, and not one that a library made for the user."""
    if _library_of(kind.__module__) is None:
        return False
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    # extension types need not be found under their names
    return found is kind or not any(isinstance(v, FunctionType) for v in vars(kind).values())


@cache
def _library_of(module: str | None) -> str | None:
    """Return the version of a library, and a digest of a file of it; None for the user's own code.

    What is neither a part of Python nor installed with other packages is the user's own.
    """
    if module is None or module == "__main__":
        return None
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in sys.builtin_module_names:
        return f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    found = sys.modules.get(module)
    file = Path(getattr(found, "__file__", None) or "")
    installed = {"site-packages", "dist-packages"} & set(file.parts)
    if not installed and top != __name__.partition(".")[0]:
        return None
    version = str(getattr(sys.modules.get(top), "__version__", ""))
    content = file.read_bytes() if file.suffix == ".py" and file.exists() else b""
    return f"{version} {hashlib.sha256(content).hexdigest()}"


Keep = Callable[[str, Callable[[], Any]], Any]

_KEEP: ContextVar[Keep | None] = ContextVar("keep", default=None)


def kept(name: str, compute: Callable[[], Any]) -> Any:
    """Return what a function returns, or returned in an earlier process of the same run."""
    keep = _KEEP.get()
    return compute() if keep is None else keep(name, compute)


@contextmanager
def keeping(keep: Keep) -> Iterator[None]:
    """Let ``keep`` return what `kept` asks for in this thread."""
    token = _KEEP.set(keep)
    try:
        yield
    finally:
        _KEEP.reset(token)
