"""Vectors in compiled code against the same operations in numpy, lane by lane."""

import numba as nb
import numpy as np
import pytest
from numba.core import types
from numba.extending import intrinsic

from pm_evidence.core.codegen import vectors as lanes
from pm_evidence.core.codegen.vectors import INDEX, Vector
from pm_evidence.core.random import next_word, streams

N = 8
RNG = np.random.default_rng(1)
A, B = RNG.integers(0, 2**64, (2, N), dtype=np.uint64)
A[0], B[0], B[1] = 0, 0, A[1]  # a pair of zeros, and a pair of equal numbers
WORDS = types.Array(types.uint64, 1, "C")


def compiled(operation):
    """A function of three arrays of eight words that writes what an operation of two returns."""

    @intrinsic
    def call(context, a, b, out):
        def build(context, builder, signature, arguments):
            data = [
                context.make_array(kind)(context, builder, value).data
                for kind, value in zip(signature.args, arguments, strict=True)
            ]
            a, b = (Vector.load(builder, pointer, INDEX(0), 64, N) for pointer in data[:2])
            operation(a, b).store(data[2], INDEX(0))
            return context.get_dummy_value()

        return types.void(WORDS, WORDS, WORDS), build

    @nb.njit
    def run(a, b, out):
        call(a, b, out)

    def of(a, b):
        out = np.zeros(N, np.uint64)
        run(a, b, out)
        return out

    return of


def high_product(a, b):
    return np.array([(int(x) * int(y)) >> 64 for x, y in zip(a, b, strict=True)], np.uint64)


def saturated(a, b):
    return np.minimum(a >> np.uint64(20), np.uint64(2**32 - 1))


U = np.uint64
OPERATIONS = {
    "and": (lambda a, b: a & b, lambda a, b: a & b),
    "or": (lambda a, b: a | b, lambda a, b: a | b),
    "xor": (lambda a, b: a ^ b, lambda a, b: a ^ b),
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "subtract": (lambda a, b: a - b, lambda a, b: a - b),
    "multiply": (lambda a, b: a * b, lambda a, b: a * b),
    "invert": (lambda a, b: ~a, lambda a, b: ~a),
    "left": (lambda a, b: a << 5, lambda a, b: a << U(5)),
    "right": (lambda a, b: a >> 5, lambda a, b: a >> U(5)),
    "rotate": (lambda a, b: a.rotate(23), lambda a, b: (a << U(23)) | (a >> U(41))),
    "smaller": (lambda a, b: a.smaller(b), np.minimum),
    "equals": (
        lambda a, b: a.equals(b).choose(a.like(1), a.like(0)),
        lambda a, b: (a == b).astype(U),
    ),
    "negative": (
        lambda a, b: a.negative().choose(b, a),
        lambda a, b: np.where(a.view(np.int64) < 0, b, a),
    ),
    "high_product": (lambda a, b: a.high_product(b), high_product),
    "saturated": (lambda a, b: (a >> 20).saturated(32).resized(64), saturated),
    "halves": (lambda a, b: b.part(4, 4).join(a.part(0, 4)), lambda a, b: np.r_[b[4:], a[:4]]),
    "recut": (
        lambda a, b: (a.recut(8) + b.recut(8)).recut(64),
        lambda a, b: (a.view(np.uint8) + b.view(np.uint8)).view(U),
    ),
    "popcount": (
        lambda a, b: Vector.spread(a.builder, a.popcount(), 64, N),
        lambda a, b: np.full(N, np.bitwise_count(a).sum(), U),
    ),
    "sum of three bits": (
        lambda a, b: lanes.full_adder(a, b, a.like(-1))[0],
        lambda a, b: ~(a ^ b),
    ),
    "carry of three bits": (
        lambda a, b: lanes.full_adder(a, b, a.like(-1))[1],
        lambda a, b: a | b,
    ),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_those_of_numpy(name):
    """Kernels of lattices are written in them: a wrong shift would move the wrong spins."""
    vector, plain = OPERATIONS[name]
    np.testing.assert_array_equal(compiled(vector)(A, B), plain(A, B))


def test_lanes_are_the_streams_of_single_chains():
    """Eight xoshiro256++ generators side by side draw what each draws alone, word by word."""

    def third(a, b):
        generator = [a, b, a ^ b, a & b]
        for _ in range(3):
            result, generator = lanes.next_lanes(generator)
        return result

    def alone(a, b):
        stream = np.array([a, b, a ^ b, a & b])
        return [next_word(stream) for _ in range(3)][-1]

    a, b = streams(np.random.SeedSequence(3), N)[:, :2].T.copy()
    expected = np.array([alone(*each) for each in zip(a, b, strict=True)], np.uint64)
    np.testing.assert_array_equal(compiled(third)(a, b), expected)
