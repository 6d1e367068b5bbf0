"""Random streams: what makes a seed stand for the same numbers everywhere and for ever."""

import numpy as np
import pytest
from scipy import stats

from pm_evidence.core import random
from pm_evidence.core.random import (
    block_seeds,
    fill_normal,
    fill_uniform,
    next_word,
    normals,
    resolve_seed,
    streams,
    uniform,
    uniforms,
)

MASK = 2**64 - 1
# The first words from the state (1, 2, 3, 4), as Blackman and Vigna's C code prints them; they are
# also the test vector of rand_xoshiro.
PUBLISHED = [
    41943041,
    58720359,
    3588806011781223,
    3591011842654386,
    9228616714210784205,
    9973669472204895162,
    14011001112246962877,
    12406186145184390807,
    15849039046786891736,
    10450023813501588000,
]


def reference_words(state, n):
    """xoshiro256++ 1.0, line by line from the authors' C code, in Python's own integers."""

    def rotl(x, k):
        return ((x << k) & MASK) | (x >> (64 - k))

    s = list(state)
    words = []
    for _ in range(n):
        words.append((rotl((s[0] + s[3]) & MASK, 23) + s[0]) & MASK)
        t = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotl(s[3], 45)
    return words, s


def state_before(word):
    """A state whose next word is ``word``: a = 0, and d so that rotl(d, 23) = word."""
    return np.array([0, 5, 7, ((word >> 23) | (word << 41)) & MASK], np.uint64)


def test_words_are_the_published_ones():
    """Otherwise the generator is not the one whose quality was studied."""
    assert reference_words((1, 2, 3, 4), 10)[0] == PUBLISHED
    stream = np.array([1, 2, 3, 4], np.uint64)
    assert [int(next_word(stream)) for _ in range(10)] == PUBLISHED


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_words_and_state_follow_the_reference(seed):
    """Wherever a stream starts, shifts and carries must not lose a bit."""
    stream = streams(np.random.SeedSequence(seed), 1)[0]
    words, state = reference_words([int(word) for word in stream], 1000)
    assert [int(next_word(stream)) for _ in range(1000)] == words
    assert [int(word) for word in stream] == state


def test_compiled_equals_python():
    """A compiler that reorders arithmetic would make results depend on the machine."""
    compiled, plain = (streams(np.random.SeedSequence(3), 1)[0] for _ in range(2))
    with np.errstate(over="ignore"):  # words wrap around
        words = [int(next_word.py_func(plain)) for _ in range(50)]
    assert words == [int(next_word(compiled)) for _ in range(50)]
    assert np.array_equal(compiled, plain)
    many, few = np.empty(7), np.empty(7)
    fill_normal(compiled, many)
    fill_normal.py_func(plain, few)
    np.testing.assert_allclose(few, many, rtol=1e-14)
    assert np.array_equal(compiled, plain)


@pytest.mark.parametrize("word", [0, 1, 2**11, 2**63, MASK - 2**11, MASK])
def test_uniform_is_strictly_inside(word):
    """Its logarithm is taken everywhere: 0 would give infinity, 1 a zero that divides."""
    stream = state_before(word)
    assert reference_words([int(w) for w in stream], 1)[0] == [word]
    value = uniform(stream)
    assert 0.0 < value < 1.0
    assert abs(value - word / 2**64) < 2**-52


def test_many_uniforms_are_those_of_single_calls():
    """Kernels fill arrays where they can; seeds must mean the same in both ways."""
    one, many = (streams(np.random.SeedSequence(4), 1)[0] for _ in range(2))
    filled = np.empty(100)
    fill_uniform(many, filled)
    assert filled.tolist() == [uniform(one) for _ in range(100)]
    assert np.array_equal(one, many)


def test_uniform_distribution():
    """Every acceptance decision reads it. Seed 5; two tests at 1e-4 each."""
    stream = streams(np.random.SeedSequence(5), 1)[0]
    draws = np.array([uniform(stream) for _ in range(100_000)])
    assert stats.kstest(draws, "uniform").pvalue > 1e-4
    # neighbours are independent: the correlation of n pairs has standard error 1 / sqrt(n)
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) * np.sqrt(draws.size) < 3.9


@pytest.mark.parametrize("size", [1, 2, 5])
def test_normal_distribution(size):
    """Momenta and proposals are drawn so; both branches and odd lengths. Seed 6; 1e-4 each."""
    draws = np.empty((60_000 // size, size))
    stream = streams(np.random.SeedSequence(6), 1)[0]
    for row in draws:
        fill_normal(stream, row)
    assert stats.kstest(draws.ravel(), "norm").pvalue > 1e-4
    n = draws.size
    # standard errors of the first four moments of n normal draws
    for power, moment, error in ((1, 0, 1.0), (2, 1, 2**0.5), (3, 0, 15**0.5), (4, 3, 96**0.5)):
        assert abs((draws**power).mean() - moment) < 4.4 * error / np.sqrt(n)
    if size > 1:
        correlation = np.corrcoef(draws.T) - np.eye(size)
        assert np.abs(correlation).max() * np.sqrt(len(draws)) < 4.4


def test_normal_moments_catch_a_planted_error():
    """The same checks must see a radius that is 2 % too long."""
    draws = np.empty(60_000)
    fill_normal(streams(np.random.SeedSequence(6), 1)[0], draws)
    draws *= 1.02
    assert abs((draws**2).mean() - 1) > 4.4 * 2**0.5 / np.sqrt(draws.size)


def test_fill_normal_of_nothing_leaves_the_stream():
    """A target without continuous coordinates must not shift anybody's numbers."""
    stream = streams(np.random.SeedSequence(1), 1)[0]
    before = stream.copy()
    fill_normal(stream, np.empty(0))
    assert np.array_equal(stream, before)


# --- many streams at once, by NumPy ---


@pytest.mark.parametrize("n", [0, 1, 3, 128, 200])
@pytest.mark.parametrize(
    ("many", "one"), [(normals, fill_normal), (uniforms, fill_uniform)], ids=["normal", "uniform"]
)
def test_arrays_of_draws_are_those_of_compiled_code(many, one, n, monkeypatch):
    """NumPy and numba would give other runs for the same seed, or streams would get out of step.

    The first 400 streams of seed 9 meet every layer of the ziggurat, its foot and its tail; at most
    ``_FEW`` draws are made by NumPy, more by compiled code, and here all of them.
    """
    chains = streams(np.random.SeedSequence(9), 400)
    expected, own = np.empty((400, n)), chains.copy()
    for row, out in zip(own, expected, strict=True):
        one(row, out)
    for limit in (random._FEW, n):
        monkeypatch.setattr(random, "_FEW", limit)
        advanced = chains.copy()
        assert np.array_equal(many(advanced, n), expected)
        assert np.array_equal(advanced, own)


def test_arrays_of_normal_draws_reach_the_tail():
    """One draw in 4,000 lies beyond the widest layer, and is made in another way. Seed 10."""
    chains = streams(np.random.SeedSequence(10), 20_000)
    own, drawn = chains.copy(), normals(chains, 4)
    assert (np.abs(drawn) > random._TAIL).sum() > 5
    expected = np.empty((20_000, 4))
    random._fill_rows_normal(own, expected)
    assert np.array_equal(drawn, expected) and np.array_equal(chains, own)


def test_streams_without_rows():
    """A population may be empty where all draws fall outside a transform."""
    nothing = streams(np.random.SeedSequence(1), 0)
    assert normals(nothing, 3).shape == uniforms(nothing, 3).shape == (0, 3)


def test_streams_are_distinct_between_chains_blocks_and_phases():
    """Shared streams would correlate islands, and the error bar would be too small."""
    rows, draw_states = [], []
    for phase in range(4):
        for block in range(25):
            draw_seed, chain_seed = block_seeds(11, phase, block)
            rows.append(streams(chain_seed, 40))
            draw_states.append(tuple(draw_seed.generate_state(4, np.uint64)))
    words = np.concatenate(rows)
    assert len({tuple(row) for row in words}) == len(words)
    assert len(np.unique(words)) >= words.size - 1  # no word is shared either
    assert len(set(draw_states)) == len(draw_states)
    assert not set(draw_states) & {tuple(row) for row in words}


def test_first_words_of_the_streams_are_uniform():
    """Neighbouring streams that start alike would move chains in step. Seed 12; 1e-4."""
    rows = streams(np.random.SeedSequence(12), 20_000)
    first = np.array([uniform(row) for row in rows])
    assert stats.kstest(first, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) * np.sqrt(first.size) < 3.9


def test_streams_depend_on_the_seed_alone():
    """The same call gives the same streams, and longer populations begin with shorter ones'."""
    one, two = (streams(block_seeds(7, 1, 3)[1], n) for n in (5, 8))
    assert np.array_equal(one, two[:5])
    assert not np.array_equal(one, streams(block_seeds(8, 1, 3)[1], 5))
    assert one.dtype == np.uint64 and one.shape == (5, 4)
    assert streams(np.random.SeedSequence(1), 0).shape == (0, 4)


def test_no_stream_starts_at_zero():
    """From the all-zero state the generator never leaves."""
    words = streams(np.random.SeedSequence(0), 1000)
    assert (words[:, 0] & np.uint64(1)).all()


def test_seeds_that_stand_for_themselves():
    """The record says a seed that can be typed in again."""
    assert resolve_seed(17) == 17
    assert resolve_seed(np.int64(17)) == 17
    assert type(resolve_seed(np.uint8(17))) is int
    assert resolve_seed(0) == 0
    assert resolve_seed(2**200) == 2**200


def test_generators_give_one_seed_after_the_other():
    """A user's generator makes a run reproducible, and the next run different."""
    one, two = np.random.default_rng(1), np.random.default_rng(1)
    first = resolve_seed(one)
    assert first == resolve_seed(two)
    assert first != resolve_seed(one)


def test_no_seed_means_a_new_one():
    """Two runs without a seed must not be the same run."""
    assert resolve_seed(None) != resolve_seed(None)


def test_other_seeds_are_refused():
    """Rounding 1.5 or taking True for 1 would hide a mistake.

    SeedSequence would fail on negative ones much later, with a message of its own.
    """
    texts = ("one", "-1", "1.0", "", "\u0661")
    others = (1.0, np.float64(2.0), [1, 2], True, np.random.RandomState(1), (), object())
    for value in (*texts, *others):
        with pytest.raises(ValueError, match=r"random_seed must be .*got .*random_seed=1"):
            resolve_seed(value)
    with pytest.raises(ValueError, match=r"random_seed must not be negative, got -3; drop"):
        resolve_seed(-3)
    # Python converts no more than 4,300 digits from and to text
    for value in (10**5000, "1" * 5000):
        with pytest.raises(ValueError, match=r"at most 1,000 digits, got about 5,000; pass for"):
            resolve_seed(value)


def test_the_digits_of_a_seed_are_the_seed():
    """Stored results hold large seeds as text: what they hold can be passed again."""
    for seed in (1, 2**63, 2**64 + 1, 10**40):
        assert resolve_seed(str(seed)) == seed
