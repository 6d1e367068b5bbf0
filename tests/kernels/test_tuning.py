"""What kernels learn: a wrong scale costs accuracy everywhere, silently."""

import numpy as np
import pytest

from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import streams
from pm_evidence.core.shape import learn_shape
from pm_evidence.kernels.cycle import Cycle
from pm_evidence.kernels.discrete import IntegerWalk
from pm_evidence.kernels.hmc import HMC
from pm_evidence.kernels.random_walk import RandomWalk, move_towards
from tests.kernels.exact import SYSTEMS, gaussian


def correlated(n, d=3, seed=0):
    rng = np.random.default_rng(seed)
    factor = np.tril(rng.normal(size=(d, d))) + 2 * np.eye(d)
    return rng.normal(size=(n, d)) @ factor.T + np.arange(d), factor @ factor.T


# --- shape ---


def test_dense_shape_is_the_covariance():
    x, covariance = correlated(50_000)
    shape = learn_shape(x, dense=True)
    assert shape.is_dense
    np.testing.assert_allclose(shape.mean, np.arange(3), atol=0.1)
    np.testing.assert_allclose(shape.factor @ shape.factor.T, covariance, rtol=0.05, atol=0.1)
    assert np.array_equal(shape.factor, np.tril(shape.factor))


def test_diagonal_shape_is_the_standard_deviations():
    x, covariance = correlated(50_000)
    shape = learn_shape(x, dense=False)
    assert not shape.is_dense
    assert shape.factor.shape == (3, 1)
    np.testing.assert_allclose(shape.factor[:, 0] ** 2, np.diag(covariance), rtol=0.05)


@pytest.mark.parametrize(("n", "dense"), [(49, False), (50, True)])
def test_correlations_need_members(n, dense):
    assert learn_shape(correlated(n, d=10)[0]).is_dense == dense


def test_one_dimension_is_both():
    shape = learn_shape(np.random.default_rng(1).normal(size=(100, 1)))
    assert shape.factor.shape == (1, 1)
    assert shape.is_dense


@pytest.mark.parametrize("dense", [True, False])
def test_heavy_tails_do_not_set_the_scale(dense):
    """The standard deviation of Cauchy draws is that of the largest: nothing else would move."""
    x = np.random.default_rng(3).standard_cauchy(size=(2000, 2))
    assert x.std(axis=0).max() > 20
    shape = learn_shape(x, dense=dense)
    scale = np.sqrt((shape.factor**2).sum(axis=1))
    assert (scale > 0.5).all()
    assert (scale < 8).all()
    assert np.abs(shape.mean).max() < 1


def test_extreme_tails_do_not_overflow():
    x = np.random.default_rng(3).standard_cauchy(size=(500, 2)) ** 51
    shape = learn_shape(x)
    assert np.isfinite(shape.factor).all()
    assert (np.diag(shape.factor) > 0).all()


def test_singular_covariances_have_a_factor():
    """Fewer members than dimensions, collinear coordinates, and one that is constant."""
    rng = np.random.default_rng(5)
    cases = [rng.normal(size=(n, d)) for n in (1, 2, 3) for d in (1, 2, 5)]
    cases.append(rng.normal(size=(1000, 1)) * np.ones(3))
    constant = rng.normal(size=(100, 3))
    constant[:, 1] = 7.0
    for x in [*cases, constant]:
        for dense in (True, False, None):
            shape = learn_shape(x, dense)
            assert np.isfinite(shape.factor).all(), (x.shape, dense)
            assert (np.diag(np.atleast_2d(shape.factor)) > 0).all(), (x.shape, dense)
    for dense in (True, False):
        shape = learn_shape(constant, dense)
        scale = np.sqrt((shape.factor**2).sum(axis=1))
        np.testing.assert_allclose(scale[1], 1.0)
        assert (scale > 0.5).all()


@pytest.mark.parametrize("dense", [True, False])
def test_copies_of_one_member_do_not_hide_the_scale(dense):
    """After a step that is too long one member has most of the weight: quartiles coincide.

    With a scale of zero nothing would ever move again.
    """
    x = np.random.default_rng(5).normal(size=(100, 2))
    x[:80] = x[0]
    shape = learn_shape(x, dense)
    scale = np.sqrt((shape.factor**2).sum(axis=1))
    assert (scale > 0.1).all()
    assert (scale < 2).all()


def test_shape_moves_along_with_units():
    """Kernels are invariant under a change of units; no constant may hide in here."""
    x, _ = correlated(500)
    unit = np.array([1e-9, 1.0, 1e6])
    plain, scaled = learn_shape(x), learn_shape(x * unit)
    np.testing.assert_allclose(scaled.factor, plain.factor * unit[:, None], rtol=1e-8)
    np.testing.assert_allclose(scaled.mean, plain.mean * unit, rtol=1e-8)


# --- scales ---


def test_move_towards_rises_and_falls():
    assert move_towards(0.5, acceptance=0.9, target=0.8) > 0.5
    assert move_towards(0.5, acceptance=0.7, target=0.8) < 0.5
    assert move_towards(0.5, acceptance=0.8, target=0.8) == 0.5


TUNED = {
    "hmc": ("gaussian", HMC(step_size=0.05), 0.85),
    "hmc-too-long": ("gaussian", HMC(step_size=5.0, path_length=5.0), 0.85),
    "hmc-as-asked": ("gaussian", HMC(target_accept=0.65), 0.65),
    "random-walk-as-asked": ("gaussian", RandomWalk(target_accept=0.5), 0.5),
    "random-walk": ("gaussian", RandomWalk(scale=0.05), 0.3),
    "random-walk-too-long": ("gaussian", RandomWalk(scale=20.0), 0.3),
    "integer-walk": ("mixed", IntegerWalk(np.array([1]), np.ones(1), scale=100.0), 0.4),
}


@pytest.mark.parametrize("name", TUNED)
def test_acceptance_reaches_its_target(name):
    """Adjusted after every move, as the pilot does."""
    system, kernel, wanted = TUNED[name]
    exact = SYSTEMS[system]()
    state = exact.population(1.0, 500, seed=1)
    kernel = kernel.learn(exact.path, state)
    chains = streams(np.random.SeedSequence(2), 500)
    for _ in range(60):
        state, info = kernel.advance(exact.path, state, 1.0, chains)
        kernel = kernel.adjust(info)
    # one step at a distance of 1 is the least that a walk on integers can do
    tolerance = 0.2 if name == "integer-walk" else 0.06
    assert abs(info.acceptance - wanted) < tolerance


def test_path_length_follows_the_reach():
    kernel = HMC(exploring=True)
    further = kernel.adjust(MoveInfo(0.8, 1, reach=1.0))
    shorter = kernel.adjust(MoveInfo(0.8, 1, reach=-1.0))
    assert shorter.path_length < kernel.path_length < further.path_length


@pytest.mark.parametrize("reach", [1.0, -1.0])
def test_path_length_has_bounds(reach):
    """Acceptance 1 throughout, as on a flat density, must not send the scales away."""
    kernel = HMC(exploring=True)
    for _ in range(100):
        kernel = kernel.adjust(MoveInfo(1.0, 1, reach=reach))
    assert 0.4 < kernel.path_length < 10
    assert kernel.step_size <= kernel.path_length


def test_integer_scale_has_bounds():
    kernel = IntegerWalk(np.array([0]), np.ones(1))
    for acceptance in (1.0, 0.0):
        for _ in range(100):
            kernel = kernel.adjust(MoveInfo(acceptance, 1))
        assert 1e-4 < kernel.scale < 1e4


def test_integer_walk_learns_its_spread():
    exact = SYSTEMS["mixed"]()
    state = exact.population(0.0, 2000, seed=1)
    learnt = IntegerWalk(np.array([0, 1]), np.ones(2)).learn(exact.path, state)
    # half the distance from the 10 % to the 90 % quantile, at least 1: labels 0 to 2, Poisson(3)
    assert np.array_equal(learnt.spread, [1.0, 2.0])


def test_exploring_hmc_finds_that_long_paths_mix():
    """At 0.2 standard deviations a trajectory hardly moves: longer ones mix better per gradient."""
    exact = gaussian()
    kernel = HMC(exploring=True, path_length=0.5, step_size=0.25)
    chains = streams(np.random.SeedSequence(2), 2000)
    state = exact.population(1.0, 2000, seed=1)
    kernel = kernel.learn(exact.path, state)
    for _ in range(30):
        state, info = kernel.advance(exact.path, state, 1.0, chains)
        kernel = kernel.adjust(info)
    assert kernel.path_length > 0.8


def test_cycle_adjusts_every_part_by_its_own_report():
    cycle = Cycle((RandomWalk(), RandomWalk()))
    parts = (MoveInfo(0.9, 1), MoveInfo(0.0, 1))
    first, second = cycle.adjust(MoveInfo(0.45, 2, parts=parts)).parts
    assert first.scale > 1.0 > second.scale
