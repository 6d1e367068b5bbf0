"""Populations of restricted Boltzmann machines, one bit per unit, and compiled draws."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from pm_evidence.core.codegen.numba import emitted, nb, njit, nothing, types
from pm_evidence.core.codegen.vectors import INDEX, SINGLES, Singles, Vector, aligned, next_words
from pm_evidence.core.random import next_word
from pm_evidence.targets.layout import Rows

Bits = NDArray[np.uint8]
Floats = NDArray[np.float64]
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


Betas = float | NDArray[np.float64]


@dataclass(frozen=True)
class BaseRatePath:
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

    def log_ratio(self, state: Any, start: Betas, stop: Betas) -> Floats:
        """Return the change of the log density between two inverse temperatures.

        For the populations that a kernel visited in ``m`` stages, inverse temperatures have shape
        ``(m, 1)``, and the change has shape ``(m, n)``. The same holds for ``energy``.
        """
        return (start - stop) * self.energy(state, start)

    def energy(self, state: Any, beta: Betas) -> Floats:
        """Return minus the derivative of the log density by beta, shape ``(n,)``, in nats."""
        found = state.log_density if isinstance(state, Units) else state
        energy: Floats = found.base - self.log_base_z - found.target
        return energy

    def weigh(self, visited: Any, start: Betas, stop: Betas) -> tuple[Floats, Floats]:
        """Return ``energy`` at ``start`` and ``log_ratio``, which costs less than two calls."""
        energy = self.energy(visited, start)
        return energy, (start - stop) * energy

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
