"""Vectors of eight words of 64 bits, in which each of 512 chains has one bit."""

from typing import Any

from pm_evidence.core.codegen.vectors import INDEX, Vector

__all__ = ["WIDTH", "WORD", "constant", "full_adder", "load", "next_lanes", "spread", "store"]

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
    a, b, c, d = generator
    result = (a + d).rotate(23) + a
    shifted = b << 17
    c, d = c ^ a, d ^ b
    b, a = b ^ c, a ^ d
    return result, [a, b, c ^ shifted, d.rotate(45)]
