"""Pseudo-marginal moves leave the density of parameters and random words as it is.

The noise of the estimates has a known law, so that parameters and words can be drawn exactly
together. Each statistical check has a false-alarm rate of 1e-6 and a fixed seed.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import streams
from pm_evidence.kernels import pseudo_marginal
from pm_evidence.kernels.pseudo_marginal import PseudoMarginal
from pm_evidence.testing.checks import check_invariance, check_reversal
from tests.kernels.exact import circle_functions
from tests.kernels.noisy import Broken, Half, NormalNoise, noisy, normals_of

N = 5000  # errors are caught with so many
ONE, MANY = NormalNoise(), NormalNoise(n_seeds=20)
CASES = {
    "continuous": (("gaussian", ONE), PseudoMarginal()),
    "continuous-many-words": (("gaussian", MANY), PseudoMarginal()),
    "continuous-correlated": (("gaussian", MANY), PseudoMarginal(renewal=0.1)),
    "correlated-one-word": (("gaussian", ONE), PseudoMarginal(renewal=0.3)),
    "several-steps": (("gaussian", ONE), PseudoMarginal(n_steps=3)),
    "very-noisy": (("gaussian", NormalNoise(400.0)), PseudoMarginal()),
    "two-estimators": (("gaussian", NormalNoise(30.0), MANY), PseudoMarginal(renewal=0.3)),
    "circular": (("circle", ONE), PseudoMarginal()),
    "circular-correlated": (("circle", MANY), PseudoMarginal(renewal=0.2)),
    "mixed": (("mixed", ONE), PseudoMarginal()),
    "mixed-correlated": (("mixed", MANY), PseudoMarginal(renewal=0.2)),
    "discrete": (("table", ONE), PseudoMarginal()),
    "discrete-correlated": (("table", MANY), PseudoMarginal(renewal=0.2)),
    "zero-estimates": (("gaussian", Half()), PseudoMarginal()),
    "broken-estimates": (("gaussian", Broken()), PseudoMarginal()),
}
every_case = pytest.mark.parametrize("name", CASES)


def case(name, beta):
    """Return system, kernel with its shape learnt from other draws, and test functions."""
    (system, *noise), kernel = CASES[name]
    found = noisy(system, *noise)
    kernel = kernel.learn(found.path, found.population(beta, 2000, seed=99))
    return found, kernel, functions_of(found) if system in ("circle", "table") else None


def functions_of(found):
    """Return test functions that know which coordinates have no order."""
    d = found.target.n_dim

    def functions(draws):
        if found.target.discrete.size:
            x = {f"x{j}={v}": (draws[:, j] == v).astype(float) for j in range(d) for v in range(4)}
        else:
            x = circle_functions(draws[:, :d])
        normals = normals_of(draws[:, d + 1 :])
        return x | {"noise": normals.sum(axis=1), "noise^2": normals[:, 0] ** 2}

    return functions


def fresh_streams(n, seed=5):
    return streams(np.random.SeedSequence(seed), n)


# --- invariance ---


@every_case
def test_invariance_and_reversal(name):
    """A kernel that distorts the joint density of parameters and words biases every evidence."""
    check_both(name, 0.7, N)


@pytest.mark.slow
@every_case
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_invariance_and_reversal_at_other_temperatures(name, beta):
    check_both(name, beta, 2 * N)


def check_both(name, beta, n):
    found, kernel, functions = case(name, beta)
    population = found.population(beta, n, seed=1)
    report = check_invariance(kernel, found.path, population, beta, functions=functions)
    assert report.moved > 0.1  # what does not move is trivially invariant
    population = found.population(beta, n, seed=2)
    check_reversal(kernel, found.path, population, beta, functions=functions)


@pytest.mark.parametrize("renewal", [1.0, 0.3])
def test_noise_that_depends_on_the_parameters_does_not_bias_them(renewal):
    """At beta 1 the posterior is the exact one, however the noise varies over it."""
    found, kernel = sloping(renewal)
    assert np.abs(drift(found, kernel)).max() < 5.0


def sloping(renewal=1.0):
    found = noisy("gaussian", NormalNoise(n_seeds=5, slope=0.7))
    kernel = PseudoMarginal(renewal=renewal)
    return found, kernel.learn(found.path, found.population(1.0, 2000, seed=99))


def drift(found, kernel):
    """Return how far the mean of each coordinate moves from exact draws, in standard errors."""
    start = state = found.population(1.0, 20_000, seed=1)
    chains = fresh_streams(len(start))
    for _ in range(10):
        state, _ = kernel.advance(found.path, state, 1.0, chains)
    change = state.x - start.x
    return change.mean(axis=0) / (change.std(axis=0) / np.sqrt(len(change)))


# --- planted errors ---


@dataclass(frozen=True)
class Wrapped:
    """A kernel with a planted error."""

    kernel: Any

    def advance(self, path, state, beta, chains):
        return self.kernel.advance(path, state, beta, chains)

    def reversed(self):
        return self


class Forgetful(Wrapped):
    """Estimates the likelihood of every state again before it moves."""

    def advance(self, path, state, beta, chains):
        seeds = path.target.draw_seeds(len(state), np.random.default_rng(int(chains[0, 0])))
        state = path.target.estimated(state.x, seeds)
        return self.kernel.advance(path, state, beta, chains)


class Unpaired(Wrapped):
    """Takes a proposal without its estimate."""

    def advance(self, path, state, beta, chains):
        moved, info = self.kernel.advance(path, state, beta, chains)
        return replace(moved, log_density=state.log_density), info


class AtWrongBeta(Wrapped):
    """Moves at the inverse temperature of the stage before."""

    def advance(self, path, state, beta, chains):
        return self.kernel.advance(path, state, 0.7 * beta, chains)


@pytest.mark.parametrize("error", [Forgetful, Unpaired, AtWrongBeta])
def test_errors_are_caught(error):
    """Were this to pass, the test of invariance could not see what it is there for."""
    found, kernel, _ = case("continuous", 0.7)
    with pytest.raises(AssertionError, match="invariant"):
        check_invariance(error(kernel), found.path, found.population(0.7, N, seed=1), 0.7)


def test_estimates_that_are_not_kept_bias_the_parameters():
    """The error of Monte Carlo within Metropolis shows in the posterior itself."""
    found, kernel = sloping()
    assert np.abs(drift(found, Forgetful(kernel))).max() > 10.0


@pytest.mark.parametrize("name", ["continuous", "circular", "mixed", "discrete-correlated"])
def test_kernel_without_reject_step_is_caught(name, monkeypatch):
    found, kernel, functions = case(name, 0.7)
    monkeypatch.setattr(pseudo_marginal, "_decide", pseudo_marginal._decide.py_func)
    monkeypatch.setattr(pseudo_marginal, "accepts", lambda log_ratio, stream: True)
    with pytest.raises(AssertionError, match="invariant"):
        check_invariance(
            kernel, found.path, found.population(0.7, 2000, seed=1), 0.7, functions=functions
        )


# --- what moves carry ---


@every_case
def test_state_carries_the_estimates_of_its_words(name):
    """An estimate is a function of parameters and words: weights and later moves rest on it.

    The start is left alone: resampling and repeated tuning use it again after it was moved.
    """
    found, kernel, _ = case(name, 0.7)
    start, chains = found.population(0.7, 300, seed=3), fresh_streams(300)
    before = start.x.copy(), start.log_density.copy(), start.seeds.copy()
    state = start
    for _ in range(3):
        state, _ = kernel.advance(found.path, state, 0.7, chains)
    for array, copy in zip((start.x, start.log_density, start.seeds), before, strict=True):
        assert np.array_equal(array, copy)
    again = found.target.estimated(state.x, state.seeds)
    np.testing.assert_allclose(state.log_density, again.log_density, rtol=1e-12, atol=1e-12)


def test_refused_proposals_leave_the_estimate():
    found, kernel, _ = case("continuous", 1.0)
    start = found.population(1.0, 500, seed=3)
    state, _ = kernel.advance(found.path, start, 1.0, fresh_streams(500))
    stayed = (state.x == start.x).all(axis=1)
    assert 0.2 < stayed.mean() < 0.95
    assert np.array_equal(state.log_density[stayed], start.log_density[stayed])
    assert np.array_equal(state.seeds[stayed], start.seeds[stayed])
    assert (state.seeds[~stayed] != start.seeds[~stayed]).all()


def test_share_of_the_words_is_renewed():
    found, kernel, _ = case("continuous-correlated", 0.3)
    start = found.population(0.3, 4000, seed=3)
    state, _ = kernel.advance(found.path, start, 0.3, fresh_streams(4000))
    moved = (state.x != start.x).any(axis=1)
    share = (state.seeds != start.seeds)[moved].mean()
    # 20 words of about 2,000 states: 5 standard errors, and a little for what acceptance prefers
    assert abs(share - 0.1) < 0.01


def test_correlated_estimates_are_accepted_more_often():
    noise = NormalNoise(600.0, n_seeds=50)
    found = noisy("gaussian", noise)
    population = found.population(1.0, 3000, seed=3)
    rates = []
    for renewal in (1.0, 0.02):
        kernel = PseudoMarginal(renewal=renewal).learn(found.path, population)
        _, info = kernel.advance(found.path, population, 1.0, fresh_streams(3000))
        rates.append(info.acceptance)
    assert rates[1] > 3 * rates[0]


def test_nothing_is_accepted_from_an_impossible_state():
    found = noisy("gaussian", Half())
    kernel = PseudoMarginal().learn(found.path, found.population(1.0, 500, seed=3))
    x = found.population(1.0, 200, seed=4).x
    dead = found.target.estimated(x, np.zeros((200, 1), np.uint64))
    assert (dead.log_density[:, 1] == -np.inf).all()
    state, info = kernel.advance(found.path, dead, 0.5, fresh_streams(200))
    assert np.array_equal(state.x, x)
    assert info.acceptance == 0.0


def test_estimates_that_are_no_number_are_counted_and_refused():
    found, kernel, _ = case("broken-estimates", 1.0)
    start = found.population(1.0, 2000, seed=3)
    state, info = kernel.advance(found.path, start, 1.0, fresh_streams(2000))
    assert 0.2 < info.n_nan / 2000 < 0.3
    assert not np.isnan(state.log_density).any()


# --- reproducibility ---


@every_case
def test_member_depends_on_its_own_stream_only(name):
    """Otherwise results would depend on how a population is cut into blocks."""
    found, kernel, _ = case(name, 0.5)
    start, chains = found.population(0.5, 60, seed=3), fresh_streams(60)
    whole = kernel.advance(found.path, start, 0.5, chains)[0]
    part_chains = fresh_streams(60)[20:41].copy()
    part = kernel.advance(found.path, start.take(np.arange(20, 41)), 0.5, part_chains)[0]
    again = kernel.advance(found.path, start, 0.5, fresh_streams(60))[0]
    for one, other in ((part, whole.take(np.arange(20, 41))), (again, whole)):
        assert np.array_equal(one.x, other.x)
        assert np.array_equal(one.seeds, other.seeds)
        assert np.array_equal(one.log_density, other.log_density)
    assert np.array_equal(part_chains, chains[20:41])
    assert (chains != fresh_streams(60)).any(axis=1).all()


@pytest.mark.parametrize("name", ["continuous", "mixed-correlated", "discrete"])
def test_compiled_equals_interpreted(name, monkeypatch):
    found, kernel, _ = case(name, 0.6)
    start = found.population(0.6, 40, seed=3)
    compiled, info = kernel.advance(found.path, start, 0.6, fresh_streams(40))
    for function in ("_decide", "_propose", "_step", "_renew"):
        plain = getattr(pseudo_marginal, function).py_func
        monkeypatch.setattr(pseudo_marginal, function, plain)
    monkeypatch.setattr(pseudo_marginal, "_SHIFT", np.uint64(11))
    interpreted, python_info = kernel.advance(found.path, start, 0.6, fresh_streams(40))
    np.testing.assert_allclose(interpreted.x, compiled.x, rtol=1e-12, atol=1e-12)
    assert np.array_equal(interpreted.seeds, compiled.seeds)
    np.testing.assert_allclose(python_info.acceptance, info.acceptance, rtol=1e-10)
    assert python_info.n_evaluations == info.n_evaluations


# --- settings ---


def test_report_and_settings():
    found, kernel, _ = case("several-steps", 0.5)
    start = found.population(0.5, 400, seed=3)
    _, info = kernel.advance(found.path, start, 0.5, fresh_streams(400))
    assert isinstance(info, MoveInfo)
    assert 0.05 < info.acceptance <= 1.0
    assert (info.n_evaluations, info.n_nan) == (3 * 400, 0)
    adjusted = kernel.adjust(info)
    assert adjusted is not kernel and kernel.scale == 1.0
    assert (
        kernel.without_exploration().settings()
        == kernel.settings()
        == {"scale": 1.0, "renewal": 1.0}
    )


def test_scale_stays_within_bounds():
    """Noise lowers the acceptance however short steps are: they must not shrink to nothing."""
    kernel = PseudoMarginal()
    for _ in range(100):
        kernel = kernel.adjust(MoveInfo(0.0, 1))
    assert kernel.scale == pytest.approx(0.4)
    for _ in range(100):
        kernel = kernel.adjust(MoveInfo(1.0, 1))
    assert kernel.scale == pytest.approx(1.5)


def test_the_spread_of_whole_numbers_is_checked():
    for spread in ([0.5], [1e300]):
        with pytest.raises(
            ValueError, match=r"spread must be from 1, .* to 1e\+15, got .*leave it"
        ):
            PseudoMarginal(spread=spread)
    with pytest.raises(ValueError, match="spread must be a row of one number for each"):
        PseudoMarginal(spread=3)
