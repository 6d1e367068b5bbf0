"""Annealing with an estimated likelihood whose noise is known, block by block.

A planted error is among the tests: where moves forget their estimates, the evidence is wrong.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.kernels.pseudo_marginal import PseudoMarginal
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.aisel import AISEL
from pm_evidence.samplers.planning import Pilot
from pm_evidence.samplers.smc import SMC
from tests.kernels.noisy import NormalNoise, noisy

NOISE = {
    "known": NormalNoise(1e-12),
    "noisy": NormalNoise(200.0),
    "sloping": NormalNoise(100.0, slope=0.6),
    "many-words": NormalNoise(200.0, n_seeds=20),
}
CASES = [("known", 1.0), ("noisy", 1.0), ("sloping", 1.0), ("many-words", 0.2)]
every_case = pytest.mark.parametrize(("name", "renewal"), CASES)


@cache
def planned(system, name, renewal):
    found = noisy(system, NOISE[name])
    plan = Pilot(1000, 5).run(found.path, PseudoMarginal(renewal=renewal), seed=1)
    return found, plan


def check_unbiased(log_ratio):
    """The mean of Z over its exact value is 1, within 4.5 standard errors (a false alarm: 7e-6)."""
    ratio = np.exp(log_ratio)
    error = ratio.std(ddof=1) / np.sqrt(len(ratio))
    assert error < 0.05  # the check has some power
    assert abs(ratio.mean() - 1.0) < 4.5 * error


# --- unbiased, by every way there is ---


@pytest.mark.parametrize("system", ["gaussian", pytest.param("mixed", marks=pytest.mark.slow)])
@every_case
def test_islands_are_unbiased(system, name, renewal):
    found, plan = planned(system, name, renewal)
    sampler = AISEL(renewal=renewal).annealer
    records = [sampler.run_block(found.path, plan, i, 200, seed=7) for i in range(200)]
    check_unbiased(np.array([-r.work[0] for r in records]) - found.exact.log_evidence)


@every_case
def test_paths_obey_the_fluctuation_theorem(name, renewal):
    """Of reverse paths from exact draws of parameters and words; and forward ones are unbiased."""
    found, plan = planned("gaussian", name, renewal)
    sampler = AISEL(resampling=None, n_stages=40, renewal=renewal).annealer
    plan = sampler.follow(plan)
    forward = sampler.run_block(found.path, plan, 0, 10_000, seed=7).work
    log_ratio = -forward - found.exact.log_evidence
    check_unbiased(log_ratio)
    start = found.population(1.0, 10_000, seed=8).to_draws()
    reverse = sampler.run_reverse(found.path, plan, 0, start, None, seed=7).work
    # Crooks (1999): these means agree; those of the full weights have too heavy a tail to tell
    there, back = np.exp(0.5 * log_ratio), np.exp(0.5 * (reverse + found.exact.log_evidence))
    error = np.sqrt((there.var(ddof=1) + back.var(ddof=1)) / 10_000)
    assert error < 0.02
    assert abs(there.mean() - back.mean()) < 4.5 * error


@every_case
def test_bridge_is_right(name, renewal):
    """Its draws from the fitted density get estimates of their own."""
    found, plan = planned("gaussian", name, renewal)
    state = found.population(1.0, 2000, seed=3)
    work, _ = found.path.bridge_work(plan.fit, state, 10_000, np.random.default_rng(4))
    check_unbiased(-work - found.exact.log_evidence)


@dataclass(frozen=True)
class Forgetful:
    """Estimates the likelihood of every state again before it moves."""

    kernel: Any

    def advance(self, path, state, beta, chains):
        seeds = path.target.draw_seeds(len(state), np.random.default_rng(int(chains[0, 0])))
        state = path.target.estimated(state.x, seeds)
        return self.kernel.advance(path, state, beta, chains)


def test_forgotten_estimates_bias_the_evidence():
    """Were this to pass, the tests above could not see the error that they are there for."""
    found, plan = planned("gaussian", "noisy", 1.0)
    plan = AIS(n_stages=40).follow(plan)
    kernels = tuple(Forgetful(kernel) for kernel in plan.kernels)
    plan = type(plan)(plan.beta, kernels)
    work = AIS().run_block(found.path, plan, 0, 10_000, seed=7).work
    with pytest.raises(AssertionError):
        check_unbiased(-work - found.exact.log_evidence)
    # such moves make each stage's likelihood that of the mean log estimate: half of 2 is lost
    assert log_mean_exp(-work) - found.exact.log_evidence < -0.5


def test_posterior_of_the_islands_is_exact():
    """However the noise varies over it."""
    found, plan = planned("gaussian", "sloping", 1.0)
    exact = found.population(1.0, 100_000, seed=5).x
    blocks = [SMC().run_block(found.path, plan, i, 300, seed=7) for i in range(100)]
    weight = np.exp(-np.array([b.work[0] for b in blocks]) - found.exact.log_evidence)
    for moment in (lambda x: x, np.square):
        mean = np.array([moment(b.draws[:, :3]).mean(axis=0) for b in blocks])
        found_mean = weight @ mean / weight.sum()
        residual = weight[:, None] * (mean - found_mean)
        error = np.sqrt((residual**2).sum(axis=0)) / weight.sum()
        assert np.abs((found_mean - moment(exact).mean(axis=0)) / error).max() < 4.5


# --- blocks ---


def test_draws_hold_parameters_estimates_and_words():
    found, plan = planned("gaussian", "many-words", 0.2)
    record = SMC().run_block(found.path, plan, 0, 50, seed=7)
    assert record.draws.shape == (50, 3 + 1 + 20)
    again = found.path.at(record.draws)
    np.testing.assert_allclose(again.log_density[:, 1], record.draws[:, 3])
    estimated = found.target.estimated(again.x, again.seeds)
    np.testing.assert_allclose(estimated.log_density[:, 1], record.draws[:, 3], rtol=1e-12)
