"""Restricted Boltzmann machines, one bit per unit: populations, path, and compiled moves."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from math import log
from typing import Any, NamedTuple, Self

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from pm_evidence.core.codegen.numba import cgutils, emitted, nb, njit, nothing, types
from pm_evidence.core.codegen.vectors import INDEX, SINGLES, Singles, Vector, aligned, next_words
from pm_evidence.core.contracts import MoveInfo, StageBatch
from pm_evidence.core.random import next_word, uniform
from pm_evidence.families.native import Batched, LinearPath, OrderedKernel
from pm_evidence.targets.layout import Rows

Bits = NDArray[np.uint8]
Floats = NDArray[np.float64]
Singles32 = NDArray[np.float32]
Words = NDArray[np.uint64]


WORD = 64  # units of a word


class LogDensities(NamedTuple):
    """The two numbers that weights on the geometric path need."""

    # shape (..., n): log of the unnormalised densities of target and reference at every state, in
    # nats
    target: Floats
    base: Floats


@dataclass(frozen=True, slots=True)
class Units(Rows):
    """A population of states of one layer or of both, with their log densities."""

    # shape (n, n_words): units of each layer, 64 in a word; bits beyond the last unit are 0
    layers: tuple[Words, ...]
    sizes: tuple[int, ...]  # number of units of each layer
    log_density: LogDensities  # with arrays of shape (n,)
    rows = ("layers", "log_density")

    def __len__(self) -> int:
        return len(self.layers[0])

    def copy(self) -> Self:
        """Return a population that can be moved in place."""
        return replace(self, layers=tuple(words.copy() for words in self.layers))

    def to_draws(self) -> Bits:
        """Return the units of all layers in their order, shape ``(n, n_units)``."""
        return np.hstack(
            [unpack(words, n) for words, n in zip(self.layers, self.sizes, strict=True)]
        )


def pack(rows: NDArray[Any]) -> Words:
    """Return units of 0 and 1, shape ``(n, n_units)``, as words, shape ``(n, n_words)``."""
    n, n_units = rows.shape
    full = np.zeros((n, -(-n_units // WORD) * WORD), np.uint8)
    full[:, :n_units] = rows
    return np.packbits(full, axis=1, bitorder="little").view("<u8").astype(np.uint64, copy=False)


def unpack(words: Words, n_units: int) -> Bits:
    """Return the units of words, shape ``(n, n_units)``; the inverse of ``pack``."""
    octets = np.ascontiguousarray(words.astype("<u8", copy=False)).view(np.uint8)
    return np.unpackbits(octets, axis=1, count=n_units, bitorder="little")


@dataclass(frozen=True)
class BaseRatePath(LinearPath):
    """``log f_beta(x) = (1 - beta) (c'x - log Z_0) + beta log f(x)``.

    The state ``x`` consists of the units of both layers, ``log f(x) = a'v + b'h + v'Wh``, or of one
    layer alone, where the other is summed out. The units of the reference are independent, and
    their biases ``c`` give its base rates (Salakhutdinov and Murray 2008). The reference is
    normalised, so that the work of paths gives log Z itself.
    """

    target: Any  # the machine

    @property
    def log_base_z(self) -> float:
        """Log of the normalising constant ``Z_0`` of the reference, in nats."""
        return float(np.logaddexp(0.0, self.target.base_bias).sum())

    def draw(self, n: int, seed: np.random.SeedSequence) -> Units:
        """Return ``n`` independent states of independent units."""
        rates = 1.0 / (1.0 + np.exp(-self.target.base_bias))
        draws = np.random.default_rng(seed).random((n, len(rates))) < rates
        return self.at(draws.astype(np.uint8))

    def at(self, draws: NDArray[Any]) -> Units:
        """Return the population of some states, shape ``(n, n_units)``, layer after layer."""
        target = self.target
        ends = np.cumsum(target.sizes)[:-1]
        layers = tuple(pack(rows) for rows in np.split(draws, ends, axis=1))
        log_density = LogDensities(target.log_density(draws), draws @ target.base_bias)
        return Units(layers, target.sizes, log_density)

    def energy(self, state: Any, beta: Any) -> Floats:
        """Return minus the derivative of the log density by beta, shape ``(n,)``, in nats."""
        found = state.log_density if isinstance(state, Units) else state
        energy: Floats = found.base - self.log_base_z - found.target
        return energy

    def order(self, state: Units) -> NDArray[np.int64]:
        """Return the order of the log densities of the target."""
        return np.argsort(state.log_density.target, kind="stable")


class Layer(NamedTuple):
    """How a layer of units depends on the other one.

    Numbers of units are rounded up to multiples of 64; units beyond the last have no weights.
    """

    # shape (n_other, n_units): weights between the units of the other layer and those of this one
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]  # shape (n_units,): biases in the target and in the reference
    base: NDArray[np.float32]
    there: NDArray[np.uint64]  # shape (n_units / 64,): bits of the units that exist


def layer_of(weights: NDArray[Any], bias: NDArray[Any], base: NDArray[Any]) -> Layer:
    """Return a layer with weights of shape ``(n_other, n_units)`` and biases ``(n_units,)``."""
    n_other, n_units = weights.shape
    rows, columns = (-(-n // WORD) * WORD for n in weights.shape)
    full, biases, bases = aligned((rows, columns)), aligned((columns,)), aligned((columns,))
    full[:n_other, :n_units], biases[:n_units], bases[:n_units] = weights, bias, base
    return Layer(full, biases, bases, pack(np.ones((1, n_units), np.uint8))[0])


def blended(first: Layer, last: Layer, share: float) -> Layer:
    """Return the layer whose weights and biases are a share of the way between those of two."""
    weights, bias = aligned(first.weights.shape), aligned(first.bias.shape)
    for out, a, b in ((weights, first.weights, last.weights), (bias, first.bias, last.bias)):
        np.multiply(b - a, np.float32(share), out=out)
        out += a
    return Layer(weights, bias, first.base, first.there)


GENERATOR = 4  # rows of sixteen words of the state of a generator
# Rows of the sums over the units that are on: of their inputs, of their biases, and of their biases
# in the reference.
SUMS = 3
_UNIT = 2.0**31


@njit
def seed_lanes(stream, lanes):
    """Seed sixteen xoshiro128++ generators from the stream of a chain."""
    for row in range(0, GENERATOR, 2):
        for k in range(SINGLES):
            word = next_word(stream)
            lanes[row, k] = nb.uint32(word)
            lanes[row + 1, k] = nb.uint32(word >> nb.uint64(32))
    for k in range(SINGLES):
        lanes[0, k] |= nb.uint32(1)  # all zeros is the only fixed point


@njit
def draw_layer(inputs, layer, beta, lanes, sums, words):
    """Draw the units of a layer of one chain."""
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


@emitted(lambda: types.uint64)
def _draw_word(builder, inputs, bias, base, first, hot, cold, there, lanes, sums):
    """Draw 64 units from ``first`` on, add to the sums, and return the units as a word."""
    hot, cold = Singles.spread(builder, hot), Singles.spread(builder, cold)
    state = [Vector.load(builder, lanes.data, INDEX(16 * k), 32, SINGLES) for k in range(4)]
    places = [builder.gep(sums.data, [INDEX(SINGLES * k)]) for k in range(SUMS)]
    totals = [Singles.load(builder, place) for place in places]
    result = INDEX(0)
    for offset in range(0, WORD, SINGLES):
        place = builder.add(first, INDEX(offset))
        x, biases, reference = (
            Singles.load(builder, builder.gep(column.data, [place]))
            for column in (inputs, bias, base)
        )
        random, state = next_words(state)
        exists = builder.trunc(builder.lshr(there, INDEX(offset)), ir.IntType(SINGLES))
        mask = Vector(builder, builder.bitcast(exists, ir.VectorType(ir.IntType(1), SINGLES)))
        on = _is_on(x.fused(hot, reference * cold), random) & mask
        terms = zip(totals, (x, biases, reference), strict=True)
        totals = [total + term.where(on) for total, term in terms]
        bits = builder.zext(on.bits(), ir.IntType(WORD))
        result = builder.or_(result, builder.shl(bits, INDEX(offset)))
    for k, vector in enumerate(state):
        vector.store(lanes.data, INDEX(SINGLES * k))
    for place, total in zip(places, totals, strict=True):
        total.store(place)
    return result


def _is_on(y: Singles, random: Vector) -> Vector:
    """Return a mask of the units that are on, given their log odds and 32 random bits each."""
    odds = (y.like(0.0) - y.magnitude()).exp()
    uniform = Singles.of_integers(random >> 1) + y.like(0.5)
    unlikely = (uniform * (odds + y.like(1.0))).below(odds * y.like(_UNIT))
    return y.like(0.0).below(y) ^ unlikely


COLUMNS = 32  # of the matrix that are multiplied at a time
_ROWS = 32  # of the matrix whose tables fit into the fastest cache
TABLES, ENTRIES = _ROWS // 4, 16  # of four rows each, and sums in a table


@njit
def multiply(words, weights, bias, tables, out):
    """Compute ``bias + states @ weights`` for packed states."""
    n, n_words = words.shape
    for first in range(0, weights.shape[1], COLUMNS):
        for m in range(n):
            for j in range(COLUMNS):
                out[m, first + j] = bias[first + j]
        for word in range(n_words):
            for shift in range(0, WORD, _ROWS):
                _tabulate(weights, word * WORD + shift, first, tables)
                for m in range(n):
                    _add(out, m, first, tables, words[m, word] >> nb.uint64(shift))


@emitted(nothing)
def _tabulate(builder, weights, row, first, tables):
    """Fill the tables with the sums of any of four rows, in a part of the columns."""
    # numbers from the start of one row to the next: there may be more than columns
    apart = builder.sdiv(builder.extract_value(weights.strides, 0), INDEX(4))
    for table in range(TABLES):
        rows = [builder.add(row, INDEX(4 * table + k)) for k in range(4)]
        starts = [builder.add(builder.mul(each, apart), first) for each in rows]
        for offset in range(0, COLUMNS, SINGLES):
            sums = [Singles.constant(builder, 0.0)]
            for start in starts:
                place = builder.add(start, INDEX(offset))
                numbers = Singles.load(builder, builder.gep(weights.data, [place]))
                sums += [numbers] + [each + numbers for each in sums[1:]]
            for entry, each in enumerate(sums):
                place = INDEX((table * ENTRIES + entry) * COLUMNS + offset)
                each.store(builder.gep(tables.data, [place]))


@emitted(nothing)
def _add(builder, out, m, first, tables, bits):
    """Add one entry of each table, which four bits name, to a part of row ``m``."""
    n_columns = builder.extract_value(out.shape, 1)
    place, rows = builder.add(builder.mul(m, n_columns), first), []
    for table in range(TABLES):
        entry = builder.and_(builder.lshr(bits, INDEX(4 * table)), INDEX(ENTRIES - 1))
        row = builder.add(entry, INDEX(table * ENTRIES))
        rows.append(builder.gep(tables.data, [builder.mul(row, INDEX(COLUMNS))]))
    rows.append(builder.gep(out.data, [place]))
    for offset in range(0, COLUMNS, SINGLES):
        places = [builder.gep(row, [INDEX(offset)]) for row in rows]
        terms = [Singles.load(builder, each) for each in places]
        while len(terms) > 1:
            pairs = zip(terms[::2], terms[1::2], strict=False)
            rest = terms[len(terms) & ~1 :]
            terms = [a + b for a, b in pairs] + rest
        terms[0].store(places[-1])


@dataclass(frozen=True)
class Sweeps(Batched, OrderedKernel):
    """The base of kernels of machines.

    Their compiled loops read inverse temperatures in one form, shape ``(n_stages, 1)`` if members
    share them and ``(n_stages, n)`` if each has its own.
    """

    def advance_each(
        self, path: Any, state: Units, beta: Floats, streams: NDArray[np.uint64]
    ) -> tuple[Units, MoveInfo]:
        """Move member ``i`` at ``beta[i]``; see ``contracts.PerMemberKernel``."""
        if np.shape(beta) != (len(state),):
            raise ValueError(
                f"beta must have one inverse temperature for each of the {len(state)} members, got "
                f"shape {np.shape(beta)}; pass an array of shape ({len(state)},)."
            )
        return self.once(path, state, np.asarray(beta)[None], streams)

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


def log_densities(layers: tuple[Layer, Layer], units: tuple[Words, ...]) -> Floats:
    """Return ``a'v + b'h + v'Wh`` of states, shape ``(n,)``; see ``draw_layers``."""
    (visible, hidden), (v, h) = layers, units
    inputs = aligned((len(v), visible.bias.size))
    multiply(h, visible.weights, visible.bias, aligned((TABLES, ENTRIES, COLUMNS)), inputs)
    of_hidden: Floats = unpack(h, hidden.bias.size) @ hidden.bias.astype(float)
    return np.einsum("ij,ij->i", unpack(v, inputs.shape[1]), inputs.astype(float)) + of_hidden


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
