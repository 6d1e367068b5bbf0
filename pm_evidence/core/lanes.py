"""Vectors of 512 bits in compiled code, with Python's operators.

LLVM does not turn loops over eight words into vector instructions by itself. Intrinsics written
with ``Lanes`` emit vectors outright; a processor with narrower ones takes two or four for each.
"""

from dataclasses import dataclass
from typing import Any, Self

from llvmlite import ir

__all__ = ["WIDTH", "WORD", "Lanes", "full_adder", "next_lanes"]

WIDTH = 8  # words of 64 bits
WORD = ir.IntType(64)
_VECTOR = ir.VectorType(WORD, WIDTH)
_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Lanes:
    """Eight words that are worked on together, while code is being built.

    Parameters
    ----------
    builder : IRBuilder
        What emits the instructions.
    value : ir.Value
        A vector of eight 64-bit integers.
    """

    builder: Any
    value: Any

    @classmethod
    def constant(cls, builder: Any, word: int) -> Self:
        """Return eight copies of a constant."""
        return cls(builder, ir.Constant(_VECTOR, [word] * WIDTH))

    @classmethod
    def phi(cls, builder: Any) -> Self:
        """Return lanes that depend on where control came from."""
        return cls(builder, builder.phi(_VECTOR))

    @classmethod
    def load(cls, builder: Any, pointer: Any, row: Any) -> Self:
        """Return row ``row`` of an array of eight words a row."""
        value = builder.load(_row(builder, pointer, row))
        value.align = 8
        return cls(builder, value)

    def store(self, pointer: Any, row: Any) -> None:
        """Write to row ``row`` of an array of eight words a row."""
        self.builder.store(self.value, _row(self.builder, pointer, row)).align = 8

    @classmethod
    def spread(cls, builder: Any, word: Any) -> Self:
        """Return eight copies of a word."""
        empty = ir.Constant(_VECTOR, ir.Undefined)
        first = builder.insert_element(empty, word, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
        return cls(builder, builder.shuffle_vector(first, empty, zeros))

    def __and__(self, other: "Lanes") -> "Lanes":
        return Lanes(self.builder, self.builder.and_(self.value, other.value))

    def __or__(self, other: "Lanes") -> "Lanes":
        return Lanes(self.builder, self.builder.or_(self.value, other.value))

    def __xor__(self, other: "Lanes") -> "Lanes":
        return Lanes(self.builder, self.builder.xor(self.value, other.value))

    def __add__(self, other: "Lanes") -> "Lanes":
        return Lanes(self.builder, self.builder.add(self.value, other.value))

    def __invert__(self) -> "Lanes":
        return self ^ Lanes.constant(self.builder, _MASK)

    def __lshift__(self, bits: int) -> "Lanes":
        by = Lanes.constant(self.builder, bits)
        return Lanes(self.builder, self.builder.shl(self.value, by.value))

    def __rshift__(self, bits: int) -> "Lanes":
        by = Lanes.constant(self.builder, bits)
        return Lanes(self.builder, self.builder.lshr(self.value, by.value))

    def rotate(self, bits: int) -> "Lanes":
        """Return the words rotated to the left."""
        return (self << bits) | (self >> (64 - bits))

    def any(self) -> Any:
        """Return whether any bit of any word is set."""
        return self.builder.icmp_unsigned("!=", self._reduce("or"), WORD(0))

    def popcount(self) -> Any:
        """Return the number of bits set, as a word."""
        module, kind = self.builder.module, ir.FunctionType(_VECTOR, [_VECTOR])
        count = _declared(module, f"llvm.ctpop.v{WIDTH}i64", kind)
        return Lanes(self.builder, self.builder.call(count, [self.value]))._reduce("add")

    def _reduce(self, operation: str) -> Any:
        kind = ir.FunctionType(WORD, [_VECTOR])
        name = f"llvm.vector.reduce.{operation}.v{WIDTH}i64"
        return self.builder.call(_declared(self.builder.module, name, kind), [self.value])


def _row(builder: Any, pointer: Any, row: Any) -> Any:
    return builder.bitcast(
        builder.gep(pointer, [builder.mul(row, WORD(WIDTH))]), _VECTOR.as_pointer()
    )


def _declared(module: Any, name: str, kind: Any) -> Any:
    return module.globals.get(name) or ir.Function(module, kind, name)


def full_adder(a: Lanes, b: Lanes, c: Lanes) -> tuple[Lanes, Lanes]:
    """Return sum and carry of three bits, for every bit."""
    half = a ^ b
    return half ^ c, ((a ^ c) & half) ^ a


def next_lanes(generator: list[Lanes]) -> tuple[Lanes, list[Lanes]]:
    """Return the next words of eight xoshiro256++ streams (see ``random``), and their states."""
    a, b, c, d = generator
    result = (a + d).rotate(23) + a
    shifted = b << 17
    c, d = c ^ a, d ^ b
    b, a = b ^ c, a ^ d
    return result, [a, b, c ^ shifted, d.rotate(45)]
