"""numba, imported when something is compiled, and calls of compiled functions by address."""

import threading
from collections.abc import Callable, Iterator
from functools import wraps
from importlib import import_module
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from llvmlite import ir

from pm_evidence.core import interrupts

_lock = threading.RLock()
_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}


def _numba(name: str = "numba") -> Any:
    """Return a module of numba, with our folders for machine code and our handling of Ctrl-C."""
    with _lock, interrupts.uninterrupted():
        module = import_module(name)
        import_module("pm_evidence.core.version").register()
        interrupts.listen()
    return module


class _Module(ModuleType):
    """Stands for a module of numba."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_numba(self.__name__), name)


nb: Any = _Module("numba")
types: Any = _Module("numba.core.types")
cgutils: Any = _Module("numba.core.cgutils")


class Later:
    """Stands for what numba makes of a function, or for a value of numba's, until it is used."""

    def __init__(self, make: Callable[[], Any], function: Any = None) -> None:
        self._make, self._made = make, None
        if function is not None:
            self.__wrapped__ = self.py_func = function
            self.__doc__, self.__name__ = function.__doc__, function.__name__
            self.__module__, self.__qualname__ = function.__module__, function.__qualname__

    def __call__(self, *arguments: Any) -> Any:
        """Call it, and compile it if it has not been."""
        return (self._made or self.built())(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what inspection asks for
            raise AttributeError(name)
        return getattr(self.built(), name)

    @property
    def _numba_type_(self) -> Any:
        """Its type for numba, where a compiled function of the user's calls it."""
        made = self.built()
        typing: Any = _numba("numba.core.registry").cpu_target.typing_context
        typing.refresh()  # what has just been made is not known yet
        return typing.resolve_value_type(made)

    def built(self) -> Any:
        """Return what it stands for; a function is then ready to be compiled."""
        with _lock:
            if self._made is None:
                self._made = self._make()
            return self._made


def built(value: Any) -> Any:
    """Return what a value stands for, if it stands for another one."""
    return value.built() if isinstance(value, Later) else value


def njit(function: Any = None, **options: Any) -> Any:
    """Let numba compile a function when it is called; decorator as ``numba.njit``.

    Machine code is kept on disk, the lock of Python is released, and divisions by zero give
    infinity, unless the options say otherwise.
    """
    if function is None:
        return lambda given: njit(given, **options)

    def make() -> Any:
        _build_names(function)
        return _numba().njit(**{**_OPTIONS, **options})(function)

    return Later(make, function)


def cfunc(signature: Any, function: Any, *, cache: bool = True) -> Any:
    """Return a function as a C function; compiled now, as by ``numba.cfunc``."""
    _build_names(function)
    return _numba().cfunc(signature, cache=cache)(function)


def intrinsic(function: Any) -> Any:
    """Let a function write code where another is compiled; as ``numba.extending.intrinsic``."""
    return Later(lambda: _numba("numba.extending").intrinsic(function), function)


def _build_names(function: FunctionType) -> None:
    """Put what the names in a function stand for in their place: the compiler looks them up."""
    for name in _names(function.__code__):
        value = function.__globals__.get(name)
        if isinstance(value, _Module):
            function.__globals__[name] = _numba(value.__name__)
        elif isinstance(value, Later):
            function.__globals__[name] = value.built()
    for cell in function.__closure__ or ():
        cell.cell_contents = built(cell.cell_contents)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


class Given(NamedTuple):
    """A tuple that is an argument of a function which emits code: its type and its value."""

    kind: Any
    value: Any


def emitted(result: Callable[[], Any]) -> Callable[[Any], Any]:
    """Let a function emit the code of its calls; ``result`` returns the type of what they give.

    It is given a builder and the arguments: arrays with their ``data``, ``shape`` and ``strides``,
    tuples as ``Given``, and others as values. It returns a value, or None.
    """

    def decorate(function: Any) -> Any:
        @wraps(function)
        def typed(typingctx: Any, *kinds: Any) -> Any:
            def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
                pairs = zip(sig.args, args, strict=True)
                found = function(builder, *(_argument(context, builder, *each) for each in pairs))
                return context.get_dummy_value() if found is None else found

            return result()(*kinds), codegen

        return intrinsic(typed)

    return decorate


def _argument(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, types.BaseTuple):
        return Given(kind, value)
    if isinstance(kind, types.Array):
        return context.make_array(kind)(context, builder, value)
    return value


def nothing() -> Any:
    """Return the type of what a function gives that returns nothing."""
    return types.void


def density_signature() -> Any:
    """Return the signature of a density."""
    doubles = types.CPointer(types.double)
    return types.int64(doubles, doubles, doubles, types.CPointer(types.int64))


def frame_signature() -> Any:
    """Return the signature of a function that is called with a frame."""
    return types.int64(types.CPointer(types.int64))


@emitted(lambda: types.int64)
def call_density(builder: Any, address: Any, x: Any, out: Any, gradient: Any, data: Any) -> Any:
    """Return ``(*address)(x, out, gradient, data)`` for contiguous arrays."""
    pointers = [array.data for array in (x, out, gradient, data)]
    kind = ir.FunctionType(ir.IntType(64), [pointer.type for pointer in pointers])
    return builder.call(builder.inttoptr(address, kind.as_pointer()), pointers)


@emitted(lambda: types.int64)
def call_frame(builder: Any, address: Any, frame: Any) -> Any:
    """Return ``(*address)(frame)``: 0, or 1 if the function failed."""
    kind = ir.FunctionType(ir.IntType(64), [frame.data.type])
    return builder.call(builder.inttoptr(address, kind.as_pointer()), [frame.data])


@emitted(lambda: types.voidptr)
def view_address(builder: Any, address: Any) -> Any:
    """Return the integer ``address`` as an untyped pointer, for ``numba.carray``."""
    return builder.inttoptr(address, ir.IntType(8).as_pointer())


@emitted(lambda: types.CPointer(types.double))
def skip_doubles(builder: Any, pointer: Any, n: Any) -> Any:
    """Return a pointer to doubles moved forward by ``n`` numbers."""
    return builder.gep(pointer, [n])


@intrinsic
def exception_pending(typingctx: Any) -> Any:
    """Return whether Python code that was called from this thread has raised an exception.

    If so, no other Python code may be called until the interpreter has handled the exception.
    """
    signature = types.boolean()

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        python = context.get_python_api(builder)
        lock = python.gil_ensure()
        exception = python.err_occurred()
        python.gil_release(lock)
        return cgutils.is_not_null(builder, exception)

    return signature, codegen
