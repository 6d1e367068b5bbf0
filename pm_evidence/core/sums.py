"""Sums in a fixed order: the same digits in every process, with vector instructions.

A compiler that may reorder sums may choose another order in each copy of a function that it makes,
and for some loops it chooses at run time, depending on the alignment of the arrays. A process that
compiled a function and one that loaded it from disk would then differ in the last digit, and soon
in the proposals that a sampler accepts. Therefore the order of the sums here is fixed: 32 partial
sums, each of every 32nd term, are added in pairs.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from pm_evidence.core.codegen.numba import cgutils, intrinsic, nb, njit, types

__all__ = ["dot", "fused", "total"]

_N = 32
_DOUBLE, _BIT, _INDEX = ir.DoubleType(), ir.IntType(1), ir.IntType(64)
_DOUBLES, _BITS, _INDICES = (ir.VectorType(kind, _N) for kind in (_DOUBLE, _BIT, _INDEX))
_ZEROS = ir.Constant(_DOUBLES, [0.0] * _N)


@intrinsic
def fused(typingctx: Any, x: Any, y: Any, z: Any) -> Any:
    """Return ``x * y + z``, rounded only once if the processor has a fast instruction for it."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _fused(builder, *args)

    return types.float64(types.float64, types.float64, types.float64), codegen


def _signature(*arrays: Any) -> Any:
    if not all(a.ndim == 1 and a.layout == "C" and a.dtype == types.float64 for a in arrays):
        raise nb.TypingError(f"sums are of contiguous vectors of float64, not of {arrays}")
    return types.float64(*arrays)


@intrinsic
def _total(typingctx: Any, x: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _summed(context, builder, sig, args, builder.fadd)

    return _signature(x), codegen


@intrinsic
def _dot(typingctx: Any, x: Any, y: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _summed(context, builder, sig, args, lambda *terms: _fused(builder, *terms))

    return _signature(x, y), codegen


@njit
def total(x: Any) -> Any:
    """Return the sum of a contiguous vector of float64."""
    return _total(x)


@njit
def dot(x: Any, y: Any) -> Any:
    """Return the inner product of two contiguous vectors of float64, of one length."""
    return _dot(x, y)


def _summed(context: Any, builder: Any, sig: Any, args: Any, add: Callable[..., Any]) -> Any:
    """Build the loop; ``add`` takes terms of every array, and the sums so far."""
    arrays = [
        context.make_array(kind)(context, builder, value)
        for kind, value in zip(sig.args, args, strict=True)
    ]
    n = cgutils.unpack_tuple(builder, arrays[0].shape)[0]
    whole = builder.and_(n, _INDEX(-_N))
    sums = cgutils.alloca_once_value(builder, _ZEROS)
    with cgutils.for_range_slice(builder, _INDEX(0), whole, _INDEX(_N), _INDEX) as (start, _):
        terms = [builder.load(_place(builder, a, start), align=8) for a in arrays]
        builder.store(add(*terms, builder.load(sums)), sums)
    inside = _below(builder, builder.sub(n, whole))
    rest = [_masked(builder, _place(builder, a, whole), inside) for a in arrays]
    return _in_pairs(builder, add(*rest, builder.load(sums)))


def _place(builder: Any, array: Any, index: Any) -> Any:
    return builder.bitcast(builder.gep(array.data, [index]), _DOUBLES.as_pointer())


def _below(builder: Any, n: Any) -> Any:
    """Return which of the numbers 0, 1, ... are below ``n``."""
    first = builder.insert_element(ir.Constant(_INDICES, ir.Undefined), n, _INDEX(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), _N), [0] * _N)
    everywhere = builder.shuffle_vector(first, first, zeros)
    return builder.icmp_signed("<", ir.Constant(_INDICES, list(range(_N))), everywhere)


def _masked(builder: Any, pointer: Any, inside: Any) -> Any:
    """Return the numbers at ``pointer`` where ``inside`` is true, and zeros elsewhere."""
    kind = ir.FunctionType(_DOUBLES, [pointer.type, ir.IntType(32), _BITS, _DOUBLES])
    load = cgutils.get_or_insert_function(
        builder.module, kind, f"llvm.masked.load.v{_N}f64.p0v{_N}f64"
    )
    return builder.call(load, [pointer, ir.IntType(32)(8), inside, _ZEROS])


def _in_pairs(builder: Any, sums: Any) -> Any:
    n = _N
    while n > 1:
        n //= 2
        low, high = (
            builder.shuffle_vector(
                sums, sums, ir.Constant(ir.VectorType(ir.IntType(32), n), list(range(k, k + n)))
            )
            for k in (0, n)
        )
        sums = builder.fadd(low, high)
    return builder.extract_element(sums, _INDEX(0))


def _fused(builder: Any, x: Any, y: Any, z: Any) -> Any:
    suffix = "f64" if x.type == _DOUBLE else f"v{_N}f64"
    kind = ir.FunctionType(x.type, [x.type] * 3)
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.{suffix}")
    return builder.call(function, [x, y, z])
