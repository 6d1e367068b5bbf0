"""What kernels learn: a wrong scale costs accuracy everywhere, silently."""

import numpy as np
import pytest

from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import streams
from pm_evidence.core.shape import learn_shape
from pm_evidence.kernels.cycle import Cycle
from pm_evidence.kernels.discrete import IntegerWalk
from pm_evidence.kernels.hmc import HMC
from pm_evidence.kernels.random_walk import RandomWalk
from tests.kernels.exact import SYSTEMS, gaussian

# --- shape ---


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


# --- scales ---


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
