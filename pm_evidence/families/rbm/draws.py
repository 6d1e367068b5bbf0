"""Draws of binary units given their inputs, sixteen at a time.

A unit is on with probability ``sigmoid(y)``. It takes the likelier of its two values unless a
uniform number falls below ``sigmoid(-|y|)``. This number of 31 bits is compared in single
precision: the relative error of even the smallest probability is 1e-7, and the absolute error
2**-32.
"""

from typing import Any

from llvmlite import ir

from pm_evidence.core.codegen.numba import intrinsic, nb, njit, types
from pm_evidence.core.codegen.singles import SINGLES, Singles
from pm_evidence.core.codegen.vectors import INDEX, Vector
from pm_evidence.core.random import next_word
from pm_evidence.families.rbm.state import WORD

__all__ = ["GENERATOR", "SUMS", "draw_layer", "seed_lanes"]

GENERATOR = 4  # rows of sixteen words of the state of a generator
# Rows of the sums over the units that are on: of their inputs, of their biases, and of their biases
# in the reference.
SUMS = 3
_UNIT = 2.0**31


@njit
def seed_lanes(stream, lanes):
    """Seed sixteen xoshiro128++ generators from the stream of a chain.

    Parameters
    ----------
    stream : uint64 array, shape (4,)
    lanes : uint32 array, shape (4, 16)
        Receives the states.
    """
    for row in range(0, GENERATOR, 2):
        for k in range(SINGLES):
            word = next_word(stream)
            lanes[row, k] = nb.uint32(word)
            lanes[row + 1, k] = nb.uint32(word >> nb.uint64(32))
    for k in range(SINGLES):
        lanes[0, k] |= nb.uint32(1)  # all zeros is the only fixed point


@njit
def draw_layer(inputs, layer, beta, lanes, sums, words):
    """Draw the units of a layer of one chain.

    Parameters
    ----------
    inputs : float32 array, shape (n_columns,)
        Bias plus what the other layer contributes.
    layer : tuple of arrays
        Biases in the target and in the reference, float32 of shape (n_columns,), and the bits of
        the units that exist, uint64 of shape (n_columns / 64,).
    beta : float
        Inverse temperature: the log odds of a unit are ``beta`` times its input plus ``1 - beta``
        times its bias in the reference.
    lanes : uint32 array, shape (4, 16)
        Generators; see ``seed_lanes``.
    sums : float32 array, shape (3, 16)
        Room for partial sums.
    words : uint64 array, shape (n_columns / 64,)
        Receives the units.

    Returns
    -------
    total, total_bias, total_base : float
        Sums of inputs, biases, and biases in the reference, over the units that are on.
    """
    bias, base, there = layer
    sums[:] = nb.float32(0.0)
    hot, cold = nb.float32(beta), nb.float32(1.0 - beta)
    for word in range(words.size):
        first = word * WORD
        words[word] = _draw_word(inputs, bias, base, first, hot, cold, there[word], lanes, sums)
    total, total_bias, total_base = 0.0, 0.0, 0.0
    for k in range(SINGLES):
        total += nb.float64(sums[0, k])
        total_bias += nb.float64(sums[1, k])
        total_base += nb.float64(sums[2, k])
    return total, total_bias, total_base


@intrinsic
def _draw_word(
    typingctx: Any,
    inputs: Any,
    bias: Any,
    base: Any,
    first: Any,
    hot: Any,
    cold: Any,
    there: Any,
    lanes: Any,
    sums: Any,
) -> Any:
    """Draw 64 units from ``first`` on, add to the sums, and return the units as a word."""
    signature = types.uint64(inputs, bias, base, first, hot, cold, there, lanes, sums)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        arrays = [
            context.make_array(sig.args[k])(context, builder, args[k]).data for k in (0, 1, 2, 7, 8)
        ]
        *columns, generators, totals = arrays
        hot, cold = (Singles.spread(builder, args[k]) for k in (4, 5))
        state = [Vector.load(builder, generators, INDEX(16 * k), 32, SINGLES) for k in range(4)]
        places = [builder.gep(totals, [INDEX(SINGLES * k)]) for k in range(SUMS)]
        sums = [Singles.load(builder, place) for place in places]
        result = INDEX(0)
        for offset in range(0, WORD, SINGLES):
            place = builder.add(args[3], INDEX(offset))
            x, biases, reference = (
                Singles.load(builder, builder.gep(column, [place])) for column in columns
            )
            random, state = _next(state)
            exists = builder.trunc(builder.lshr(args[6], INDEX(offset)), ir.IntType(SINGLES))
            mask = Vector(builder, builder.bitcast(exists, ir.VectorType(ir.IntType(1), SINGLES)))
            on = _is_on(x.fused(hot, reference * cold), random) & mask
            sums = [s + t.where(on) for s, t in zip(sums, (x, biases, reference), strict=True)]
            bits = builder.zext(on.bits(), ir.IntType(WORD))
            result = builder.or_(result, builder.shl(bits, INDEX(offset)))
        for k, vector in enumerate(state):
            vector.store(generators, INDEX(SINGLES * k))
        for place, total in zip(places, sums, strict=True):
            total.store(place)
        return result

    return signature, codegen


def _is_on(y: Singles, random: Vector) -> Vector:
    """Return a mask of the units that are on, given their log odds and 32 random bits each."""
    odds = (y.like(0.0) - y.magnitude()).exp()
    uniform = Singles.of_integers(random >> 1) + y.like(0.5)
    unlikely = (uniform * (odds + y.like(1.0))).below(odds * y.like(_UNIT))
    return y.like(0.0).below(y) ^ unlikely


def _next(state: list[Vector]) -> tuple[Vector, list[Vector]]:
    """Return 32 random bits of each generator, and the next states."""
    a, b, c, d = state
    result = (a + d).rotate(7) + a
    shifted = b << 9
    c, d = c ^ a, d ^ b
    b, a = b ^ c, a ^ d
    return result, [a, b, c ^ shifted, d.rotate(11)]
