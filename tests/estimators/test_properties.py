"""What holds of every estimator, whatever the work: symmetries, bounds, and the exact Gaussian."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pm_evidence.estimators.bar import bar
from pm_evidence.estimators.jarzynski import (
    importance,
    jarzynski,
    lower_bound,
)
from pm_evidence.estimators.of_run import two_sided
from tests.estimators.runs import record
from tests.estimators.work import ESTIMATORS
from tests.strategies import (
    on_grid,
    powers,
    vectors,
    works,
)

every = pytest.mark.parametrize("name", list(ESTIMATORS))
# Each of nine estimators is tried on so many works: together they are more than the usual number.
few = settings(max_examples=20)
# Where forward and reverse exchange their places, log Z changes its sign.
MIRRORED = {
    "bar": "bar",
    "cumulant": "cumulant",
    "histogram": "histogram",
    "jarzynski": "jarzynski_reverse",
    "cumulant_forward": "cumulant_reverse",
    "lower_bound": "upper_bound",
}
# What these refuse is forward work without an end, that is, paths of weight zero.
OF_FINITE_WORK = ("cumulant", "cumulant_forward")
ROUNDING = 1e-11  # of sums of work, of some nats each, and of the root of Bennett's equation

pairs = st.tuples(works(), works())
shifts = on_grid(-10_000, 10_000)


def numbers(found):
    return np.array([found.value, found.mcse, found.lower, found.upper])


def mirrored(found):
    return np.array([-found.value, found.mcse, -found.upper, -found.lower])


def shifted(found, shift):
    """What the estimate becomes if every path does more work."""
    return numbers(found) - shift * np.array([1.0, 0.0, 1.0, 1.0])


def assert_close(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)


# --- symmetries of all ---


@every
@few
@given(data=st.data(), reverse=works(), shift=shifts)
def test_a_constant_of_the_work_shifts_log_z(name, data, reverse, shift):
    """It is a constant factor of the likelihood; error and verdict stay."""
    forward = data.draw(works(dead=name not in OF_FINITE_WORK), label="forward")
    plain = ESTIMATORS[name](forward, reverse)
    moved = ESTIMATORS[name](forward + shift, reverse + shift)
    assert_close(numbers(moved), shifted(plain, shift))
    assert moved.status == plain.status


@pytest.mark.parametrize("name", list(MIRRORED))
@few
@given(pair=pairs)
def test_time_reversal_changes_the_sign(name, pair):
    """Annealing from the target to the reference estimates -log Z, and by the same numbers."""
    forward, reverse = pair
    plain = ESTIMATORS[name](forward, reverse)
    other = ESTIMATORS[MIRRORED[name]](-reverse, -forward)
    assert_close(mirrored(other), numbers(plain))


@every
@few
@given(pair=pairs, data=st.data())
def test_blocks_have_no_names_and_paths_of_their_own_change_nothing(name, pair, data):
    """The value never depends on the blocks; its error only on which paths share one."""
    own, named, other = {}, {}, {}
    for key, work in zip(("forward_blocks", "reverse_blocks"), pair, strict=True):
        names = data.draw(st.permutations(range(9)))
        blocks = data.draw(vectors(st.integers(0, 8), work.size, work.size, np.int64))
        own[key], named[key], other[key] = np.arange(work.size), blocks, np.array(names)[blocks]
    plain = ESTIMATORS[name](*pair)
    found = ESTIMATORS[name](*pair, **named)
    assert found.value == plain.value
    assert_close(numbers(ESTIMATORS[name](*pair, **own)), numbers(plain))
    assert_close(numbers(ESTIMATORS[name](*pair, **other)), numbers(found))


# --- bounds and means ---


@given(pair=pairs)
def test_paths_of_weight_zero_divide_the_evidence(pair):
    """Three dead paths for each live one: Z is a quarter, by every estimate of forward paths."""
    forward, reverse = pair
    dead = np.concatenate([forward, np.full(3 * forward.size, np.inf)])
    fourth = jarzynski(forward).value - np.log(4.0)
    assert jarzynski(dead).value == pytest.approx(fourth, abs=ROUNDING)
    assert importance(dead).value == pytest.approx(fourth, abs=ROUNDING)
    assert lower_bound(dead).value == -np.inf
    both = bar(forward, reverse).value - np.log(4.0)
    assert bar(dead, reverse).value == pytest.approx(both, abs=ROUNDING)


# --- Bennett's ratio ---

# Effective numbers of reverse paths, from hardly any to far more than there are.
reverse_sizes = powers(-3, 3)


@given(forward=works(dead=True), reverse=works(), size=reverse_sizes)
def test_bennetts_equation_is_solved(forward, reverse, size):
    """Bennett (1976): as many paths are found by Fermi's function in one direction as the other."""
    found = bar(forward, reverse, reverse_size=size)
    if found.status == "no_support":
        assert np.isinf(forward).all() and found.value == -np.inf
        return
    offset = found.value + np.log(forward.size / size)
    there = np.sum(1.0 / (1.0 + np.exp(forward[np.isfinite(forward)] + offset)))
    back = np.mean(1.0 / (1.0 + np.exp(-reverse - offset))) * size
    assert there == pytest.approx(back, rel=1e-8)


# --- the bridge ---


# --- exact Gaussian work ---


# --- whole runs ---


@given(forward=works(2, dead=True), reverse=works(2), cuts=st.tuples(*[st.integers(1, 8)] * 2))
def test_a_whole_run_keeps_its_estimates_in_any_cut_into_blocks(forward, reverse, cuts):
    """Blocks are a matter of who computes: forward paths are independent whichever holds them."""
    one, other = (two_sided(record(forward, reverse, n_blocks=n)) for n in cuts)
    assert [e.estimator for e in one] == [e.estimator for e in other]
    assert [e.status for e in one] == [e.status for e in other]
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(numbers(a), numbers(b))


def test_every_estimator_has_its_mirror():
    """A new estimator of work has to say what it becomes when time is reversed."""
    assert set(MIRRORED) | set(MIRRORED.values()) == set(ESTIMATORS)
