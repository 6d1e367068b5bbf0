"""Where densities are zero, NaN or infinite: no kernel may turn trouble into a number."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pm_evidence.core.contracts import Tunable
from pm_evidence.core.random import streams
from pm_evidence.kernels.discrete import DiscreteGibbs, IntegerWalk
from pm_evidence.kernels.hmc import HMC
from pm_evidence.kernels.random_walk import RandomWalk
from pm_evidence.paths.geometric import GeometricPath
from pm_evidence.targets.model.target import PyMCTarget
from pm_evidence.targets.points import Particles
from tests.kernels.exact import (
    CASES,
    KERNELS,
    MOVERS,
    SYSTEMS,
    circle,
    fitted,
    learnt,
    native,
    wall,
)

every_case = pytest.mark.parametrize(("system", "name"), CASES)
every_mover = pytest.mark.parametrize("name", MOVERS)
GIBBS = DiscreteGibbs(np.array([0]), np.zeros(1), np.full(1, 2.0))
WALK = IntegerWalk(np.array([0]), np.array([1.5]))


def fresh_streams(n):
    return streams(np.random.SeedSequence(17), n)


@every_case
def test_members_of_weight_zero_stay(system, name):
    """A path of weight zero has left the support: were it moved back in, it would count again."""
    exact = SYSTEMS[system]()
    state = exact.population(0.5, 30, seed=3)
    log_density = state.log_density.copy()
    log_density[::2, 1] = -np.inf
    state = Particles(state.x, log_density)
    kernel = fitted(system, name, 0.5)
    chains = fresh_streams(30)
    for _ in range(3):
        before, (state, info) = state, kernel.advance(exact.path, state, 0.5, chains)
        assert np.array_equal(state.x[::2], before.x[::2])
        assert np.array_equal(state.log_density[::2], before.log_density[::2])
    if not system.startswith("holes"):
        assert info.n_nan == 0
    assert not np.array_equal(state.x[1::2], exact.population(0.5, 30, seed=3).x[1::2])


@every_case
def test_population_of_weight_zero_is_no_error(system, name):
    exact = SYSTEMS[system]()
    state = exact.population(0.5, 6, seed=3)
    dead = Particles(state.x, np.full_like(state.log_density, -np.inf))
    moved, info = fitted(system, name, 0.5).advance(exact.path, dead, 0.5, fresh_streams(6))
    assert np.array_equal(moved.x, dead.x)
    assert info.acceptance == 0.0
    assert info.n_nan == 0


@every_mover
def test_nobody_crosses_a_wall(name):
    """Moves onto a likelihood of zero are refused, and are no NaN."""
    exact = wall()
    state, kernel, chains = exact.population(0.5, 500, seed=3), MOVERS[name], fresh_streams(500)
    for _ in range(5):
        state, info = kernel.advance(exact.path, state, 0.5, chains)
        assert (state.x[:, 0] >= 0).all()
        assert info.n_nan == 0
        assert 0.0 < info.acceptance < 1.0


@every_mover
def test_nan_is_refused_and_counted(name):
    exact = SYSTEMS["holes"]()
    state, kernel, chains = exact.population(0.5, 500, seed=3), MOVERS[name], fresh_streams(500)
    n_nan = 0
    for _ in range(5):
        state, info = kernel.advance(exact.path, state, 0.5, chains)
        assert (state.x > 0).all()
        assert np.isfinite(state.log_density).all()
        assert 0 < info.n_nan <= info.n_evaluations
        n_nan += info.n_nan
    assert n_nan > 50


def _uphill(x, out, gradient):
    out[0], gradient[0, 0] = -0.5 * x[0] * x[0], -x[0]
    gradient[1, 0] = 0.0
    out[1] = np.inf if x[0] > 1.0 else 0.0
    return 0


@every_mover
def test_infinite_density_is_refused_and_counted(name):
    """A member that got there would never leave, and would carry an infinite weight."""
    target = native(_uphill, 1)
    path = GeometricPath(target)
    x = np.minimum(np.random.default_rng(1).normal(size=(500, 1)), 1.0)
    state, info = MOVERS[name].advance(path, target.evaluate(x), 0.5, fresh_streams(500))
    assert (state.x <= 1.0).all()
    assert info.n_nan > 0


def _three_values(x, out, gradient):
    out[0] = 0.0 if 0.0 <= x[0] <= 2.0 else -np.inf
    # the middle one: infinite with the second coordinate at 1, NaN at 2, and fails at 3
    out[1] = 0.0
    if x[0] == 1.0:
        out[1] = np.inf if x[1] == 1.0 else np.nan
        return 1 if x[1] == 3.0 else 0
    return 0


@pytest.mark.parametrize("trouble", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("kernel", [GIBBS, WALK], ids=["gibbs", "integer-walk"])
def test_discrete_trouble_is_refused_and_counted(kernel, trouble):
    target = native(_three_values, 0, lower=[0, 0], upper=[2, 3])
    path, chains = GeometricPath(target), fresh_streams(300)
    state = target.evaluate(np.tile([0.0, trouble], (300, 1)))
    n_nan = 0
    for _ in range(4):
        state, info = kernel.advance(path, state, 0.5, chains)
        n_nan += info.n_nan
    assert n_nan > 0
    assert set(state.x[:, 0]) == {0.0, 2.0}
    assert np.isfinite(state.log_density).all()


def test_integer_walk_keeps_to_known_bounds():
    """Models index arrays by such variables: out of range is an error there, counted as NaN.

    A run would warn of a density that is not defined, when all that happened is a proposal.
    """
    means = np.linspace(-2.0, 2.0, 40)
    with pm.Model() as model:
        label = pm.Categorical("label", p=np.full(40, 1 / 40))
        pm.Normal("y", pt.as_tensor(means)[label], 1, observed=1.0)
    target = PyMCTarget(model)
    path, chains = GeometricPath(target), fresh_streams(2000)
    state = target.evaluate(np.random.default_rng(1).integers(0, 40, size=(2000, 1)) * 1.0)
    assert np.isnan(target.evaluate(np.array([[40.0]])).log_density).any()  # what it must avoid
    kernel = IntegerWalk(np.array([0]), np.array([15.0]))
    for _ in range(30):
        state, info = kernel.advance(path, state, 1.0, chains)
        assert info.n_nan == 0
    weight = np.exp(-0.5 * (means - 1.0) ** 2)
    counts = np.bincount(state.x[:, 0].astype(int), minlength=40)
    expected = 2000 * weight / weight.sum()
    # 39 degrees of freedom: 83 has probability 5e-5
    assert ((counts - expected) ** 2 / expected).sum() < 83


def test_integer_walk_reaches_far():
    """Geometric tails: from 1000 to 10 in few moves, and there in small ones, at one spread."""

    def far(x, out, gradient):
        out[0] = -0.5 * ((x[0] - 10.0) / 3.0) ** 2 if x[0] >= 0 else -np.inf
        out[1] = 0.0
        return 0

    target = native(far, 0, lower=[-np.inf], upper=[np.inf])
    path = GeometricPath(target)
    state, chains = target.evaluate(np.full((50, 1), 1000.0)), fresh_streams(50)
    kernel = IntegerWalk(np.array([0]), np.array([30.0]))
    for _ in range(200):
        state, _ = kernel.advance(path, state, 1.0, chains)
    assert np.abs(state.x - 10).max() < 20


@every_mover
def test_circular_coordinates_stay_in_one_period(name):
    """The density repeats itself: the integral over the whole line would diverge."""
    exact = circle()
    kernel, chains = MOVERS[name], fresh_streams(1000)
    state = exact.population(0.5, 1000, seed=3)
    before = state.x[:, 0]
    for _ in range(5):
        state, _ = kernel.advance(exact.path, state, 0.5, chains)
        assert np.abs(state.x[:, 0]).max() <= np.pi
        again = exact.path.target.evaluate(state.x)
        np.testing.assert_allclose(state.log_density, again.log_density, rtol=1e-9, atol=1e-9)
    far = np.abs(state.x[:, 0] - before) > 4.0
    assert far.sum() > 20  # across the cut, as the mode is there


@pytest.mark.parametrize("n", [1, 2, 3])
@every_case
def test_tiny_populations(system, name, n):
    """An island may be as small as a user likes: moves must stay finite."""
    exact = SYSTEMS[system]()
    state = exact.population(0.5, n, seed=3)
    kernel, chains = learnt(KERNELS[system][name], exact.path, state), fresh_streams(n)
    for _ in range(3):
        state, info = kernel.advance(exact.path, state, 0.5, chains)
        if isinstance(kernel, Tunable):
            kernel = kernel.adjust(info).learn(exact.path, state)
    assert np.isfinite(state.x).all()
    assert np.isfinite(list(kernel.settings().values())).all()


@every_mover
def test_kernel_without_a_shape_learns_it_on_the_way(name):
    exact = SYSTEMS["gaussian"]()
    state = exact.population(0.5, 500, seed=3)
    moved, info = MOVERS[name].advance(exact.path, state, 0.5, fresh_streams(500))
    assert info.acceptance > 0.1
    assert not np.array_equal(moved.x, state.x)


def test_mixed_kernel_leaves_the_other_coordinates_alone():
    """Continuous kernels move continuous coordinates only, and the others the rest."""
    exact = SYSTEMS["mixed"]()
    state = exact.population(0.5, 200, seed=3)
    for kernel in (HMC(), RandomWalk()):
        moved, _ = kernel.advance(exact.path, state, 0.5, fresh_streams(200))
        assert np.array_equal(moved.x[:, :2], state.x[:, :2])
        assert not np.array_equal(moved.x[:, 2], state.x[:, 2])
    for kernel, column in ((GIBBS, 0), (IntegerWalk(np.array([1]), np.ones(1)), 1)):
        moved, _ = kernel.advance(exact.path, state, 0.5, fresh_streams(200))
        changed = (moved.x != state.x).any(axis=0)
        assert np.array_equal(np.flatnonzero(changed), [column])
        assert moved.gradient is None  # stale where the discrete part has moved
