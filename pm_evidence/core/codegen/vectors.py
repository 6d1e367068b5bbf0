"""Vectors of small integers in compiled code, with Python's operators.

LLVM vectorises few loops by itself. Intrinsics written with ``Vector`` emit vector instructions
directly; a processor with narrower vectors uses two or more instructions for each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from llvmlite import ir

__all__ = ["INDEX", "Vector"]

INDEX = ir.IntType(64)


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector of integers in code that is being generated.

    A mask is a vector of single bits.

    Parameters
    ----------
    builder : IRBuilder
        Emits the instructions.
    value : ir.Value
        A vector of integers.
    """

    builder: Any
    value: Any

    @classmethod
    def constant(cls, builder: Any, number: int, bits: int, n: int) -> Self:
        """Return ``n`` copies of a constant."""
        return cls(builder, ir.Constant(ir.VectorType(ir.IntType(bits), n), [number] * n))

    @classmethod
    def load(cls, builder: Any, pointer: Any, index: Any, bits: int, n: int) -> Self:
        """Return the ``n`` integers of ``bits`` bits from ``pointer[index]`` on."""
        value = builder.load(_at(builder, pointer, index, ir.VectorType(ir.IntType(bits), n)))
        value.align = bits // 8
        return cls(builder, value)

    @classmethod
    def spread(cls, builder: Any, number: Any, bits: int, n: int) -> Self:
        """Return ``n`` copies of the lower bits of a number."""
        kind = ir.VectorType(ir.IntType(bits), n)
        empty, first = ir.Constant(kind, ir.Undefined), ir.Constant(ir.IntType(32), 0)
        number = builder.insert_element(empty, builder.trunc(number, kind.element), first)
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), n), [0] * n)
        return cls(builder, builder.shuffle_vector(number, empty, zeros))

    def store(self, pointer: Any, index: Any) -> None:
        """Write to ``pointer[index]`` and what follows."""
        place = _at(self.builder, pointer, index, self.value.type)
        self.builder.store(self.value, place).align = self.value.type.element.width // 8

    def like(self, number: int) -> "Vector":
        """Return a vector of the same type, filled with a constant."""
        bits, n = self.value.type.element.width, self.value.type.count
        return Vector.constant(self.builder, number % 2**bits, bits, n)

    def phi(self) -> "Vector":
        """Return a phi node of the same type, whose value depends on the preceding block."""
        return Vector(self.builder, self.builder.phi(self.value.type))

    def __and__(self, other: "Vector") -> "Vector":
        return Vector(self.builder, self.builder.and_(self.value, other.value))

    def __or__(self, other: "Vector") -> "Vector":
        return Vector(self.builder, self.builder.or_(self.value, other.value))

    def __xor__(self, other: "Vector") -> "Vector":
        return Vector(self.builder, self.builder.xor(self.value, other.value))

    def __add__(self, other: "Vector") -> "Vector":
        return Vector(self.builder, self.builder.add(self.value, other.value))

    def __sub__(self, other: "Vector") -> "Vector":
        return Vector(self.builder, self.builder.sub(self.value, other.value))

    def __mul__(self, other: "Vector") -> "Vector":
        return Vector(self.builder, self.builder.mul(self.value, other.value))

    def __invert__(self) -> "Vector":
        return self ^ self.like(-1)

    def __lshift__(self, bits: int) -> "Vector":
        return Vector(self.builder, self.builder.shl(self.value, self.like(bits).value))

    def __rshift__(self, bits: int) -> "Vector":
        return Vector(self.builder, self.builder.lshr(self.value, self.like(bits).value))

    def rotate(self, bits: int) -> "Vector":
        """Return the integers rotated to the left."""
        rotated: Vector = (self << bits) | (self >> (self.value.type.element.width - bits))
        return rotated

    def equals(self, other: "Vector") -> "Vector":
        """Return a mask of where two vectors are equal."""
        return Vector(self.builder, self.builder.icmp_unsigned("==", self.value, other.value))

    def below(self, other: "Vector") -> "Vector":
        """Return a mask of where this vector is smaller; numbers are unsigned."""
        return Vector(self.builder, self.builder.icmp_unsigned("<", self.value, other.value))

    def negative(self) -> "Vector":
        """Return a mask of the sign."""
        return Vector(self.builder, self.builder.icmp_signed("<", self.value, self.like(0).value))

    def choose(self, yes: "Vector", no: "Vector") -> "Vector":
        """Return ``yes`` where this mask is set and ``no`` elsewhere."""
        return Vector(self.builder, self.builder.select(self.value, yes.value, no.value))

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
        return Vector(self.builder, change(self.value, kind))

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
        return Vector(self.builder, self.builder.bitcast(self.value, kind))

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
        return Vector(self.builder, self.builder.call(count, [self.value]))._reduced("add")

    def part(self, first: int, n: int) -> "Vector":
        """Return ``n`` of the integers."""
        return self._shuffled(self, range(first, first + n))

    def join(self, other: "Vector") -> "Vector":
        """Return the integers followed by as many others."""
        return self._shuffled(other, range(2 * self.value.type.count))

    def interleave(self, other: "Vector") -> "Vector":
        """Return the integers interleaved with as many others."""
        n = self.value.type.count
        return self._shuffled(other, [k + side for k in range(n) for side in (0, n)])

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
        shuffled = self.builder.shuffle_vector(self.value, other.value, index)
        return Vector(self.builder, shuffled)


def _at(builder: Any, pointer: Any, index: Any, kind: Any) -> Any:
    return builder.bitcast(builder.gep(pointer, [index]), kind.as_pointer())
