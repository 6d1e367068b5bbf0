"""numba, imported when something is compiled, and calls of compiled functions by address."""

import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from types import CodeType, FunctionType, ModuleType
from typing import Any

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


def density_signature() -> Any:
    """Return the signature of a density."""
    doubles = types.CPointer(types.double)
    return types.int64(doubles, doubles, doubles, types.CPointer(types.int64))


def frame_signature() -> Any:
    """Return the signature of a function that is called with a frame."""
    return types.int64(types.CPointer(types.int64))


@intrinsic
def call_density(typingctx: Any, address: Any, x: Any, out: Any, gradient: Any, data: Any) -> Any:
    """Return ``(*address)(x, out, gradient, data)`` for contiguous arrays."""
    signature = types.int64(address, x, out, gradient, data)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointers = []
        for type_, value in zip(sig.args[1:], args[1:], strict=True):
            element = context.get_value_type(type_.dtype).as_pointer()
            pointers.append(
                builder.bitcast(context.make_array(type_)(context, builder, value).data, element)
            )
        function_type = ir.FunctionType(ir.IntType(64), [p.type for p in pointers])
        function = builder.inttoptr(args[0], function_type.as_pointer())
        return builder.call(function, pointers)

    return signature, codegen


@intrinsic
def call_frame(typingctx: Any, address: Any, frame: Any) -> Any:
    """Return ``(*address)(frame)``: 0, or 1 if the function failed."""
    signature = types.int64(address, frame)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        words = ir.IntType(64).as_pointer()
        array = context.make_array(sig.args[1])(context, builder, args[1])
        function_type = ir.FunctionType(ir.IntType(64), [words])
        function = builder.inttoptr(args[0], function_type.as_pointer())
        return builder.call(function, [builder.bitcast(array.data, words)])

    return signature, codegen


@intrinsic
def view_address(typingctx: Any, address: Any) -> Any:
    """Return the integer ``address`` as an untyped pointer, for ``numba.carray``."""
    signature = types.voidptr(address)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return signature, codegen


@intrinsic
def skip_doubles(typingctx: Any, pointer: Any, n: Any) -> Any:
    """Return a pointer to doubles moved forward by ``n`` numbers."""
    doubles = types.CPointer(types.double)
    signature = doubles(doubles, types.intp)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return signature, codegen


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
