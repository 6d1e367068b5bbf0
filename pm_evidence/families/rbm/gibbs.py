"""Block Gibbs and Metropolis sampling of restricted Boltzmann machines."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from math import log
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from pm_evidence.core.codegen.numba import cgutils, emitted, nb, njit, nothing, types
from pm_evidence.core.codegen.vectors import INDEX, SINGLES, Singles, aligned
from pm_evidence.core.contracts import MoveInfo, StageBatch
from pm_evidence.core.random import uniform
from pm_evidence.families.common import OrderedKernel
from pm_evidence.families.rbm.state import (
    COLUMNS,
    ENTRIES,
    GENERATOR,
    SUMS,
    TABLES,
    WORD,
    Layer,
    LogDensities,
    Units,
    draw_layer,
    multiply,
    seed_lanes,
    unpack,
)

Floats = NDArray[np.float64]
Singles32 = NDArray[np.float32]


@dataclass(frozen=True)
class Sweeps(OrderedKernel):
    """The base of kernels that move through many stages in compiled code.

    Their compiled loops read inverse temperatures in one form, shape ``(n_stages, 1)`` if members
    share them and ``(n_stages, n)`` if each has its own.
    """

    def advance(
        self, path: Any, state: Units, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Units, MoveInfo]:
        """Move every member; see ``contracts.Kernel``."""
        return self._once(path, state, np.array([beta]), streams)

    def advance_each(
        self, path: Any, state: Units, beta: Floats, streams: NDArray[np.uint64]
    ) -> tuple[Units, MoveInfo]:
        """Move member ``i`` at ``beta[i]``; see ``contracts.PerMemberKernel``."""
        if np.shape(beta) != (len(state),):
            raise ValueError(
                f"beta must have one inverse temperature for each of the {len(state)} members, got "
                f"shape {np.shape(beta)}; pass an array of shape ({len(state)},)."
            )
        return self._once(path, state, np.asarray(beta)[None], streams)

    def _once(
        self, path: Any, state: Units, beta: Floats, streams: NDArray[np.uint64]
    ) -> tuple[Units, MoveInfo]:
        state = replace(state, layers=tuple(layer.copy() for layer in state.layers))
        batch = self.advance_many(path, state, beta, streams)
        return batch.state, MoveInfo(float(batch.acceptance[0]), batch.n_evaluations)

    def advance_many(
        self, path: Any, state: Units, beta: Floats, streams: NDArray[np.uint64]
    ) -> StageBatch:
        """Move every member at every inverse temperature; see ``contracts.BatchedKernel``.

        ``beta`` has the shape ``(n_stages,)``, or ``(n_stages, n)`` with one column for each
        member.
        """
        n, n_stages = len(state), len(beta)
        columns = np.array(beta, np.float64, order="C").reshape(n_stages, -1)
        if columns.shape[1] not in (1, n):
            raise ValueError(
                f"beta must have one column for each of the {n} members, or the shape (n_stages,), "
                f"got {np.shape(beta)}; pass one of these."
            )
        # log densities before the first stage and after each
        found = np.empty((n_stages + 1, 2, n))
        found[0] = state.log_density
        acceptance, n_evaluations = self._move(path.target, state, columns, streams, found[1:])
        before, after = (LogDensities(rows[:, 0], rows[:, 1]) for rows in (found[:-1], found[1:]))
        moved = replace(state, log_density=LogDensities(*found[-1]))
        return StageBatch(moved, before, after, acceptance, n_evaluations)

    @abstractmethod
    def _move(
        self, target: Any, state: Units, beta: Floats, streams: NDArray[np.uint64], found: Floats
    ) -> tuple[Floats, int]:
        """Move in place, and fill in log densities; return acceptances and evaluations."""


@dataclass(frozen=True)
class BlockGibbs(Sweeps):
    """Draws all hidden units given the visible ones, and then all visible units given those.

    Parameters
    ----------
    n_sweeps : int
        How often both layers are drawn at each stage.
    backwards : bool
        Whether the layers are drawn in the opposite order, which makes it the time reversal.

    Notes
    -----
    Products of states with weights are sums of single precision, and weights of paths are of double
    precision. Each chain draws from its own stream only.
    """

    draws_reference = True  # the units of the reference are independent of each other

    def _move(
        self, target: Any, state: Units, beta: Floats, streams: NDArray[np.uint64], found: Floats
    ) -> tuple[Floats, int]:
        draw_layers(target.layers, state.layers, beta, self, streams, found)
        return np.ones(len(beta)), 2 * len(state) * self.n_sweeps * len(beta)


def draw_layers(
    layers: tuple[Layer, Layer],
    units: tuple[NDArray[np.uint64], ...],
    beta: Floats,
    kernel: OrderedKernel,
    streams: NDArray[np.uint64],
    found: Floats,
) -> None:
    """Draw both layers in place, in the order and as often as a kernel says."""
    n, steps = len(streams), -1 if not kernel.backwards else 1
    (first, second), ordered = layers[::steps], units[::steps]
    room = (
        aligned((TABLES, ENTRIES, COLUMNS)),
        aligned((n, first.bias.size)),
        aligned((n, second.bias.size)),
        np.empty((n, 2)),
    )
    _go((tuple(first), tuple(second)), ordered, beta, kernel.n_sweeps, streams, room, found)


def log_densities(layers: tuple[Layer, Layer], units: tuple[NDArray[np.uint64], ...]) -> Floats:
    """Return ``a'v + b'h + v'Wh`` of states, shape ``(n,)``; see ``draw_layers``."""
    (visible, hidden), (v, h) = layers, units
    out = np.empty(len(v))
    room = aligned((TABLES, ENTRIES, COLUMNS)), aligned((len(v), visible.bias.size))
    _add_up(visible.weights, visible.bias, hidden.bias, v, h, room, out)
    return out


@njit
def _add_up(weights, visible_bias, hidden_bias, v, h, room, out):
    tables, inputs = room
    multiply(h, weights, visible_bias, tables, inputs)
    for m in range(out.size):
        out[m] = _sum_of(inputs[m], v[m]) + _sum_of(hidden_bias, h[m])


@njit
def _sum_of(numbers, words):
    """Return the sum of the numbers of the units that are on."""
    total = 0.0
    for word in range(words.size):
        bits = words[word]
        for k in range(WORD):
            if (bits >> nb.uint64(k)) & nb.uint64(1):
                total += nb.float64(numbers[word * WORD + k])
    return total


@njit
def _go(layers, units, beta, n_sweeps, streams, room, found):
    """Draw the first layer given the second, and then the second given the first."""
    (first, second), (first_units, second_units) = layers, units
    tables, first_inputs, second_inputs, biases = room
    lanes = np.empty((GENERATOR, SINGLES), np.uint32)
    sums = np.empty((SUMS, SINGLES), np.float32)
    own = 1 if beta.shape[1] > 1 else 0  # steps along a row of beta from chain to chain
    for stage in range(beta.shape[0]):
        for _ in range(n_sweeps):
            multiply(second_units, first[0], first[1], tables, first_inputs)
            for m in range(streams.shape[0]):
                seed_lanes(streams[m], lanes)
                _, biases[m, 0], biases[m, 1] = draw_layer(
                    first_inputs[m], first[1:], beta[stage, own * m], lanes, sums, first_units[m]
                )
            multiply(first_units, second[0], second[1], tables, second_inputs)
            for m in range(streams.shape[0]):
                seed_lanes(streams[m], lanes)
                # the inputs of the second layer hold its biases and all weights
                total, _, base = draw_layer(
                    second_inputs[m], second[1:], beta[stage, own * m], lanes, sums, second_units[m]
                )
                found[stage, 0, m] = total + biases[m, 0]
                found[stage, 1, m] = base + biases[m, 1]


# A product of all factors of a flip stays below the largest double up to this log, and each of its
# 64 partial products below the largest single up to the other.
_LARGEST_LOG, _LARGEST_PARTIAL_LOG = 600.0, 80.0
_PARTS = 4  # vectors of partial products
_DOUBLES = ir.VectorType(ir.DoubleType(), SINGLES)


def gains_of(summed: Layer) -> tuple[Singles32, Singles32, Singles32]:
    """Return what flips of the units of the other layer change."""
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


@emitted(lambda: types.float64)
def factor_of_flip(builder, likely, gains, row):
    """Return ``prod_i (1 + likely_i * gains[row, i])``."""
    n = builder.extract_value(likely.shape, 0)
    start, one = builder.mul(row, n), Singles.constant(builder, 1.0)
    parts = [cgutils.alloca_once_value(builder, one.value) for _ in range(_PARTS)]
    step = INDEX(_PARTS * SINGLES)
    with cgutils.for_range_slice(builder, INDEX(0), n, step, INDEX) as (first, _):
        for k, part in enumerate(parts):
            place = builder.add(first, INDEX(k * SINGLES))
            own = Singles.load(builder, builder.gep(likely.data, [place]))
            gain = Singles.load(builder, builder.gep(gains.data, [builder.add(start, place)]))
            product = Singles(builder, builder.load(part)) * own.fused(gain, one)
            builder.store(product.value, part)
    return _multiplied(builder, [builder.load(part) for part in parts])


@emitted(nothing)
def flip(builder, likely, gains, row):
    """Renew the probabilities after the flip of a unit; see ``factor_of_flip``.

    An input that changes by ``w`` turns ``s`` into ``s exp(w) / (1 + s (exp(w) - 1))``.
    """
    n = builder.extract_value(likely.shape, 0)
    start, one = builder.mul(row, n), Singles.constant(builder, 1.0)
    with cgutils.for_range_slice(builder, INDEX(0), n, INDEX(SINGLES), INDEX) as (first, _):
        place = builder.gep(likely.data, [first])
        own = Singles.load(builder, place)
        gain = Singles.load(builder, builder.gep(gains.data, [builder.add(start, first)]))
        (own.fused(gain, own) * own.fused(gain, one).reciprocal()).store(place)


@njit
def log_sum(inputs, likely, there):
    """Return ``sum_i log(1 + exp(inputs_i))``, and set ``likely`` to their sigmoids.

    ``there`` is 1 for the units that exist, and 0 for others, whose probabilities become 0.
    """
    total, factor = _log_sum(inputs, likely, there)
    return total + log(factor)


@emitted(lambda: types.UniTuple(types.float64, 2))
def _log_sum(builder, inputs, likely, there):
    """Return the sum of positive parts and the product of ``1 + exp(-|x|)``; see ``log_sum``."""
    n = builder.extract_value(inputs.shape, 0)
    one, zero = (Singles.constant(builder, value) for value in (1.0, 0.0))
    product = cgutils.alloca_once_value(builder, one.value)
    sums = cgutils.alloca_once_value(builder, zero.value)
    with cgutils.for_range_slice(builder, INDEX(0), n, INDEX(SINGLES), INDEX) as (first, _):
        value, mask = (
            Singles.load(builder, builder.gep(array.data, [first])) for array in (inputs, there)
        )
        (value.sigmoid() * mask).store(builder.gep(likely.data, [first]))
        odds = (zero - value.magnitude()).exp() * mask
        factor = Singles(builder, builder.load(product)) * (odds + one)
        builder.store(factor.value, product)
        total = Singles(builder, builder.load(sums)) + value.larger(zero) * mask
        builder.store(total.value, sums)
    total = _reduced(builder, builder.load(sums), builder.fadd)
    found = total, _reduced(builder, builder.load(product), builder.fmul)
    return cgutils.pack_array(builder, found)


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


_TOGETHER = 8  # chains whose probabilities stay in the fastest cache


@dataclass(frozen=True)
class UnitMetropolis(Sweeps):
    """Proposes to flip each unit of the layer in turn, and accepts by Metropolis' rule.

    Habeck (2017), section 6.3. The inputs of the units that are summed out are computed anew after
    every sweep, so that rounding errors of single precision do not accumulate.
    """

    def _move(
        self, target: Any, state: Units, beta: Floats, streams: NDArray[np.uint64], found: Floats
    ) -> tuple[Floats, int]:
        biases, n = np.stack([target.kept_bias, target.base_bias]), len(state)
        order = np.arange(biases.shape[1])[:: -1 if self.backwards else 1]
        size, accepted = target.summed_layer.bias.size, np.zeros(len(beta))
        room = aligned((TABLES, ENTRIES, COLUMNS)), aligned((n, size)), aligned((n, size))
        summed, words = tuple(target.summed_layer)[:2], state.layers[0]
        _go_flip(
            summed, target.gains, biases, order, words, beta, self.n_sweeps, streams, room, found,
            accepted,
        )  # fmt: skip
        attempts = n * len(order) * self.n_sweeps
        return accepted / attempts, attempts * len(beta)


@njit
def _go_flip(summed, gains, biases, order, words, beta, n_sweeps, streams, room, found, accepted):
    """Move all chains in place through some stages."""
    weights, bias = summed
    on_gains, off_gains, there = gains
    tables, inputs, likely = room
    n = streams.shape[0]
    own = 1 if beta.shape[1] > 1 else 0  # steps along a row of beta from chain to chain
    multiply(words, weights, bias, tables, inputs)
    for m in range(n):
        log_sum(inputs[m], likely[m], there)
    for stage in range(beta.shape[0]):
        for _ in range(n_sweeps):
            for first in range(0, n, _TOGETHER):
                for unit in order:
                    word, bit = unit // WORD, nb.uint64(1) << nb.uint64(unit % WORD)
                    for m in range(first, min(first + _TOGETHER, n)):
                        on = words[m, word] & bit != nb.uint64(0)
                        table, sign = (off_gains, -1.0) if on else (on_gains, 1.0)
                        hot = beta[stage, own * m]
                        change = (
                            hot
                            * (log(factor_of_flip(likely[m], table, unit)) + sign * biases[0, unit])
                            + (1.0 - hot) * sign * biases[1, unit]
                        )
                        if change >= 0.0 or log(uniform(streams[m])) < change:
                            flip(likely[m], table, unit)
                            words[m, word] ^= bit
                            accepted[stage] += 1.0
            multiply(words, weights, bias, tables, inputs)
            for m in range(n):
                found[stage, 0, m] = log_sum(inputs[m], likely[m], there)
        for m in range(n):
            found[stage, 1, m] = 0.0
            for unit in range(order.size):
                bit = (words[m, unit // WORD] >> nb.uint64(unit % WORD)) & nb.uint64(1)
                if bit != nb.uint64(0):
                    found[stage, 0, m] += biases[0, unit]
                    found[stage, 1, m] += biases[1, unit]
