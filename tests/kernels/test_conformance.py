"""One suite over all kernels: every estimate rests on what these tests say of a kernel.

Each statistical check has a false-alarm rate of 1e-6 and a fixed seed. Those of the fast tier are
so large that `test_planted_errors` finds its errors with the same numbers.
"""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pm_evidence.core.contracts import MoveInfo, Tunable
from pm_evidence.core.random import streams
from pm_evidence.kernels import hmc as trajectories
from pm_evidence.kernels.discrete import DiscreteGibbs, IntegerWalk
from pm_evidence.kernels.hmc import HMC
from pm_evidence.kernels.random_walk import RandomWalk
from pm_evidence.paths.geometric import GeometricPath
from pm_evidence.samplers.sampler import MovesRepeatedly
from pm_evidence.targets.layout import Particles
from pm_evidence.targets.model.target import PyMCTarget
from pm_evidence.testing.checks import check_invariance, check_reversal
from tests.kernels.exact import (
    BETA,
    CASES,
    FUNCTIONS,
    KERNELS,
    MOVERS,
    SYSTEMS,
    fitted,
    learnt,
    n_members,
    n_pairs,
    native,
    wall,
)

every_case = pytest.mark.parametrize(("system", "name"), CASES)
every_mover = pytest.mark.parametrize("name", MOVERS)
GIBBS = DiscreteGibbs(np.array([0]), np.zeros(1), np.full(1, 2.0))
WALK = IntegerWalk(np.array([0]), np.array([1.5]))
FAST = [(*case, BETA, 1) for case in CASES]
# At beta 0 points where the likelihood is zero have a density.
ZERO = [(*case, 0.0, 1) for case in CASES if case[0] in ("wall", "table")]
# The full grid, with four times as many members.
SLOW = [
    pytest.param(*case, beta, 4, marks=pytest.mark.slow)
    for beta in (0.0, 0.3, 1.0)
    for case in CASES
]


def fresh_streams(n, seed=5):
    return streams(np.random.SeedSequence(seed), n)


# --- what is invariant, and what the reversal is ---


@pytest.mark.parametrize(("system", "name", "beta", "times"), FAST + ZERO + SLOW)
def test_invariance(system, name, beta, times):
    """A kernel that distorts its density biases every evidence."""
    exact = SYSTEMS[system]()
    report = check_invariance(
        fitted(system, name, beta),
        exact.path,
        exact.population(beta, times * n_members(system), seed=1),
        beta,
        functions=FUNCTIONS.get(system),
    )
    assert report.moved > 0.1  # what does not move is trivially invariant


@pytest.mark.parametrize(("system", "name", "beta", "times"), FAST + SLOW)
def test_reversal(system, name, beta, times):
    """Reverse annealing with a wrong reversal is biased."""
    exact = SYSTEMS[system]()
    check_reversal(
        fitted(system, name, beta),
        exact.path,
        exact.population(beta, times * n_pairs(system), seed=2),
        beta,
        functions=FUNCTIONS.get(system),
    )


# --- states and streams ---


@every_case
def test_moves_carry_their_densities_and_report_what_they_did(system, name):
    """Stale densities would enter weights, and a start that is changed is lost to resampling."""
    exact = SYSTEMS[system]()
    start = exact.population(0.7, 200, seed=3)
    x, log_density = start.x.copy(), start.log_density.copy()
    kernel, chains = fitted(system, name, 0.7), fresh_streams(200)
    state, infos = start, []
    for _ in range(3):
        state, info = kernel.advance(exact.path, state, 0.7, chains)
        infos.append(info)
    assert np.array_equal(start.x, x) and np.array_equal(start.log_density, log_density)
    again = exact.path.target.evaluate(state.x)
    np.testing.assert_allclose(state.log_density, again.log_density, rtol=1e-10, atol=1e-10)
    if state.gradient is not None:
        gradient = exact.path.target.differentiable.evaluate(state.x)[1]
        np.testing.assert_allclose(state.gradient, gradient, rtol=1e-9, atol=1e-9)
    discrete = exact.path.target.discrete
    assert np.array_equal(state.x[:, discrete], np.round(state.x[:, discrete]))
    for info in infos:
        assert isinstance(info, MoveInfo)
        assert 0.05 < info.acceptance <= 1.0
        assert type(info.n_evaluations) is int and info.n_evaluations > 0
        assert type(info.n_nan) is int
    assert (sum(info.n_nan for info in infos) > 0) == system.startswith("holes")


@every_case
def test_member_depends_on_its_own_stream_only(system, name):
    """Otherwise results would depend on how a population is cut into blocks.

    By NumPy up to rounding: BLAS multiplies other numbers of rows in another order. What divides
    populations by the number of cores therefore leaves those alone that NumPy evaluates.
    """
    exact = SYSTEMS[system]()

    def same(one, other):
        if system.endswith("by numpy"):
            return np.allclose(one, other, rtol=1e-12, atol=1e-12)
        return np.array_equal(one, other)

    start = exact.population(0.5, 60, seed=3)
    kernel = fitted(system, name, 0.5)

    def moved(kernel, rows):
        chains = fresh_streams(60)[rows].copy()
        return kernel.advance(exact.path, start.take(rows), 0.5, chains)[0].x, chains

    everybody, some = np.arange(60), np.arange(20, 41)
    whole, chains = moved(kernel, everybody)
    assert (chains != fresh_streams(60)).any(axis=1).all()  # a second move is another one
    # an even offset: exploring kernels give odd and even members their own lengths
    part, part_chains = moved(kernel, some)
    assert same(part, whole[some]) and np.array_equal(part_chains, chains[some])
    for twice in (kernel, kernel.reversed().reversed()):
        assert np.array_equal(moved(twice, everybody)[0], whole)
    # the members of a run are exchangeable only if all move alike
    frozen = kernel.without_exploration() if isinstance(kernel, Tunable) else kernel
    odd = np.arange(1, 60, 2)
    assert same(moved(frozen, odd)[0], moved(frozen, everybody)[0][odd])
    assert frozen.advance(exact.path, start, 0.5, fresh_streams(60))[1].reach == 0.0


@every_case
def test_tuning_returns_another_kernel_and_settings_are_numbers(system, name):
    """A kernel that changed in place would change the plan that it is part of."""
    exact = SYSTEMS[system]()
    kernel = fitted(system, name, 0.5)
    before = kernel.settings()
    assert all(type(value) is float and np.isfinite(value) for value in before.values())
    if not isinstance(kernel, Tunable):
        assert not hasattr(kernel, "adjust") and not hasattr(kernel, "without_exploration")
        return
    start = exact.population(0.5, 100, seed=3)
    _, info = kernel.advance(exact.path, start, 0.5, fresh_streams(100))
    adjusted = kernel.adjust(info)
    assert type(adjusted) is type(kernel)
    assert kernel.settings() == before
    assert adjusted.settings().keys() == before.keys()
    assert type(kernel.learn(exact.path, start)) is type(kernel)
    frozen = kernel.without_exploration()
    assert frozen.without_exploration().settings() == frozen.settings()
    with pytest.raises((AttributeError, TypeError)):
        kernel.shape = None


@pytest.mark.parametrize(
    ("system", "name"), [(s, k) for s, k in CASES if isinstance(KERNELS[s][k], MovesRepeatedly)]
)
def test_several_moves_in_one_call(system, name):
    """Samplers use these where they can, and the results must not depend on it."""
    kernel = fitted(system, name, 0.5)
    exact = SYSTEMS[system]()
    start, chains, own = exact.population(0.5, 60, seed=3), fresh_streams(60), fresh_streams(60)
    together, report = kernel.advance_repeatedly(exact.path, start, 0.5, 3, own)
    states, infos = [start], []
    for _ in range(3):
        state, info = kernel.advance(exact.path, states[-1], 0.5, chains)
        states.append(state)
        infos.append(info)
    joined = start.join(states[1:])
    assert np.array_equal(together.x, joined.x)
    assert np.array_equal(together.log_density, joined.log_density)
    assert np.array_equal(own, chains)
    assert report.n_evaluations == sum(info.n_evaluations for info in infos)
    assert report.n_nan == sum(info.n_nan for info in infos)
    np.testing.assert_allclose(report.acceptance, np.mean([info.acceptance for info in infos]))


@every_case
def test_tiny_populations(system, name):
    """An island may be as small as a user likes: moves must stay finite."""
    exact = SYSTEMS[system]()
    for n in (1, 2, 3):
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


# --- where densities are zero, NaN or infinite: no kernel may turn trouble into a number ---


@every_case
def test_members_of_weight_zero_stay(system, name):
    """A path of weight zero has left the support: were it moved back in, it would count again."""
    exact = SYSTEMS[system]()
    start = state = exact.population(0.5, 30, seed=3)
    log_density = state.log_density.copy()
    log_density[::2, 1] = -np.inf
    state = Particles(state.x, log_density)
    kernel = fitted(system, name, 0.5)
    chains = fresh_streams(30)
    for _ in range(3):
        state, info = kernel.advance(exact.path, state, 0.5, chains)
        assert np.array_equal(state.x[::2], start.x[::2])
        assert np.array_equal(state.log_density[::2], log_density[::2])
    if not system.startswith("holes"):
        assert info.n_nan == 0
    assert not np.array_equal(state.x[1::2], start.x[1::2])
    # and a whole population of weight zero is no error
    dead = Particles(start.x, np.full_like(log_density, -np.inf))
    moved, info = kernel.advance(exact.path, dead, 0.5, chains)
    assert np.array_equal(moved.x, start.x)
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


def test_infinite_density_is_refused_and_counted():
    """A member that got there would never leave, and would carry an infinite weight."""
    target = native(_uphill, 1)
    path = GeometricPath(target)
    x = np.minimum(np.random.default_rng(1).normal(size=(500, 1)), 1.0)
    for name, kernel in MOVERS.items():
        state, info = kernel.advance(path, target.evaluate(x), 0.5, fresh_streams(500))
        assert (state.x <= 1.0).all(), name
        assert info.n_nan > 0, name


def _three_values(x, out, gradient):
    out[0] = 0.0 if 0.0 <= x[0] <= 2.0 else -np.inf
    # the middle one: infinite with the second coordinate at 1, NaN at 2, and fails at 3
    out[1] = 0.0
    if x[0] == 1.0:
        out[1] = np.inf if x[1] == 1.0 else np.nan
        return 1 if x[1] == 3.0 else 0
    return 0


def test_discrete_trouble_is_refused_and_counted():
    target = native(_three_values, 0, lower=[0, 0], upper=[2, 3])
    path = GeometricPath(target)
    for kernel in (GIBBS, WALK):
        for trouble in (1.0, 2.0, 3.0):
            chains, n_nan = fresh_streams(300), 0
            state = target.evaluate(np.tile([0.0, trouble], (300, 1)))
            for _ in range(4):
                state, info = kernel.advance(path, state, 0.5, chains)
                n_nan += info.n_nan
            assert n_nan > 0, (kernel, trouble)
            assert set(state.x[:, 0]) == {0.0, 2.0}, (kernel, trouble)
            assert np.isfinite(state.log_density).all(), (kernel, trouble)


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


def _far(x, out, gradient):
    out[0] = -0.5 * ((x[0] - 10.0) / 3.0) ** 2 if x[0] >= 0 else -np.inf
    out[1] = 0.0
    return 0


def test_integer_walk_reaches_far():
    """Geometric tails: from 1000 to 10 in few moves, and there in small ones, at one spread."""
    target = native(_far, 0, lower=[-np.inf], upper=[np.inf])
    path = GeometricPath(target)
    state, chains = target.evaluate(np.full((50, 1), 1000.0)), fresh_streams(50)
    kernel = IntegerWalk(np.array([0]), np.array([30.0]))
    for _ in range(200):
        state, _ = kernel.advance(path, state, 1.0, chains)
    assert np.abs(state.x - 10).max() < 20


@pytest.mark.parametrize(("system", "name"), [(s, k) for s, k in CASES if s.startswith("circle")])
def test_circular_coordinates_stay_in_one_period(system, name):
    """The density outside counts as zero, and the integral over the whole line would diverge."""
    exact = SYSTEMS[system]()
    kernel, chains = KERNELS[system][name], fresh_streams(1000)
    state = exact.population(0.5, 1000, seed=3)
    before = state.x[:, 0]
    for _ in range(5):
        state, _ = kernel.advance(exact.path, state, 0.5, chains)
        assert np.abs(state.x[:, 0]).max() <= np.pi
        assert not exact.path.target.outside(state.x).any()
    far = np.abs(state.x[:, 0] - before) > 4.0
    assert far.sum() > 20  # across the cut, as the mode is there


# --- trajectories of a whole population by JAX or NumPy, against those of numba, same streams ---

together = pytest.mark.parametrize("backend", ["jax", "numpy"])


def moved(kernel, system, start, beta=0.5):
    chains = fresh_streams(len(start))
    state, info = kernel.advance(SYSTEMS[system]().path, start, beta, chains)
    return state, info, chains


@together
@pytest.mark.parametrize("system", ["gaussian", "circle"])
@pytest.mark.parametrize("name", ["hmc-dense", "hmc-diagonal", "hmc-exploring"])
def test_the_same_move_as_numba(system, name, backend):
    """The same streams give the same momenta, step sizes and decisions."""
    kernel = fitted(system, name, 0.5)
    start = SYSTEMS[system]().population(0.5, 60, seed=2)
    one, info, chains = moved(kernel, system, start)
    other, found, other_chains = moved(kernel, f"{system} by {backend}", start)
    np.testing.assert_allclose(other.x, one.x, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(other.log_density, one.log_density, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(other.gradient, one.gradient, rtol=1e-9, atol=1e-9)
    assert np.array_equal(chains, other_chains)
    assert found.acceptance == pytest.approx(info.acceptance, rel=1e-10)
    assert (found.n_evaluations, found.n_nan) == (info.n_evaluations, info.n_nan)
    assert found.reach == info.reach


@together
def test_a_density_of_nan_is_rejected_and_counted(backend):
    """Random numbers differ from those of numba here, which draws none for the decision."""
    start = SYSTEMS[f"holes by {backend}"]().population(0.5, 60, seed=2)
    kernel = HMC(step_size=1.5, path_length=4.5)
    one, info, _ = moved(kernel, "holes", start)
    other, found, _ = moved(kernel, f"holes by {backend}", start)
    assert found.n_nan == info.n_nan > 5
    np.testing.assert_allclose(other.x, one.x, rtol=1e-10)
    assert (other.x > 0.0).all()


@together
def test_one_member_and_many(backend):
    """JAX pads populations to two sizes, in blocks; nothing starts from NaN."""
    system = f"gaussian by {backend}"
    exact = SYSTEMS[system]()
    start = exact.population(0.5, 3000, seed=2)
    kernel = HMC().learn(exact.path, start)
    whole = moved(kernel, system, start)[0]
    chains = fresh_streams(3000)
    for rows in ([0], [17, 2999], range(100, 109)):
        index = np.array(rows)
        part = kernel.advance(exact.path, start.take(index), 0.5, chains[index].copy())[0]
        np.testing.assert_allclose(part.x, whole.x[index], rtol=1e-10, atol=1e-10)
    few = start.take(np.arange(60))
    few.log_density[6, 1] = np.nan
    state, info, _ = moved(kernel, system, few)
    assert np.array_equal(state.x[6], few.x[6]) and info.n_nan == 0
    assert np.isfinite(np.delete(state.log_density, 6, axis=0)).all()


@together
def test_a_wrong_leapfrog_is_caught(backend, monkeypatch):
    """Without the last half step of the momentum a proposal is not reversible."""
    leapfrog = trajectories._leapfrog

    def too_short(*arguments):
        *rest, last = leapfrog(*arguments)
        return *rest, 0.0 * last

    monkeypatch.setattr(trajectories, "_leapfrog", too_short)
    kernel = replace(fitted(f"gaussian by {backend}", "hmc-dense", BETA), step_size=1.4)
    exact = SYSTEMS[f"gaussian by {backend}"]()
    with pytest.raises(AssertionError, match="invariant"):
        check_invariance(kernel, exact.path, exact.population(BETA, 5000, seed=1), BETA)
