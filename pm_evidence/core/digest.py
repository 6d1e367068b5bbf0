"""Digests of values that are the same in every process, and what a run keeps by them."""

import copyreg
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
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any
from uuid import uuid4

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
    their files. What has none of these, such as an open file, has a digest that never comes again.
    """

    def __init__(self, special: Callable[[Any], Any] = lambda value: value) -> None:
        self._special, self._hash = special, hashlib.sha256()
        # objects that are being described, which may refer to themselves
        self._open: list[Any] = []
        # functions, classes and modules that have been described
        self._known: dict[int, tuple[int, Any]] = {}
        self.undescribed: list[str] = []

    def hexdigest(self) -> str:
        """Return the digest of all values so far."""
        return self._hash.hexdigest()

    def add(self, value: Any) -> None:
        """Add a value: its parts one after the other, with the parts of each before the next."""
        n_open, levels = len(self._open), [iter((value,))]
        while levels:
            try:
                part = self._special(next(levels[-1]))
            except StopIteration:
                levels.pop()
                del self._open[n_open + max(len(levels) - 1, 0) :]
                continue
            if part is None or isinstance(part, bool | int | float | complex | str | Enum):
                kind = type(part)
                shown = part.name if isinstance(part, Enum) else repr(part)
                self._text(kind.__name__ if kind.__module__ == "builtins" else str(kind), shown)
            elif isinstance(part, bytes | bytearray):
                self._bytes("bytes", bytes(part))
            elif isinstance(part, np.ndarray | np.generic) and not part.dtype.hasobject:
                self._text("array", f"{part.dtype.str}{part.shape}")
                self._bytes("values", part.tobytes())
            elif id(part) in (ids := [id(each) for each in self._open]):
                self._text("again", str(ids.index(id(part))))
            elif id(part) in self._known:
                self._text("known", str(self._known[id(part)][0]))
            else:
                if isinstance(part, FunctionType | type | ModuleType):
                    self._known[id(part)] = len(self._known), part
                self._open.append(part)
                levels.append(self._parts(part))

    def _parts(self, value: Any) -> Iterator[Any]:
        """Add what kind of object a value is, and yield its parts."""
        match value:
            case np.ndarray() | np.generic():
                array = np.asarray(value)
                yield array.shape, array.ravel().tolist()
            case list() | tuple():
                self._text(_kind_of(value, (list, tuple), "sequence"), str(len(value)))
                yield from value
            case set() | frozenset():
                self._text("set", str(len(value)))
                self._unordered(value)
            case Mapping():
                self._text(_kind_of(value, (dict,), "mapping"), str(len(value)))
                self._unordered(value.items())
            case FunctionType():
                yield from self._function(value)
            case CodeType():
                yield value.co_name, value.co_code, value.co_names, value.co_consts
            case CellType():
                yield [value.cell_contents] if _is_filled(value) else []
            case MethodType():
                yield "method", value.__self__, value.__func__
            case BuiltinFunctionType():
                owner = value.__self__
                yield "builtin", value.__qualname__
                yield value.__module__ if isinstance(owner, ModuleType) else owner
            case type():
                self._text("class", f"{value.__module__}.{value.__qualname__}")
                if is_of_library(value):
                    self._text("library", str(_library_of(value.__module__)))
                    return
                yield value.__bases__
                yield _public(vars(value))
            case ModuleType():
                yield from self._module(value, None)
            case property():
                yield "property", value.fget, value.fset
            case staticmethod() | classmethod() | cached_property():
                inner = value.func if isinstance(value, cached_property) else value.__func__
                yield type(value).__name__, inner
            case _:
                yield from self._object(value)

    def _unordered(self, values: Any) -> None:
        """Add what is the same in any order."""
        parts = []
        for each in values:
            part = Digest(self._special)
            part._open, part._known = [*self._open], {**self._known}
            part.add(each)
            parts.append(part.hexdigest())
            self.undescribed += part.undescribed
        for digest in sorted(parts):
            self._text("part", digest)

    def _function(self, function: FunctionType) -> Iterator[Any]:
        self._text("function", f"{function.__qualname__}")
        yield function.__defaults__, function.__kwdefaults__
        yield [*(function.__closure__ or ())]
        library = _library_of(function.__module__)
        if library is not None:
            self._text("library", f"{function.__module__} {library}")
            return
        yield function.__code__
        attributes = _attributes(function.__code__)
        for name in sorted(_globals(function.__code__)):
            if name in function.__globals__:
                self._text("global", name)
                yield from self._named(function.__globals__[name], attributes)
        for cell in function.__closure__ or ():
            if _is_filled(cell) and isinstance(cell.cell_contents, ModuleType):
                yield from self._module(cell.cell_contents, attributes)

    def _named(self, value: Any, attributes: set[str]) -> Iterator[Any]:
        """Yield a value that a function names, or the attributes of a module among these names."""
        if isinstance(value, ModuleType):
            yield from self._module(value, attributes)
        else:
            yield value

    def _module(self, module: ModuleType, attributes: set[str] | None) -> Iterator[Any]:
        """Add a module of the user's own: the attributes of these names, or all."""
        library = _library_of(module.__name__)
        self._text("module", module.__name__)
        if library is not None:
            self._text("library", library)
        elif attributes is None:
            yield _public(vars(module))
        else:
            for name in sorted(attributes & vars(module).keys()):
                self._text("attribute", name)
                yield from self._named(vars(module)[name], attributes)

    def _object(self, value: Any) -> Iterator[Any]:
        """Yield what makes an object: its function, its fields, or what pickle would keep of it."""
        kind = type(value)
        inner = getattr(value, "py_func", None) or getattr(value, "__wrapped__", None)
        if isinstance(
            inner, FunctionType
        ):  # functions that are compiled, or whose results are kept
            yield f"{kind.__module__}.{kind.__qualname__}", inner
            return
        if is_dataclass(value) and is_of_library(kind):
            yield kind, {f.name: getattr(value, f.name) for f in fields(value) if f.init}
            return
        reduce = copyreg.dispatch_table.get(kind)
        try:
            reduced: Any = value.__reduce_ex__(4) if reduce is None else reduce(value)
        except Exception:  # whatever an object raises that pickle cannot keep
            self._unknown(kind)
            return
        if isinstance(reduced, str):  # the name of a global object, such as a compiled function
            names = (getattr(value, "__module__", None), kind.__module__, "scipy.special")
            homes = (sys.modules.get(name or "") for name in names)
            home = next((each for each in homes if getattr(each, reduced, None) is value), None)
            if home is None:  # such as a function of the user's that NumPy calls
                self._unknown(kind)
            else:
                yield "global", home.__name__, reduced, _library_of(home.__name__)
            return
        make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        if isinstance(state, dict):
            state = _without_cached(kind, state)
        elif isinstance(state, tuple) and len(state) == 2 and isinstance(state[0], dict):
            state = _without_cached(kind, state[0]), state[1]
        yield kind, make, arguments, state, list(items or ()), list(pairs or ())

    def _unknown(self, kind: type) -> None:
        self.undescribed.append(f"{kind.__module__}.{kind.__qualname__}")
        self._text("unknown", str(uuid4()))

    def _text(self, kind: str, text: str) -> None:
        self._bytes(kind, text.encode("utf-8", "surrogatepass"))

    def _bytes(self, kind: str, values: bytes) -> None:
        self._hash.update(f"{kind}:{len(values)}:".encode() + values)


def _kind_of(value: Any, plain: tuple[type, ...], name: str) -> str:
    """Return a name for a container, which is that of its class if it is no plain one."""
    kind = type(value)
    return name if kind in plain else f"{name} {kind.__module__}.{kind.__qualname__}"


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # of a function that is not yet defined
        return False
    return True


def _public(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a class or module without what Python adds to it."""

    def is_own(name: str, value: Any) -> bool:
        if isinstance(value, GetSetDescriptorType | MemberDescriptorType):
            return False  # slots and the like, whose values belong to instances
        if not name.startswith("__"):
            return name != "_abc_impl"
        return name not in _OF_CLASSES and isinstance(value, FunctionType)

    return {name: value for name, value in names.items() if is_own(name, value)}


def _without_cached(kind: type, state: dict[str, Any]) -> dict[str, Any]:
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


def _globals(code: CodeType) -> set[str]:
    """Return the global names that code looks up."""
    instructions = (each for part in _codes(code) for each in dis.get_instructions(part))
    return {
        str(each.argval) for each in instructions if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }


def _attributes(code: CodeType) -> set[str]:
    """Return all names that code looks up, those of attributes included."""
    return set().union(*(part.co_names for part in _codes(code)))


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
