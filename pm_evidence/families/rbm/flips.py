"""Flips of the units of one layer where the other layer is summed out, in single precision.

A chain holds ``s = sigmoid(x)`` for the inputs ``x`` of the units that are summed out. If unit
``j`` is flipped, the log density changes by its bias plus ``sum_i log(1 + s_i (exp(w_ij) - 1))``;
if it is switched off, bias and weights have the opposite sign. This is the log of a product, so
that no logarithm of single terms is needed. Neither is one needed for the log density itself,
``sum_i log(1 + exp(x_i)) = sum_i max(x_i, 0) + log prod_i (1 + exp(-|x_i|))``.
"""

from math import log
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from pm_evidence.core.codegen.numba import cgutils, intrinsic, njit, types
from pm_evidence.core.codegen.singles import SINGLES, Singles, aligned
from pm_evidence.core.codegen.vectors import INDEX
from pm_evidence.families.rbm.layers import Layer
from pm_evidence.families.rbm.state import unpack

__all__ = ["factor_of_flip", "flip", "gains_of", "log_sum"]

Singles32 = NDArray[np.float32]

# A product of all factors of a flip stays below the largest double up to this log, and each of its
# 64 partial products below the largest single up to the other.
_LARGEST_LOG, _LARGEST_PARTIAL_LOG = 600.0, 80.0
_PARTS = 4  # vectors of partial products
_DOUBLES = ir.VectorType(ir.DoubleType(), SINGLES)


def gains_of(summed: Layer) -> tuple[Singles32, Singles32, Singles32]:
    """Return what flips of the units of the other layer change.

    Parameters
    ----------
    summed : Layer
        The layer that is summed out.

    Returns
    -------
    on, off : ndarray of float32, shape (n_units, n_summed)
        ``exp(w) - 1`` for every weight, and for minus every weight.
    there : ndarray of float32, shape (n_summed,)
        1 for the units of the layer that exist, and 0 for the others.

    Raises
    ------
    ValueError
        If weights are so large that the products overflow.
    """
    sizes = np.abs(summed.weights.astype(float))
    partial = sizes.reshape(len(sizes), -1, _PARTS * SINGLES).sum(axis=1)
    if partial.max() > _LARGEST_PARTIAL_LOG or sizes.sum(axis=1).max() > _LARGEST_LOG:
        raise ValueError(
            f"W must have weights whose absolute values sum to at most {_LARGEST_LOG:g} nats for "
            f"each unit, and to {_LARGEST_PARTIAL_LOG:g} in each part of them, if a layer is "
            f"summed out, got {sizes.sum(axis=1).max():.4g} and {partial.max():.4g}; pass "
            "latent='full', and leave path out."
        )
    on, off = aligned(sizes.shape), aligned(sizes.shape)
    on[:], off[:] = np.expm1(summed.weights), np.expm1(-summed.weights)
    there = aligned(summed.bias.shape)
    there[:] = unpack(summed.there[None], len(there))[0]
    return on, off, there


@intrinsic
def factor_of_flip(typingctx: Any, likely: Any, gains: Any, row: Any) -> Any:
    """Return ``prod_i (1 + likely_i * gains[row, i])``.

    Parameters
    ----------
    likely : float32 array, shape (n,)
        Probabilities that the units that are summed out are on; n is a multiple of 64.
    gains : float32 array, shape (n_units, n)
        ``exp(w) - 1`` for the weights of each unit, or for minus its weights.
    row : int64
    """
    signature = types.float64(likely, gains, row)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        s, table = (context.make_array(sig.args[k])(context, builder, args[k]) for k in (0, 1))
        n = builder.extract_value(s.shape, 0)
        start = builder.mul(args[2], n)
        one = Singles.constant(builder, 1.0)
        parts = [cgutils.alloca_once_value(builder, one.value) for _ in range(_PARTS)]
        with cgutils.for_range_slice(builder, INDEX(0), n, INDEX(_PARTS * SINGLES), INDEX) as (
            first,
            _,
        ):
            for k, part in enumerate(parts):
                place = builder.add(first, INDEX(k * SINGLES))
                own = Singles.load(builder, builder.gep(s.data, [place]))
                gain = Singles.load(builder, builder.gep(table.data, [builder.add(start, place)]))
                product = Singles(builder, builder.load(part)) * own.fused(gain, one)
                builder.store(product.value, part)
        return _multiplied(builder, [builder.load(part) for part in parts])

    return signature, codegen


@intrinsic
def flip(typingctx: Any, likely: Any, gains: Any, row: Any) -> Any:
    """Renew the probabilities after the flip of a unit; see ``factor_of_flip``.

    An input that changes by ``w`` turns ``s`` into ``s exp(w) / (1 + s (exp(w) - 1))``.
    """
    signature = types.void(likely, gains, row)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        s, table = (context.make_array(sig.args[k])(context, builder, args[k]) for k in (0, 1))
        n = builder.extract_value(s.shape, 0)
        start = builder.mul(args[2], n)
        one = Singles.constant(builder, 1.0)
        with cgutils.for_range_slice(builder, INDEX(0), n, INDEX(SINGLES), INDEX) as (first, _):
            place = builder.gep(s.data, [first])
            own = Singles.load(builder, place)
            gain = Singles.load(builder, builder.gep(table.data, [builder.add(start, first)]))
            (own.fused(gain, own) * own.fused(gain, one).reciprocal()).store(place)
        return context.get_dummy_value()

    return signature, codegen


@njit
def log_sum(inputs, likely, there):
    """Return ``sum_i log(1 + exp(inputs_i))``, and set ``likely`` to their sigmoids.

    ``there`` is 1 for the units that exist, and 0 for others, whose probabilities become 0.
    """
    total, factor = _log_sum(inputs, likely, there)
    return total + log(factor)


@intrinsic
def _log_sum(typingctx: Any, inputs: Any, likely: Any, there: Any) -> Any:
    """Return the sum of positive parts and the product of ``1 + exp(-|x|)``; see ``log_sum``."""
    pair = types.UniTuple(types.float64, 2)
    signature = pair(inputs, likely, there)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        x, s, exists = (
            context.make_array(sig.args[k])(context, builder, args[k]) for k in range(3)
        )
        n = builder.extract_value(x.shape, 0)
        one, zero = (Singles.constant(builder, value) for value in (1.0, 0.0))
        product = cgutils.alloca_once_value(builder, one.value)
        sums = cgutils.alloca_once_value(builder, zero.value)
        with cgutils.for_range_slice(builder, INDEX(0), n, INDEX(SINGLES), INDEX) as (first, _):
            value, mask = (
                Singles.load(builder, builder.gep(array.data, [first])) for array in (x, exists)
            )
            (value.sigmoid() * mask).store(builder.gep(s.data, [first]))
            odds = (zero - value.magnitude()).exp() * mask
            factor = Singles(builder, builder.load(product)) * (odds + one)
            builder.store(factor.value, product)
            total = Singles(builder, builder.load(sums)) + value.larger(zero) * mask
            builder.store(total.value, sums)
        total = _reduced(builder, builder.load(sums), builder.fadd)
        found = (total, _reduced(builder, builder.load(product), builder.fmul))
        return context.make_tuple(builder, sig.return_type, found)

    return signature, codegen


def _multiplied(builder: Any, parts: list[Any]) -> Any:
    """Return the product of all numbers of some vectors, in double precision."""
    wide = [builder.fpext(part, _DOUBLES) for part in parts]
    while len(wide) > 1:
        wide = [builder.fmul(a, b) for a, b in zip(wide[::2], wide[1::2], strict=True)]
    return _folded(builder, wide[0], builder.fmul)


def _reduced(builder: Any, vector: Any, combine: Any) -> Any:
    return _folded(builder, builder.fpext(vector, _DOUBLES), combine)


def _folded(builder: Any, vector: Any, combine: Any) -> Any:
    """Combine the numbers of a vector in pairs."""
    n = SINGLES
    while n > 1:
        n //= 2
        low, high = (
            builder.shuffle_vector(
                vector, vector, ir.Constant(ir.VectorType(ir.IntType(32), n), list(range(k, k + n)))
            )
            for k in (0, n)
        )
        vector = combine(low, high)
    return builder.extract_element(vector, INDEX(0))
