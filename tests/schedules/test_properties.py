"""What holds of every schedule, whatever the variances, the population and the number of stages."""

from dataclasses import dataclass

import numpy as np
import pytest

from pm_evidence.core.numerics import ess_share
from pm_evidence.schedules.adaptive import next_beta
from pm_evidence.schedules.fixed import fixed_schedule, linear, refine, sm08
from pm_evidence.schedules.learnt import even_steps

every_seed = pytest.mark.parametrize("seed", range(40))


def check_rises(beta):
    assert beta[0] == 0.0 and beta[-1] == 1.0
    assert (np.diff(beta) > 0.0).all()


def some_schedule(rng, n_stages):
    """A schedule whose steps may differ by many decades."""
    step = np.exp(rng.uniform(-8.0, 0.0, n_stages))
    beta = np.append(0.0, np.cumsum(step)) / step.sum()
    beta[-1] = 1.0
    return beta


def some_variances(rng, n_stages):
    """Variances over many decades, some of which are zero or rounded below it."""
    variance = np.exp(rng.normal(0.0, rng.uniform(0.0, 5.0), n_stages))
    variance[rng.random(n_stages) < 0.1] = 0.0
    variance[rng.random(n_stages) < 0.05] = -1e-12
    return variance


# --- schedules known before the run ---


@every_seed
def test_named_and_refined_schedules_rise_from_0_to_1(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 3000))
    coarse = some_schedule(rng, int(rng.integers(1, 60)))
    for beta in (linear(n), sm08(n), refine(coarse, n)):
        check_rises(beta)
        np.testing.assert_array_equal(fixed_schedule(beta, 1), beta)
    fine = refine(coarse, n)
    parts = (len(fine) - 1) // (len(coarse) - 1)
    np.testing.assert_allclose(fine[::parts], coarse, rtol=1e-12, atol=1e-15)


# --- schedules learnt from a trial run ---


@every_seed
def test_learnt_schedules_rise_from_0_to_1(seed):
    rng = np.random.default_rng(seed)
    n_trial, n = rng.integers(1, 500, size=2)
    check_rises(even_steps(some_schedule(rng, n_trial), some_variances(rng, n_trial), n))


@every_seed
def test_the_unit_of_the_energy_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    n_trial, n = rng.integers(1, 200, size=2)
    beta, variance = some_schedule(rng, n_trial), some_variances(rng, n_trial)
    found = even_steps(beta, variance, n)
    scaled = even_steps(beta, 10.0 ** rng.uniform(-8, 8) * variance, n)
    np.testing.assert_allclose(scaled, found, rtol=1e-9, atol=1e-14)


@every_seed
def test_twice_the_stages_keep_every_second_inverse_temperature(seed):
    rng = np.random.default_rng(seed)
    n_trial, n = rng.integers(1, 200, size=2)
    beta, variance = some_schedule(rng, n_trial), some_variances(rng, n_trial)
    twice = even_steps(beta, variance, 2 * n)
    np.testing.assert_allclose(twice[::2], even_steps(beta, variance, n), rtol=1e-9, atol=1e-14)


@every_seed
def test_the_way_back_has_the_same_steps(seed):
    """Few stages, whose variances are not averaged: reversing the trial run reverses the result."""
    rng = np.random.default_rng(seed)
    n_trial, n = rng.integers(1, 40, size=2)
    beta, variance = some_schedule(rng, n_trial), some_variances(rng, n_trial)
    back = even_steps(1.0 - beta[::-1], variance[::-1], n)
    np.testing.assert_allclose(1.0 - back[::-1], even_steps(beta, variance, n), atol=1e-9)


@every_seed
def test_a_stage_cut_in_two_changes_nothing(seed):
    """What counts is the variance at each inverse temperature, not how often it was looked at."""
    rng = np.random.default_rng(seed)
    n_trial, n = rng.integers(1, 20), rng.integers(1, 200)
    beta, variance = some_schedule(rng, n_trial), some_variances(rng, n_trial)
    halves = np.sort(np.append(beta, 0.5 * (beta[1:] + beta[:-1])))
    found = even_steps(halves, np.repeat(variance, 2), n)
    np.testing.assert_allclose(found, even_steps(beta, variance, n), rtol=1e-9, atol=1e-12)


@every_seed
def test_learnt_steps_make_the_work_vary_less_than_equal_ones(seed):
    """The variance of the work of perfect stages is the sum of ``step**2 * variance``.

    Steps of density ``V**p`` do no worse than equal ones for every p from 0 to 1, because
    ``E[V**(1 - p)] E[V**p] <= E[V]``; the tenth that lies evenly is a mixture of the two.
    """
    rng = np.random.default_rng(seed)
    trial = np.linspace(0.0, 1.0, 31)
    variance = np.exp(rng.normal(0.0, 2.0, 30))
    learnt, n = even_steps(trial, variance, 6000), 6000

    def spread_of(beta):
        middle = 0.5 * (beta[1:] + beta[:-1])
        return np.sum(np.diff(beta) ** 2 * variance[np.minimum((30 * middle).astype(int), 29)])

    assert n * spread_of(learnt) <= n * spread_of(linear(n)) * (1.0 + 1e-3)


# --- schedules found stage by stage ---


@dataclass(frozen=True)
class Tempered:
    """A path over a population that is nothing but its log likelihoods."""

    def log_ratio(self, state, start, stop):
        return (stop - start) * state


def some_log_likelihoods(rng):
    n = int(rng.integers(2, 300))
    values = 10.0 ** rng.uniform(-2, 6) * rng.standard_t(3, n)
    values[1:][rng.random(n - 1) < 0.1] = -np.inf
    return values


@every_seed
def test_each_step_keeps_the_effective_size_until_the_end(seed):
    """The population stands still here, which is the hardest case for a rising schedule."""
    rng = np.random.default_rng(seed)
    values, ess = some_log_likelihoods(rng), rng.uniform(0.2, 0.95)
    alive, beta = np.isfinite(values).mean(), [0.0]
    while beta[-1] < 1.0 and len(beta) < 12:
        beta.append(next_beta(Tempered(), values, beta[-1], ess))
        share = ess_share((beta[-1] - beta[-2]) * values)
        if beta[-1] < 1.0:
            assert share == pytest.approx(ess * alive, rel=1e-6)
        else:
            assert share >= ess * alive * (1.0 - 1e-9)
    assert (np.diff(beta) > 0.0).all()


@every_seed
def test_constants_and_order_do_not_change_a_step(seed):
    """A constant of the likelihood is no information, nor is the order of the members."""
    rng = np.random.default_rng(seed)
    values, ess = some_log_likelihoods(rng), rng.uniform(0.2, 0.95)
    found = next_beta(Tempered(), values, 0.0, ess)
    scale = np.ptp(values[np.isfinite(values)])
    other = rng.permutation(values + scale * rng.normal())
    assert next_beta(Tempered(), other, 0.0, ess) == pytest.approx(found, rel=1e-6)


@every_seed
def test_a_larger_effective_size_asks_for_a_shorter_step(seed):
    rng = np.random.default_rng(seed)
    values = some_log_likelihoods(rng)
    steps = [next_beta(Tempered(), values, 0.0, ess) for ess in (0.3, 0.6, 0.9, 0.99)]
    assert (np.diff(steps) <= 0.0).all()
