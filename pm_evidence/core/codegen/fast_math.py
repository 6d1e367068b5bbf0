"""Exponentials and logarithms that can be vectorised in compiled loops.

LLVM cannot vectorise the functions of the C library. It can vectorise these, which have neither
branches nor calls. They follow Cody and Waite (1980): a power of two is split off, and the rest is
computed by a short series, with an error of one or two units in the last place.
"""

from math import factorial, inf
from typing import Any

from llvmlite import ir

from pm_evidence.core.codegen.numba import intrinsic, njit, types
from pm_evidence.core.sums import fused

__all__ = ["fast_exp", "fast_log"]

# log 2 in two parts, the first of so few digits that its multiples are exact
_LOG_2, _LOG_2_REST = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_LOG2_E = 1.4426950408889634
_ROUND = 1.5 * 2.0**52  # a sum with it holds the other number, rounded, in its lowest bits
_SMALLEST, _LARGEST = -708.0, 709.0  # bounds of numbers whose exponentials are normal numbers
_BIAS = 1023  # of the exponents of doubles
_EXP = tuple(1.0 / factorial(k) for k in range(13, -1, -1))
_ATANH = tuple(2.0 / (2 * k + 1) for k in range(10, -1, -1))


@intrinsic
def _as_word(typingctx: Any, number: Any) -> Any:
    """Return the bits of a double."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic
def _as_double(typingctx: Any, word: Any) -> Any:
    """Return the double that has these bits."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@njit
def _series(x: Any, coefficients: Any) -> Any:
    """Return a polynomial, coefficients of high powers first."""
    total = coefficients[0]
    for coefficient in coefficients[1:]:
        total = fused(total, x, coefficient)
    return total


@njit
def fast_exp(x: Any) -> Any:
    """Return ``exp(x)``; 0 below -708, infinity above 709."""
    shifted = fused(x, _LOG2_E, _ROUND)
    whole = shifted - _ROUND
    rest = fused(-whole, _LOG_2_REST, fused(-whole, _LOG_2, x))
    power = _as_double((_as_word(shifted) + _BIAS) << 52)
    found = _series(rest, _EXP) * power
    found = 0.0 if x < _SMALLEST else found
    return inf if x > _LARGEST else found


@njit
def fast_log(x: Any) -> Any:
    """Return ``log(x)`` of a positive normal number."""
    # x = 2**whole * rest with rest between 0.7 and 1.4
    word = _as_word(x)
    power = (word - _as_word(0.7071067811865476)) >> 52
    rest = _as_double(word - (power << 52))
    whole = _as_double(power + _as_word(_ROUND)) - _ROUND
    s = (rest - 1.0) / (rest + 1.0)
    return fused(whole, _LOG_2, fused(s, _series(s * s, _ATANH), whole * _LOG_2_REST))
