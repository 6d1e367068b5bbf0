"""The sweep of slices leaves the truncated normal invariant, and its reversal reverses it."""

from dataclasses import dataclass

import numpy as np
import pytest

from pm_evidence.core.random import streams, uniform
from pm_evidence.families.gp_classification.noisy import DataPointPath, SliceGibbs, sweep_orders
from pm_evidence.testing import check_invariance, check_reversal
from tests.families.gp_classification.problems import exact_draws, one_factor, triple

KERNELS = [SliceGibbs(), SliceGibbs(2, n_slices=3), SliceGibbs(backwards=True)]


def small():
    target = one_factor(5)[0]
    path = DataPointPath(target)
    return path, path.at(exact_draws(target, 20_000))


@pytest.mark.parametrize("kernel", KERNELS)
def test_it_leaves_the_distribution_invariant_and_is_reversed(kernel):
    """Exact draws stay exact."""
    path, population = small()
    assert check_invariance(kernel, path, population, 1.0).moved == 1.0
    check_reversal(kernel, path, population, 1.0)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_member_draws_from_its_own_stream(kernel):
    """Alone, and among many in vectors that are not full, with the same digits."""
    path, population = small()
    some, chains = population.take(np.arange(70)), streams(np.random.SeedSequence(4), 70)
    before, own = some.z.copy(), chains[[3, 69]]
    whole = kernel.advance(path, some, 1.0, chains)[0]
    part = kernel.advance(path, some.take(np.array([3, 69])), 1.0, own)[0]
    np.testing.assert_array_equal(part.z, whole.z[[3, 69]])
    np.testing.assert_array_equal(own, chains[[3, 69]])
    np.testing.assert_array_equal(some.z, before)


@dataclass(frozen=True)
class Untruncated(SliceGibbs):
    """A planted error: values are drawn on both sides of zero, and their signs are lost."""

    def advance(self, path, state, beta, chains):
        moved, info = super().advance(path, state, beta, chains)
        flip = chains[:, 0] % np.uint64(5) == 0
        return type(moved)(np.where(flip[:, None], -moved.z, moved.z), moved.precision,
                           moved.order), info  # fmt: skip


@dataclass(frozen=True)
class WrongMean(SliceGibbs):
    """A planted error: means given the other values are those of a prior with smaller noise."""

    def advance(self, path, state, beta, chains):
        wrong = type(state)(state.z, state.precision * 1.1, state.order)
        moved, info = super().advance(path, wrong, beta, chains)
        return type(state)(moved.z, state.precision, state.order), info


@dataclass(frozen=True)
class NotReversed(SliceGibbs):
    """A planted error: the reversed sweep visits the values in the same order."""

    def reversed(self):
        return self


@pytest.mark.parametrize("kernel", [Untruncated(), WrongMean(), NotReversed()])
def test_planted_errors_are_found(kernel):
    target, _ = triple()
    path = DataPointPath(target)
    population = path.at(exact_draws(target, 200_000))
    with pytest.raises(AssertionError):
        check_invariance(kernel, path, population, 1.0)
        check_reversal(kernel, path, population, 1.0)


def test_products_within_and_between_blocks_agree_with_numpy():
    """With 70 values, a value must see what those before it have just drawn, in both sweeps."""
    target, _ = one_factor(70)
    path = DataPointPath(target)
    rng = np.random.default_rng(1)
    draws = np.abs(rng.standard_normal((3, 70))) * target.signs
    chains = streams(np.random.SeedSequence(2), 3)
    state = path.at(draws)
    for backwards in (False, True):
        order = sweep_orders(70, 2).ravel()[:: -1 if backwards else 1]
        kernel = SliceGibbs(2, backwards)
        found = kernel.advance(path, state, 1.0, chains.copy())[0].z
        np.testing.assert_allclose(found, _plainly(state, target, order, chains.copy()), rtol=1e-9)


def test_every_sweep_has_an_order_of_its_own():
    """Orders are permutations in which, on average, one value keeps its place."""
    orders = sweep_orders(400, 3)
    np.testing.assert_array_equal(np.sort(orders), [np.arange(400)] * 3)
    for first, second in ((orders[0], orders[1]), (orders[1], orders[2]),
                          (orders[0], sweep_orders(401, 1)[0, :400]),
                          (orders[0], np.arange(400))):  # fmt: skip
        assert (first == second).sum() < 10
    np.testing.assert_array_equal(orders[:2], sweep_orders(400, 2))


def _plainly(state, target, order, chains):
    """The sweep of Appendix A.2 as it is printed there, one member and one value at a time."""
    z, precision = state.z.copy(), state.precision
    for row, stream in zip(z, chains, strict=True):
        for i in order:
            s, y = precision[i, i], target.signs[target.points[i]]
            mean = row[i] - precision[i] @ row / s
            v = np.sqrt((row[i] - mean) ** 2 - 2.0 * np.log(uniform(stream)) / s)
            low = max(mean - v, 0.0) if y > 0 else mean - v
            high = min(mean + v, 0.0) if y < 0 else mean + v
            share = uniform(stream)
            row[i] = low + (high - low) * (share if y > 0 else 1.0 - share)
    return z


def test_settings_and_bad_arguments():
    assert SliceGibbs(2, n_slices=3).settings() == {"n_sweeps": 2.0, "n_slices": 3.0}
    for name, value in [("n_sweeps", 0), ("n_slices", 1.5), ("backwards", 1)]:
        with pytest.raises(ValueError, match=name):
            SliceGibbs(**{name: value})
