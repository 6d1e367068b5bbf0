"""Vectors of small numbers and of bits in compiled code, with Python's operators."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import factorial, inf, log
from typing import Any, Self

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.numerics import fused, multiply_add, spread_over, vector_at

INDEX = ir.IntType(64)


def _operator(instruction: str) -> Callable[[Any, Any], Any]:
    """Return the operator of two vectors that an instruction of the builder carries out."""

    def operator(self: Any, other: Any) -> Any:
        return self.made(getattr(self.builder, instruction)(self.value, other.value))

    return operator


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector of integers in code that is being generated.

    A mask is a vector of single bits.
    """

    builder: Any  # emits the instructions
    value: Any  # A vector of integers

    @classmethod
    def constant(cls, builder: Any, number: int, bits: int, n: int) -> Self:
        """Return ``n`` copies of a constant."""
        return cls(builder, ir.Constant(ir.VectorType(ir.IntType(bits), n), [number] * n))

    @classmethod
    def load(cls, builder: Any, pointer: Any, index: Any, bits: int, n: int) -> Self:
        """Return the ``n`` integers of ``bits`` bits from ``pointer[index]`` on."""
        kind = ir.VectorType(ir.IntType(bits), n)
        return cls(builder, builder.load(vector_at(builder, pointer, index, kind), align=bits // 8))

    @classmethod
    def spread(cls, builder: Any, number: Any, bits: int, n: int) -> Self:
        """Return ``n`` copies of the lower bits of a number."""
        kind = ir.VectorType(ir.IntType(bits), n)
        return cls(builder, spread_over(builder, builder.trunc(number, kind.element), kind))

    def store(self, pointer: Any, index: Any) -> None:
        """Write to ``pointer[index]`` and what follows."""
        place = vector_at(self.builder, pointer, index, self.value.type)
        self.builder.store(self.value, place, align=self.value.type.element.width // 8)

    def made(self, value: Any) -> "Vector":
        """Return another vector of the same code."""
        return Vector(self.builder, value)

    def like(self, number: int) -> "Vector":
        """Return a vector of the same type, filled with a constant."""
        bits, n = self.value.type.element.width, self.value.type.count
        return Vector.constant(self.builder, number % 2**bits, bits, n)

    __and__, __or__, __xor__ = _operator("and_"), _operator("or_"), _operator("xor")
    __add__, __sub__, __mul__ = _operator("add"), _operator("sub"), _operator("mul")

    def __invert__(self) -> "Vector":
        inverted: Vector = self ^ self.like(-1)
        return inverted

    def __lshift__(self, bits: int) -> "Vector":
        return self.made(self.builder.shl(self.value, self.like(bits).value))

    def __rshift__(self, bits: int) -> "Vector":
        return self.made(self.builder.lshr(self.value, self.like(bits).value))

    def rotate(self, bits: int) -> "Vector":
        """Return the integers rotated to the left."""
        rotated: Vector = (self << bits) | (self >> (self.value.type.element.width - bits))
        return rotated

    def equals(self, other: "Vector") -> "Vector":
        """Return a mask of where two vectors are equal."""
        return self.made(self.builder.icmp_unsigned("==", self.value, other.value))

    def below(self, other: "Vector") -> "Vector":
        """Return a mask of where this vector is smaller; numbers are unsigned."""
        return self.made(self.builder.icmp_unsigned("<", self.value, other.value))

    def negative(self) -> "Vector":
        """Return a mask of the sign."""
        return self.made(self.builder.icmp_signed("<", self.value, self.like(0).value))

    def choose[V: (Vector, Singles)](self, yes: V, no: V) -> V:
        """Return ``yes`` where this mask is set and ``no`` elsewhere."""
        return yes.made(self.builder.select(self.value, yes.value, no.value))

    def smaller(self, other: "Vector") -> "Vector":
        """Return the smaller numbers of two vectors; numbers are unsigned."""
        return self.below(other).choose(self, other)

    def high_product(self, other: "Vector") -> "Vector":
        """Return the upper halves of the products."""
        bits = self.value.type.element.width
        halves: Vector = ((self.resized(2 * bits) * other.resized(2 * bits)) >> bits).resized(bits)
        return halves

    def resized(self, bits: int) -> "Vector":
        """Return the same numbers in more bits, or their lower bits."""
        kind = ir.VectorType(ir.IntType(bits), self.value.type.count)
        grow = bits > self.value.type.element.width
        change = self.builder.zext if grow else self.builder.trunc
        return self.made(change(self.value, kind))

    def saturated(self, bits: int) -> "Vector":
        """Return the numbers in fewer bits, where larger ones become the largest that fits.

        The compiler would move a plain truncation back into the selects and products that the
        numbers come from, and these would no longer be single instructions.
        """
        return self.smaller(self.like(2**bits - 1)).resized(bits)

    def recut(self, bits: int) -> "Vector":
        """Return the same bits as more or fewer integers."""
        count = self.value.type.count * self.value.type.element.width // bits
        kind = ir.VectorType(ir.IntType(bits), count)
        return self.made(self.builder.bitcast(self.value, kind))

    def bits(self) -> Any:
        """Return the bits of this mask as one integer."""
        return self.builder.bitcast(self.value, ir.IntType(self.value.type.count))

    def any(self) -> Any:
        """Return whether any bit of any of the integers is set."""
        return self.builder.icmp_unsigned("!=", self._reduced("or"), self.value.type.element(0))

    def popcount(self) -> Any:
        """Return the number of bits set in all of the integers."""
        kind = ir.FunctionType(self.value.type, [self.value.type])
        count = self._declared("llvm.ctpop", kind)
        return self.made(self.builder.call(count, [self.value]))._reduced("add")

    def part(self, first: int, n: int) -> "Vector":
        """Return ``n`` of the integers."""
        return self._shuffled(self, range(first, first + n))

    def join(self, other: "Vector") -> "Vector":
        """Return the integers followed by as many others."""
        return self._shuffled(other, range(2 * self.value.type.count))

    def _reduced(self, operation: str) -> Any:
        kind = ir.FunctionType(self.value.type.element, [self.value.type])
        reduce = self._declared(f"llvm.vector.reduce.{operation}", kind)
        return self.builder.call(reduce, [self.value])

    def _declared(self, name: str, kind: Any) -> Any:
        """Return one of LLVM's own functions of such vectors."""
        module = self.builder.module
        name = f"{name}.v{self.value.type.count}i{self.value.type.element.width}"
        return module.globals.get(name) or ir.Function(module, kind, name)

    def _shuffled(self, other: "Vector", order: Sequence[int]) -> "Vector":
        index = ir.Constant(ir.VectorType(ir.IntType(32), len(order)), list(order))
        return self.made(self.builder.shuffle_vector(self.value, other.value, index))


WIDTH = 8  # words of 64 bits
WORD = INDEX


def constant(builder: Any, word: int) -> Vector:
    """Return eight copies of a constant."""
    return Vector.constant(builder, word, 64, WIDTH)


def spread(builder: Any, word: Any) -> Vector:
    """Return eight copies of a word."""
    return Vector.spread(builder, word, 64, WIDTH)


def load(builder: Any, pointer: Any, row: Any) -> Vector:
    """Return row ``row`` of an array with eight words per row."""
    return Vector.load(builder, pointer, builder.mul(row, WORD(WIDTH)), 64, WIDTH)


def store(lanes: Vector, pointer: Any, row: Any) -> None:
    """Write to row ``row`` of an array with eight words per row."""
    lanes.store(pointer, lanes.builder.mul(row, WORD(WIDTH)))


def full_adder(a: Vector, b: Vector, c: Vector) -> tuple[Vector, Vector]:
    """Return sum and carry of three bits, for every bit."""
    half = a ^ b
    return half ^ c, ((a ^ c) & half) ^ a


def next_lanes(generator: list[Vector]) -> tuple[Vector, list[Vector]]:
    """Return the next words of eight xoshiro256++ streams (see ``random``), and their states."""
    return _next(generator, 23, 17, 45)


def next_words(generator: list[Vector]) -> tuple[Vector, list[Vector]]:
    """Return the next words of xoshiro128++ generators of 32 bits, and their states."""
    return _next(generator, 7, 9, 11)


def _next(
    generator: list[Vector], turn: int, shift: int, last_turn: int
) -> tuple[Vector, list[Vector]]:
    a, b, c, d = generator
    result = (a + d).rotate(turn) + a
    shifted = b << shift
    c, d = c ^ a, d ^ b
    b, a = b ^ c, a ^ d
    return result, [a, b, c ^ shifted, d.rotate(last_turn)]


SINGLES = 16  # numbers in a vector
_LINE = 64  # bytes of a cache line
_KIND = ir.VectorType(ir.FloatType(), SINGLES)
_WORDS = ir.VectorType(ir.IntType(32), SINGLES)
_SINGLE_LOG2_E = 1.0 / log(2.0)
_SINGLE_ROUND = 1.5 * 2.0**23  # a sum with it holds the other number, rounded, in its lowest bits
_SINGLE_BIAS, _FRACTION = 127, 23  # of the exponents of single precision, and bits of the fraction
# Minus the bits of a number, plus this, are those of its reciprocal within 12 %.
_RECIPROCAL = 0x7EF311C3
_SINGLE_SMALLEST = -87.0  # its exponential is a normal number
# log 2 in two parts, the first of so few digits that its multiples are exact
_SINGLE_LOG_2, _SINGLE_LOG_2_REST = 0.693359375, log(2.0) - 0.693359375
# Coefficients for numbers between -log(2)/2 and log(2)/2, where the rest of the series is below the
# rounding error.
_SINGLE_EXP = tuple(1.0 / factorial(k) for k in range(7, -1, -1))


def aligned(shape: tuple[int, ...], dtype: Any = np.float32) -> NDArray[Any]:
    """Return an array of zeros whose first element is the first of a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.zeros(size + _LINE, np.uint8)
    start = -room.ctypes.data % _LINE
    found: NDArray[Any] = room[start : start + size].view(dtype).reshape(shape)
    return found


@dataclass(frozen=True, slots=True)
class Singles:
    """Sixteen numbers of single precision in code that is being generated."""

    builder: Any  # emits the instructions
    value: Any  # A vector of floats

    @classmethod
    def constant(cls, builder: Any, number: float) -> Self:
        """Return sixteen copies of a constant."""
        return cls(builder, ir.Constant(_KIND, [float(np.float32(number))] * SINGLES))

    @classmethod
    def spread(cls, builder: Any, number: Any) -> Self:
        """Return sixteen copies of a number of single precision."""
        return cls(builder, spread_over(builder, number, _KIND))

    @classmethod
    def load(cls, builder: Any, pointer: Any) -> Self:
        """Return the sixteen numbers from a pointer on."""
        return cls(builder, builder.load(builder.bitcast(pointer, _KIND.as_pointer()), align=4))

    @classmethod
    def of_integers(cls, integers: Vector) -> Self:
        """Return sixteen signed integers of 32 bits as numbers."""
        return cls(integers.builder, integers.builder.sitofp(integers.value, _KIND))

    @classmethod
    def of_words(cls, words: Vector) -> Self:
        """Return the numbers that have these bits."""
        return cls(words.builder, words.builder.bitcast(words.value, _KIND))

    def store(self, pointer: Any) -> None:
        """Write to a pointer and what follows."""
        place = self.builder.bitcast(pointer, _KIND.as_pointer())
        self.builder.store(self.value, place, align=4)

    def made(self, value: Any) -> "Singles":
        """Return other numbers of the same code."""
        return Singles(self.builder, value)

    __add__, __sub__, __mul__ = _operator("fadd"), _operator("fsub"), _operator("fmul")

    def like(self, number: float) -> "Singles":
        """Return sixteen copies of a constant."""
        return Singles.constant(self.builder, number)

    def fused(self, factor: "Singles", term: "Singles") -> "Singles":
        """Return ``self * factor + term``, rounded once if the processor does so quickly."""
        return self.made(multiply_add(self.builder, self.value, factor.value, term.value))

    def below(self, other: "Singles") -> Vector:
        """Return a mask of where this vector is smaller; false where either is NaN."""
        return Vector(self.builder, self.builder.fcmp_ordered("<", self.value, other.value))

    def where(self, mask: Vector) -> "Singles":
        """Return the numbers where a mask is set, and zeros elsewhere."""
        return mask.choose(self, self.like(0.0))

    def larger(self, other: "Singles") -> "Singles":
        """Return the larger numbers of two vectors."""
        return self.below(other).choose(other, self)

    def magnitude(self) -> "Singles":
        """Return the absolute values."""
        words = self.words()
        return Singles.of_words(words & words.like(2**31 - 1))

    def words(self) -> Vector:
        """Return the bits of the numbers as integers."""
        return Vector(self.builder, self.builder.bitcast(self.value, _WORDS))

    def exp(self) -> "Singles":
        """Return exponentials; arguments below -87 count as -87, and must not exceed 87.

        A power of two is split off, and the rest is computed by a series, with a relative error
        below 2e-7 (Cody and Waite 1980).
        """
        x = self.larger(self.like(_SINGLE_SMALLEST))
        shifted = x.fused(self.like(_SINGLE_LOG2_E), self.like(_SINGLE_ROUND))
        minus = self.like(_SINGLE_ROUND) - shifted
        rest = minus.fused(self.like(_SINGLE_LOG_2_REST), minus.fused(self.like(_SINGLE_LOG_2), x))
        total = self.like(_SINGLE_EXP[0])
        for coefficient in _SINGLE_EXP[1:]:
            total = total.fused(rest, self.like(coefficient))
        whole = shifted.words()
        exponent = (whole + whole.like(_SINGLE_BIAS)) << _FRACTION
        found: Singles = total * Singles.of_words(exponent)
        return found

    def reciprocal(self) -> "Singles":
        """Return ``1 / x`` for positive numbers between 1e-30 and 1e30, within 2e-7 of it.

        Three of Newton's steps from the difference of exponents take a third of the time of a
        division.
        """
        words = self.words()
        found = Singles.of_words(words.like(_RECIPROCAL) - words)
        two, minus = self.like(2.0), self.like(0.0) - self
        for _ in range(3):
            found = found * minus.fused(found, two)
        return found

    def sigmoid(self) -> "Singles":
        """Return ``1 / (1 + exp(-x))``, with a relative error below 1e-6 above exp(-87)."""
        one, zero = self.like(1.0), self.like(0.0)
        odds: Singles = (zero - self.magnitude()).exp()
        upper = self.below(zero).choose(odds, one)
        sigmoid: Singles = upper * (odds + one).reciprocal()
        return sigmoid


# log 2 in two parts, the first of so few digits that its multiples are exact
_LOG_2, _LOG_2_REST = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_LOG2_E = 1.4426950408889634
_ROUND = 1.5 * 2.0**52  # a sum with it holds the other number, rounded, in its lowest bits
_SMALLEST, _LARGEST = -708.0, 709.0  # bounds of numbers whose exponentials are normal numbers
_BIAS = 1023  # of the exponents of doubles
_EXP = tuple(1.0 / factorial(k) for k in range(13, -1, -1))
_ATANH = tuple(2.0 / (2 * k + 1) for k in range(10, -1, -1))


@njit
def _as_word(number: Any) -> Any:
    """Return the bits of a double."""
    return np.float64(number).view(np.int64)


@njit
def _as_double(word: Any) -> Any:
    """Return the double that has these bits."""
    return np.int64(word).view(np.float64)


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
