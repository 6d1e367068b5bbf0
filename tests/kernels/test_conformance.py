"""One suite over all kernels: every estimate rests on what these tests say of a kernel.

Each statistical check has a false-alarm rate of 1e-6 and a fixed seed.
"""

import numpy as np
import pytest

from pm_evidence.core.contracts import MoveInfo, Tunable
from pm_evidence.core.random import streams
from pm_evidence.samplers.moves import MovesRepeatedly
from pm_evidence.testing.invariance import check_invariance, check_reversal
from tests.kernels.exact import CASES, FUNCTIONS, KERNELS, N_PAIRS, SYSTEMS, fitted

N = 20_000
BETAS = (0.0, 0.3, 1.0)
every_case = pytest.mark.parametrize(("system", "name"), CASES)
every_beta = pytest.mark.parametrize("beta", BETAS)


def fresh_streams(n, seed=5):
    return streams(np.random.SeedSequence(seed), n)


@every_case
@every_beta
def test_invariance(system, name, beta):
    """A kernel that distorts its density biases every evidence."""
    exact = SYSTEMS[system]()
    report = check_invariance(
        fitted(system, name, beta),
        exact.path,
        exact.population(beta, N, seed=1),
        beta,
        functions=FUNCTIONS.get(system),
    )
    assert report.moved > 0.1  # what does not move is trivially invariant


@every_case
@every_beta
def test_reversal(system, name, beta):
    """Reverse annealing with a wrong reversal is biased."""
    exact = SYSTEMS[system]()
    check_reversal(
        fitted(system, name, beta),
        exact.path,
        exact.population(beta, N_PAIRS if system == "table" else N, seed=2),
        beta,
        functions=FUNCTIONS.get(system),
    )


@every_case
def test_state_carries_the_densities_of_its_points(system, name):
    """Stale densities would enter weights and later moves."""
    exact = SYSTEMS[system]()
    start = exact.population(0.7, 200, seed=3)
    kernel, chains = fitted(system, name, 0.7), fresh_streams(200)
    state = start
    for _ in range(3):
        state, _ = kernel.advance(exact.path, state, 0.7, chains)
    again = exact.path.target.evaluate(state.x)
    np.testing.assert_allclose(state.log_density, again.log_density, rtol=1e-10, atol=1e-10)
    if state.gradient is not None:
        gradient = exact.path.target.differentiable.evaluate(state.x)[1]
        np.testing.assert_allclose(state.gradient, gradient, rtol=1e-9, atol=1e-9)
    discrete = exact.path.target.discrete
    assert np.array_equal(state.x[:, discrete], np.round(state.x[:, discrete]))


@every_case
def test_start_is_left_alone(system, name):
    """Resampling and repeated tuning use a population again after it was moved."""
    exact = SYSTEMS[system]()
    start = exact.population(0.5, 50, seed=3)
    x, log_density = start.x.copy(), start.log_density.copy()
    fitted(system, name, 0.5).advance(exact.path, start, 0.5, fresh_streams(50))
    assert np.array_equal(start.x, x)
    assert np.array_equal(start.log_density, log_density)


@every_case
def test_member_depends_on_its_own_stream_only(system, name):
    """Otherwise results would depend on how a population is cut into blocks."""
    exact = SYSTEMS[system]()
    start = exact.population(0.5, 60, seed=3)
    kernel = fitted(system, name, 0.5)
    chains = fresh_streams(60)
    whole = kernel.advance(exact.path, start, 0.5, chains)[0]
    # an even offset: exploring kernels give odd and even members their own lengths
    part_chains = fresh_streams(60)[20:41].copy()
    part = kernel.advance(exact.path, start.take(np.arange(20, 41)), 0.5, part_chains)[0]
    assert np.array_equal(part.x, whole.x[20:41])
    assert np.array_equal(part_chains, chains[20:41])
    again = kernel.advance(exact.path, start, 0.5, fresh_streams(60))[0]
    assert np.array_equal(again.x, whole.x)


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


@pytest.mark.parametrize(("system", "name"), [(s, k) for s, k in CASES if s.startswith("circle")])
def test_circular_coordinates_stay_in_one_period(system, name):
    """The density outside counts as zero; the mode is near the cut, which many moves cross."""
    exact = SYSTEMS[system]()
    kernel, chains = fitted(system, name, 0.5), fresh_streams(200)
    state = exact.population(0.5, 200, seed=3)
    for _ in range(5):
        state, _ = kernel.advance(exact.path, state, 0.5, chains)
        assert not exact.path.target.outside(state.x).any()


@every_case
def test_streams_advance(system, name):
    """A second move with the same random numbers would repeat the first."""
    exact = SYSTEMS[system]()
    chains = fresh_streams(30)
    start = exact.population(0.5, 30, seed=3)
    fitted(system, name, 0.5).advance(exact.path, start, 0.5, chains)
    assert (chains != fresh_streams(30)).any(axis=1).all()


@every_case
def test_report(system, name):
    exact = SYSTEMS[system]()
    kernel = fitted(system, name, 0.5)
    start = exact.population(0.5, 400, seed=3)
    _, info = kernel.advance(exact.path, start, 0.5, fresh_streams(400))
    assert isinstance(info, MoveInfo)
    assert 0.05 < info.acceptance <= 1.0
    assert info.n_evaluations > 0
    assert (info.n_nan > 0) == system.startswith("holes")
    assert type(info.n_evaluations) is int
    assert type(info.n_nan) is int


@every_case
def test_settings_are_numbers(system, name):
    """They are stored per stage."""
    settings = fitted(system, name, 0.5).settings()
    assert all(type(value) is float and np.isfinite(value) for value in settings.values())


@every_case
def test_tuning_returns_another_kernel(system, name):
    """A kernel that changed in place would change the plan that it is part of."""
    exact = SYSTEMS[system]()
    kernel = fitted(system, name, 0.5)
    before = kernel.settings()
    start = exact.population(0.5, 100, seed=3)
    _, info = kernel.advance(exact.path, start, 0.5, fresh_streams(100))
    if not isinstance(kernel, Tunable):
        assert not hasattr(kernel, "adjust") and not hasattr(kernel, "without_exploration")
        return
    adjusted = kernel.adjust(info)
    assert type(adjusted) is type(kernel)
    assert kernel.settings() == before
    assert adjusted.settings().keys() == before.keys()
    assert type(kernel.learn(exact.path, start)) is type(kernel)
    with pytest.raises((AttributeError, TypeError)):
        kernel.shape = None


@every_case
def test_frozen_kernel_does_not_explore(system, name):
    """The members of a run are exchangeable only if all move alike."""
    exact = SYSTEMS[system]()
    kernel = fitted(system, name, 0.5)
    frozen = kernel.without_exploration() if isinstance(kernel, Tunable) else kernel
    start = exact.population(0.5, 40, seed=3)
    chains = fresh_streams(40)
    whole = frozen.advance(exact.path, start, 0.5, chains)[0]
    odd = np.arange(1, 40, 2)
    part = frozen.advance(exact.path, start.take(odd), 0.5, fresh_streams(40)[odd])[0]
    assert np.array_equal(part.x, whole.x[odd])
    if isinstance(kernel, Tunable):
        assert frozen.without_exploration().settings() == frozen.settings()
    _, info = frozen.advance(exact.path, start, 0.5, fresh_streams(40))
    assert info.reach == 0.0


@every_case
def test_reversal_of_the_reversal_is_the_kernel(system, name):
    exact = SYSTEMS[system]()
    kernel = fitted(system, name, 0.5)
    start = exact.population(0.5, 40, seed=3)
    once = kernel.advance(exact.path, start, 0.5, fresh_streams(40))[0]
    twice = kernel.reversed().reversed().advance(exact.path, start, 0.5, fresh_streams(40))[0]
    assert np.array_equal(once.x, twice.x)
