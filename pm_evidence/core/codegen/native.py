"""Calls of compiled functions by address.

A density is a C function ``status(x*, out*, gradient*, data*)``. Kernels receive its
address as an integer, so they are compiled once for all models and cached; closing
over the function itself would compile every kernel again for every model.

Any other function of a model is a C function ``status(frame*)``, where the frame is an
array of words that holds the addresses of its arguments and results.
"""

from typing import Any

from llvmlite import ir

from pm_evidence.core.codegen.numba import cgutils, intrinsic, types

__all__ = [
    "call_density",
    "call_frame",
    "density_signature",
    "exception_pending",
    "frame_signature",
    "skip_doubles",
    "view_address",
]


def density_signature() -> Any:
    """Return the signature of a density."""
    doubles = types.CPointer(types.double)
    return types.int64(doubles, doubles, doubles, types.CPointer(types.int64))


def frame_signature() -> Any:
    """Return the signature of a function that is called with a frame."""
    return types.int64(types.CPointer(types.int64))


@intrinsic
def call_density(typingctx: Any, address: Any, x: Any, out: Any, gradient: Any, data: Any) -> Any:
    """Return ``(*address)(x, out, gradient, data)`` for contiguous arrays.

    Parameters
    ----------
    address : int64
        Address of a function with ``density_signature``.
    x : float64 array, shape (n_dim,)
        Position.
    out : float64 array, shape (2,)
        Receives log prior and log likelihood in nats.
    gradient : float64 array, shape (2, n_dim)
        Receives both gradients; not changed by a function compiled without them.
    data : int64 array
        Addresses and shapes of the arrays that the function reads.
    """
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
    """Return ``(*address)(frame)``: 0, or 1 if the function failed.

    Parameters
    ----------
    address : int64
        Address of a function with ``frame_signature``.
    frame : int64 array, contiguous
        Its arguments, in the layout of ``targets.compile.calls``.
    """
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
