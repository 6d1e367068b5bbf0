"""Vectors of sixteen numbers of single precision in compiled code, with Python's operators.

LLVM vectorises few loops by itself, see ``vectors``. Arrays should be made by `aligned`: vectors
that cross the border of a cache line are loaded at half the speed.
"""

from dataclasses import dataclass
from math import factorial, log
from typing import Any, Self

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from pm_evidence.core.codegen.numba import cgutils
from pm_evidence.core.codegen.vectors import Vector

__all__ = ["SINGLES", "Singles", "aligned"]

SINGLES = 16  # numbers in a vector
_LINE = 64  # bytes of a cache line
_KIND = ir.VectorType(ir.FloatType(), SINGLES)
_WORDS = ir.VectorType(ir.IntType(32), SINGLES)
_LOG2_E = 1.0 / log(2.0)
_ROUND = 1.5 * 2.0**23  # a sum with it holds the other number, rounded, in its lowest bits
_BIAS, _FRACTION = 127, 23  # of the exponents of single precision, and bits of the fraction
# Minus the bits of a number, plus this, are those of its reciprocal within 12 %.
_RECIPROCAL = 0x7EF311C3
_SMALLEST = -87.0  # its exponential is a normal number
# log 2 in two parts, the first of so few digits that its multiples are exact
_LOG_2, _LOG_2_REST = 0.693359375, log(2.0) - 0.693359375
# Coefficients for numbers between -log(2)/2 and log(2)/2, where the rest of the series is below the
# rounding error.
_EXP = tuple(1.0 / factorial(k) for k in range(7, -1, -1))


def aligned(shape: tuple[int, ...], dtype: Any = np.float32) -> NDArray[Any]:
    """Return an array of zeros whose first element is the first of a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.zeros(size + _LINE, np.uint8)
    start = -room.ctypes.data % _LINE
    found: NDArray[Any] = room[start : start + size].view(dtype).reshape(shape)
    return found


@dataclass(frozen=True, slots=True)
class Singles:
    """Sixteen numbers of single precision in code that is being generated.

    Parameters
    ----------
    builder : IRBuilder
        Emits the instructions.
    value : ir.Value
        A vector of floats.
    """

    builder: Any
    value: Any

    @classmethod
    def constant(cls, builder: Any, number: float) -> Self:
        """Return sixteen copies of a constant."""
        return cls(builder, ir.Constant(_KIND, [float(np.float32(number))] * SINGLES))

    @classmethod
    def spread(cls, builder: Any, number: Any) -> Self:
        """Return sixteen copies of a number of single precision."""
        zero = ir.IntType(32)(0)
        first = builder.insert_element(ir.Constant(_KIND, ir.Undefined), number, zero)
        zeros = ir.Constant(_WORDS, [0] * SINGLES)
        return cls(builder, builder.shuffle_vector(first, first, zeros))

    @classmethod
    def load(cls, builder: Any, pointer: Any) -> Self:
        """Return the sixteen numbers from a pointer on."""
        value = builder.load(builder.bitcast(pointer, _KIND.as_pointer()))
        value.align = 4
        return cls(builder, value)

    @classmethod
    def of_integers(cls, integers: Vector) -> Self:
        """Return sixteen signed integers of 32 bits as numbers."""
        return cls(integers.builder, integers.builder.sitofp(integers.value, _KIND))

    def store(self, pointer: Any) -> None:
        """Write to a pointer and what follows."""
        place = self.builder.bitcast(pointer, _KIND.as_pointer())
        self.builder.store(self.value, place).align = 4

    def __add__(self, other: "Singles") -> "Singles":
        return Singles(self.builder, self.builder.fadd(self.value, other.value))

    def __sub__(self, other: "Singles") -> "Singles":
        return Singles(self.builder, self.builder.fsub(self.value, other.value))

    def __mul__(self, other: "Singles") -> "Singles":
        return Singles(self.builder, self.builder.fmul(self.value, other.value))

    def like(self, number: float) -> "Singles":
        """Return sixteen copies of a constant."""
        return Singles.constant(self.builder, number)

    def fused(self, factor: "Singles", term: "Singles") -> "Singles":
        """Return ``self * factor + term``, rounded once if the processor does so quickly."""
        kind = ir.FunctionType(_KIND, [_KIND] * 3)
        name = f"llvm.fmuladd.v{SINGLES}f32"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return Singles(
            self.builder, self.builder.call(function, [self.value, factor.value, term.value])
        )

    def below(self, other: "Singles") -> Vector:
        """Return a mask of where this vector is smaller; false where either is NaN."""
        return Vector(self.builder, self.builder.fcmp_ordered("<", self.value, other.value))

    def where(self, mask: Vector) -> "Singles":
        """Return the numbers where a mask is set, and zeros elsewhere."""
        zeros = self.like(0.0)
        return Singles(self.builder, self.builder.select(mask.value, self.value, zeros.value))

    def larger(self, other: "Singles") -> "Singles":
        """Return the larger numbers of two vectors."""
        mask = self.below(other)
        return Singles(self.builder, self.builder.select(mask.value, other.value, self.value))

    def magnitude(self) -> "Singles":
        """Return the absolute values."""
        words = self.words() & Vector.constant(self.builder, 2**31 - 1, 32, SINGLES)
        return Singles(self.builder, self.builder.bitcast(words.value, _KIND))

    def words(self) -> Vector:
        """Return the bits of the numbers as integers."""
        return Vector(self.builder, self.builder.bitcast(self.value, _WORDS))

    def exp(self) -> "Singles":
        """Return exponentials; arguments below -87 count as -87, and must not exceed 87.

        A power of two is split off, and the rest is computed by a series, with a relative error
        below 2e-7 (Cody and Waite 1980).
        """
        x = self.larger(self.like(_SMALLEST))
        shifted = x.fused(self.like(_LOG2_E), self.like(_ROUND))
        minus = self.like(_ROUND) - shifted
        rest = minus.fused(self.like(_LOG_2_REST), minus.fused(self.like(_LOG_2), x))
        total = self.like(_EXP[0])
        for coefficient in _EXP[1:]:
            total = total.fused(rest, self.like(coefficient))
        whole = shifted.words()
        exponent = (whole + whole.like(_BIAS)) << _FRACTION
        return total * Singles(self.builder, self.builder.bitcast(exponent.value, _KIND))

    def reciprocal(self) -> "Singles":
        """Return ``1 / x`` for positive numbers between 1e-30 and 1e30, within 2e-7 of it.

        Three of Newton's steps from the difference of exponents take a third of the time of a
        division.
        """
        words = Vector.constant(self.builder, _RECIPROCAL, 32, SINGLES) - self.words()
        found = Singles(self.builder, self.builder.bitcast(words.value, _KIND))
        two, minus = self.like(2.0), self.like(0.0) - self
        for _ in range(3):
            found = found * minus.fused(found, two)
        return found

    def sigmoid(self) -> "Singles":
        """Return ``1 / (1 + exp(-x))``, with a relative error below 1e-6 above exp(-87)."""
        one = self.like(1.0)
        odds = (self.like(0.0) - self.magnitude()).exp()
        unlikely = self.below(self.like(0.0))
        upper = self.builder.select(unlikely.value, odds.value, one.value)
        return Singles(self.builder, upper) * (odds + one).reciprocal()
