"""Random streams: one xoshiro256++ generator per chain, seeded from ``SeedSequence``.

A stream is a row of four ``uint64`` words that compiled kernels advance in place, so
that results depend neither on threads nor on the order in which chains are moved.
The generator is Blackman and Vigna (2021), "Scrambled linear pseudorandom number
generators".
"""

from enum import IntEnum
from functools import cache
from math import erfc, exp, log, log10, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import described
from pm_evidence.core.codegen.numba import cfunc, nb, njit

Streams = NDArray[np.uint64]

_TWO_POW_52 = 4503599627370496.0
_TWO_POW_MINUS_52 = 1.0 / _TWO_POW_52
_TWO_POW_MINUS_53 = 0.5 * _TWO_POW_MINUS_52
_U = np.uint64
# Normal draws of each stream up to which a loop that draws one after the other is not compiled.
_FEW = 128
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# If the widest layer ends here, 256 layers of equal area just cover the normal density.
_TAIL = 3.6541528853610088
# Stored results hold seeds as text.
_MOST_DIGITS = 1000


def resolve_seed(random_seed: int | str | np.random.Generator | None) -> int:
    """Return the integer that stands for ``random_seed`` in the record."""
    if random_seed is None:
        entropy = np.random.SeedSequence().entropy
        assert isinstance(entropy, int)
        return entropy
    if isinstance(random_seed, np.random.Generator):
        return int(random_seed.integers(2**63))
    if isinstance(random_seed, str) and random_seed.isdecimal() and random_seed.isascii():
        _check_digits(len(random_seed))
        return int(random_seed)
    if isinstance(random_seed, bool) or not isinstance(random_seed, int | np.integer):
        raise ValueError(
            f"random_seed must be None, a non-negative integer or a numpy Generator, got "
            f"{described(random_seed)}; pass for example random_seed=1."
        )
    _check_digits(int(int(random_seed).bit_length() * log10(2.0)))
    if random_seed < 0:
        raise ValueError(f"random_seed must not be negative, got {random_seed}; drop the sign.")
    return int(random_seed)


def _check_digits(n: int) -> None:
    """Raise ValueError if a seed has more digits than Python converts from and to text."""
    if n > _MOST_DIGITS:
        raise ValueError(
            f"random_seed must have at most {_MOST_DIGITS:,} digits, got about {n:,}; pass for "
            "example random_seed=1."
        )


class Phase(IntEnum):
    """The purpose of random numbers; each phase of a run has its own streams."""

    PILOT = 0
    FORWARD = 1
    REVERSE = 2
    ISLAND = 3  # forward as well, but for populations that reverse paths start from
    TRIAL = 4  # of a schedule
    CHECK = 5  # of paths by importance sampling
    PRIOR = 6  # the run that normalises a prior with potentials
    START = 7  # which posterior draws reverse paths start from
    TUNING = 8  # of tempered chains
    RESULT = 9  # which draws are kept
    PRECISION = 10  # of an estimated likelihood
    SURVEY = 11
    FIT = 12
    BRIDGE = 13
    REFERENCE = 14  # the fit of a density that annealing starts from
    COORDINATES = 15  # the pilot by which they are chosen
    COARSE = 16  # annealing of the cheapest route
    PRIORS = 17  # runs under other priors
    CALIBRATION = 18  # data sets drawn from models, and their runs
    AVERAGE = 19  # which draws of each model are kept
    PAIR = 20  # two models that are annealed into each other
    MODELS = 21  # models that are compared in one call
    HYPOTHESES = 22  # prior draws and runs that a hypothesis about parameters needs


def generator(seed: int, phase: Phase, *index: int) -> np.random.Generator:
    """Return the generator of a phase of a run, or of one part of it."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(phase, *index)))


def seed_of_run(seed: int, phase: Phase, *index: int) -> int:
    """Return the seed of a second run that belongs to a first one; it has 128 bits."""
    words = np.random.SeedSequence(seed, spawn_key=(phase, *index)).generate_state(2, np.uint64)
    return int(words[0]) << 64 | int(words[1])


def block_seeds(seed: int, phase: int, block: int) -> tuple[np.random.SeedSequence, ...]:
    """Return the two seeds of a block: one for drawing its start, one for its chains.

    Parameters
    ----------
    seed : int
        Seed of the run.
    phase : int
        Which part of the run the block belongs to (pilot, forward, reverse).
    block : int
        Index of the block within the phase.

    Returns
    -------
    tuple of two numpy.random.SeedSequence
        Of the start, and of the chains.
    """
    root = np.random.SeedSequence(seed, spawn_key=(phase, block))
    return tuple(root.spawn(2))


def streams(seed: np.random.SeedSequence, n: int) -> NDArray[np.uint64]:
    """Return the first words of independent streams of random numbers.

    Parameters
    ----------
    seed : numpy.random.SeedSequence
        Where the words come from.
    n : int
        Number of streams.

    Returns
    -------
    ndarray of uint64, shape (n, 4)
        One stream in each row.
    """
    words: NDArray[np.uint64] = np.array(seed.generate_state(4 * n, np.uint64), np.uint64)
    words = words.reshape(n, 4)
    words[:, 0] |= np.uint64(1)  # the all-zero state is the generator's only fixed point
    return words


@njit
def next_state(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Return the next 64 random bits, and the next four words of a stream."""
    total = a + d
    result = ((total << nb.uint64(23)) | (total >> nb.uint64(41))) + a
    shifted = b << nb.uint64(17)
    c ^= a
    d ^= b
    b ^= c
    a ^= d
    c ^= shifted
    d = (d << nb.uint64(45)) | (d >> nb.uint64(19))
    return result, a, b, c, d


@njit
def next_word(stream: Any) -> Any:
    """Return the next 64 random bits of ``stream`` (four words), advancing it."""
    result, a, b, c, d = next_state(stream[0], stream[1], stream[2], stream[3])
    stream[0], stream[1], stream[2], stream[3] = a, b, c, d
    return result


@njit
def fill_uniform(stream: Any, out: Any) -> None:
    """Fill ``out`` with the draws that as many calls of ``uniform`` would return.

    Parameters
    ----------
    stream : ndarray of uint64, shape (4,)
        The stream, which advances.
    out : ndarray of float64
        Where the draws go.
    """
    # here the words stay in registers, while each call of ``uniform`` writes them back
    a, b, c, d = stream[0], stream[1], stream[2], stream[3]
    for k in range(out.size):
        word, a, b, c, d = next_state(a, b, c, d)
        out[k] = ((word >> nb.uint64(12)) + 0.5) * _TWO_POW_MINUS_52
    stream[0], stream[1], stream[2], stream[3] = a, b, c, d


@njit
def uniform(stream: Any) -> Any:
    """Return a uniform draw strictly between 0 and 1.

    Parameters
    ----------
    stream : ndarray of uint64, shape (4,)
        The stream, which advances.

    Returns
    -------
    float
        The draw.
    """
    # 52 bits: with 53 the sum would be rounded, and the largest draw would be 1
    return ((next_word(stream) >> nb.uint64(12)) + 0.5) * _TWO_POW_MINUS_52


@njit
def seed_stream(stream: Any, seed: Any, number: Any) -> None:
    """Set ``stream`` to the start of the stream that has this number under a 64-bit seed.

    The words are those of splitmix64 (Steele, Lea and Flood 2014) from a start that is mixed once,
    so that neighbouring seeds have nothing in common.
    """
    start = _mix(nb.uint64(seed)) + nb.uint64(4) * nb.uint64(number) * _GOLDEN
    for k in range(4):
        stream[k] = _mix(start + nb.uint64(k + 1) * _GOLDEN)


@njit
def _mix(word: Any) -> Any:
    word = (word ^ (word >> nb.uint64(30))) * nb.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> nb.uint64(27))) * nb.uint64(0x94D049BB133111EB)
    return word ^ (word >> nb.uint64(31))


def _next_uint64(state: Any) -> Any:
    return next_word(nb.carray(state, (4,)))


def _next_uint32(state: Any) -> Any:
    return nb.uint32(next_word(nb.carray(state, (4,))) >> nb.uint64(32))


def _next_double(state: Any) -> Any:
    return (next_word(nb.carray(state, (4,))) >> nb.uint64(11)) * _TWO_POW_MINUS_53


@cache
def _generator_callbacks() -> tuple[Any, Any, Any]:
    state = nb.types.CPointer(nb.types.uint64)
    return (
        cfunc(nb.types.uint64(state), _next_uint64),
        cfunc(nb.types.uint32(state), _next_uint32),
        cfunc(nb.types.double(state), _next_double),
    )


def generator_functions() -> NDArray[np.int64]:
    """Return addresses of C functions that draw 64 bits, 32 bits and a double from a stream.

    They take the address of its four words, as the functions of a NumPy bit generator take that
    of its state.
    """
    return np.array([callback.address for callback in _generator_callbacks()], np.int64)


def _ziggurat() -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the tables of Marsaglia and Tsang's (2000) ziggurat.

    Layer 0 is the foot: a strip up to the height of the density at the widest edge, with the tail
    beyond that edge. Above it, layer ``i`` is the rectangle out to ``edge[i]``, between the heights
    of the density at ``edge[i]`` and ``edge[i + 1]``. All layers have the same area.
    """
    foot = exp(-0.5 * _TAIL**2)
    area = _TAIL * foot + sqrt(0.5 * pi) * erfc(_TAIL / sqrt(2.0))
    edge = [area / foot, _TAIL]
    while len(edge) < 256:
        edge.append(sqrt(-2.0 * log(area / edge[-1] + exp(-0.5 * edge[-1] ** 2))))
    x = np.array([*edge, 0.0])
    inside = (x[1:] / x[:-1] * _TWO_POW_52).astype(np.int64)
    return x[:-1] / _TWO_POW_52, inside, np.exp(-0.5 * x**2)


_SCALE, _INSIDE, _HEIGHT = _ziggurat()


@njit
def fill_normal(stream: Any, out: Any) -> None:
    """Fill ``out`` with standard normal draws.

    Parameters
    ----------
    stream : ndarray of uint64, shape (4,)
        The stream, which advances.
    out : ndarray of float64
        Where the draws go.
    """
    for k in range(out.size):
        while True:
            word = next_word(stream)
            layer = nb.int64(word & nb.uint64(255))
            whole = nb.int64(word >> nb.uint64(12))
            x = whole * _SCALE[layer]
            if whole < _INSIDE[layer]:
                break
            if layer == 0:
                x = _beyond_the_foot(stream)
                break
            low, high = _HEIGHT[layer], _HEIGHT[layer + 1]
            if low + uniform(stream) * (high - low) < exp(-0.5 * x * x):
                break
        out[k] = x if word & nb.uint64(256) else -x


def normals(streams: NDArray[np.uint64], n: int) -> NDArray[np.float64]:
    """Return standard normal draws from each of several streams.

    Parameters
    ----------
    streams : ndarray of uint64, shape (m, 4)
        The streams, which advance.
    n : int
        Number of draws from each.

    Returns
    -------
    ndarray of float64, shape (m, n)
        The draws.
    """
    out = np.empty((len(streams), n))
    if n > _FEW:
        _fill_rows_normal(streams, out)
    else:
        for k in range(n):
            out[:, k] = _normals(streams)
    return out


def uniforms(streams: NDArray[np.uint64], n: int) -> NDArray[np.float64]:
    """Return uniform draws from each of several streams.

    Parameters
    ----------
    streams : ndarray of uint64, shape (m, 4)
        The streams, which advance.
    n : int
        Number of draws from each.

    Returns
    -------
    ndarray of float64, shape (m, n)
        The draws.
    """
    out = np.empty((len(streams), n))
    for k in range(n):
        out[:, k] = _uniforms(_next_words(streams))
    return out


def _next_words(streams: Streams) -> Streams:
    """Return the next 64 random bits of every stream, advancing them, as `next_word` does."""
    a, b, c, d = streams.T
    total = a + d
    words: Streams = (total << _U(23) | total >> _U(41)) + a
    shifted = b << _U(17)
    c, d = c ^ a, d ^ b
    b, a = b ^ c, a ^ d
    streams[:] = np.stack([a, b, c ^ shifted, d << _U(45) | d >> _U(19)], axis=1)
    return words


def _uniforms(words: Streams) -> NDArray[np.float64]:
    return np.asarray(((words >> _U(12)) + 0.5) * _TWO_POW_MINUS_52, float)


def _normals(streams: Streams) -> NDArray[np.float64]:
    """Return the next normal draw of every stream, advancing them, as `fill_normal` does."""
    words = _next_words(streams)
    layer, whole = (words & _U(255)).astype(np.int64), (words >> _U(12)).astype(np.int64)
    x = whole * _SCALE[layer]
    drawn = np.where(words & _U(256), x, -x)
    for i in np.flatnonzero(whole >= _INSIDE[layer]):  # one in a hundred
        drawn[i] = _outside(streams[i : i + 1], int(words[i]), int(layer[i]), float(x[i]))
    return drawn


def _outside(stream: Streams, word: int, layer: int, x: float) -> float:
    """Return the draw of a stream whose first number may not lie under the density."""
    sign = 1.0 if word & 256 else -1.0
    if layer == 0:
        return sign * _tail(stream)
    low, high = _HEIGHT[layer], _HEIGHT[layer + 1]
    if low + float(_uniforms(_next_words(stream))[0]) * (high - low) < exp(-0.5 * x * x):
        return sign * x
    return float(_normals(stream)[0])


def _tail(stream: Streams) -> float:
    while True:
        further = -log(float(_uniforms(_next_words(stream))[0])) / _TAIL
        if -2.0 * log(float(_uniforms(_next_words(stream))[0])) > further * further:
            return _TAIL + further


@njit
def _fill_rows_normal(streams: Any, out: Any) -> None:
    for i in range(len(out)):
        fill_normal(streams[i], out[i])


@njit
def _beyond_the_foot(stream: Any) -> Any:
    """Return a draw from the normal tail (Marsaglia 1964)."""
    while True:
        further = -log(uniform(stream)) / _TAIL
        if -2.0 * log(uniform(stream)) > further * further:
            return _TAIL + further
