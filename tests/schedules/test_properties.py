"""What holds of every schedule, whatever the variances, the population and the number of stages."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pm_evidence.core.numerics import ess_share
from pm_evidence.schedules import (
    decelerated,
    fixed_schedule,
    gms13,
    linear,
    next_beta,
    refine,
    sm08,
    varopt,
)
from tests.strategies import floats, log_terms, powers, schedules, trial_runs, vectors


def check_rises(beta):
    assert beta[0] == 0.0 and beta[-1] == 1.0
    assert (np.diff(beta) > 0.0).all()


# --- schedules known before the run ---


@given(n=st.integers(1, 3000))
def test_named_schedules_rise_from_0_to_1(n):
    for found in (linear(n), sm08(n)):
        check_rises(found)
        assert found.shape == (n + 1,)
        np.testing.assert_array_equal(fixed_schedule(found), found)


@given(coarse=schedules(60, smallest=1e-8), n=st.integers(1, 3000))
def test_refined_schedules_rise_and_keep_the_coarse_one(coarse, n):
    """They have the next multiple of the stages asked for.

    Positions of the interpolation are rounded in units of the number of stages, and no step is
    longer than 1: this is the tolerance.
    """
    n_coarse = len(coarse) - 1
    fine = refine(coarse, n)
    check_rises(fine)
    np.testing.assert_array_equal(fixed_schedule(fine), fine)
    assert len(fine) - 1 == n_coarse * -(-n // n_coarse)
    every = (len(fine) - 1) // n_coarse
    rounding = 2.0 * n_coarse * np.finfo(float).eps
    np.testing.assert_allclose(fine[::every], coarse, rtol=1e-14, atol=rounding)


# --- schedules learnt from a trial run ---

counts = st.integers(1, 300)
# VAROPT itself, with and without a floor, and the options of lattices.
OPTIONS = st.sampled_from([{}, {"floor": 0.01}, {"power": 0.75, "floor": 0.1}])


def even_steps(beta, variance, n_stages):
    """The function with the options of lattices."""
    return varopt(beta, variance, n_stages, power=0.75, floor=0.1)


@given(trial=trial_runs(60, smallest=1e-8), n=counts, options=OPTIONS)
def test_learnt_schedules_rise_from_0_to_1(trial, n, options):
    found = varopt(*trial, n, **options)
    check_rises(found)
    assert found.shape == (n + 1,)


@given(trial=trial_runs(60, smallest=1e-8), n=counts)
def test_schedules_between_knots_rise_from_0_to_1(trial, n):
    """Any variances do as divergences."""
    found = gms13(*trial, n)
    check_rises(found)
    assert found.shape == (n + 1,)


@given(beta=schedules(60, smallest=1e-8), slack=floats(1, 20))
def test_decelerated_schedules_rise_and_keep_their_bound(beta, slack):
    """Whatever the schedule, and also if the bound leaves no choice but equal steps.

    Inverse temperatures are rounded in the 16th decimal, and differences of them with that.
    """
    bound = slack / (len(beta) - 1)
    found = decelerated(beta, bound)
    check_rises(found)
    assert found.shape == beta.shape
    assert np.diff(found).max() <= bound * (1.0 + 1e-9) + 1e-14
    np.testing.assert_allclose(decelerated(found, bound * (1.0 + 1e-9) + 1e-14), found)


@given(trial=trial_runs(100), n=counts, unit=powers(-8, 7))
def test_the_unit_of_the_energy_does_not_matter(trial, n, unit):
    """Up to rounding of the sum over stages, times ten: no step is longer than ten equal ones."""
    beta, variance = trial
    found, scaled = even_steps(beta, variance, n), even_steps(beta, unit * variance, n)
    np.testing.assert_allclose(scaled, found, rtol=1e-9, atol=1e-12)


@given(trial=trial_runs(19), n=counts)
def test_a_stage_cut_in_two_changes_nothing(trial, n):
    """What counts is the variance at each inverse temperature, not how often it was looked at.

    Inverse temperatures are rounded in the 16th decimal, the shortest steps are 5e-5 long, and one
    of them may decide the whole length: hence the tolerance.
    """
    beta, variance = trial
    halves = np.sort(np.append(beta, 0.5 * (beta[1:] + beta[:-1])))
    found = even_steps(halves, np.repeat(variance, 2), n)
    np.testing.assert_allclose(found, even_steps(beta, variance, n), rtol=1e-9, atol=1e-10)


# --- schedules found stage by stage ---


@dataclass(frozen=True)
class Tempered:
    """A path over a population that is nothing but its log likelihoods."""

    def log_ratio(self, state, start, stop):
        return (stop - start) * state


log_likelihoods = log_terms(2, largest=1e4)
sizes = floats(0.2, 0.95)  # effective ones, as a share of the members


@given(values=log_likelihoods, ess=sizes)
def test_each_step_keeps_the_effective_size_until_the_end(values, ess):
    """The population stands still here, which is the hardest case for a rising schedule.

    Only the members of weight zero are lost in the first step, because they have no successors.
    """
    beta = [0.0]
    while beta[-1] < 1.0 and len(beta) < 12:
        beta.append(next_beta(Tempered(), values, beta[-1], ess))
        alive = np.isfinite(values).mean()
        share = ess_share((beta[-1] - beta[-2]) * values)
        values = values[np.isfinite(values)]
        if beta[-1] < 1.0:
            assert share == pytest.approx(ess * alive, rel=1e-6)
        else:
            assert share >= ess * alive * (1.0 - 1e-9)
    assert (np.diff(beta) > 0.0).all()


@given(values=log_likelihoods, ess=sizes, shift=floats(-3, 3), data=st.data())
def test_constants_and_order_do_not_change_a_step(values, ess, shift, data):
    """A constant of the likelihood is no information, nor is the order of the members.

    Wide ranges of steps may leave the same whole number of members, so that a step is not well
    defined if that number is asked for.
    """
    members = ess * np.isfinite(values).sum()
    assume(abs(members - np.round(members)) > 1e-3)
    found = next_beta(Tempered(), values, 0.0, ess)
    scale = np.ptp(values[np.isfinite(values)])
    other = values[data.draw(st.permutations(range(values.size)))] + scale * shift
    assert next_beta(Tempered(), other, 0.0, ess) == pytest.approx(found, rel=1e-6)


@given(values=log_likelihoods, sizes=vectors(sizes, 2, 6))
def test_a_larger_effective_size_asks_for_a_shorter_step(values, sizes):
    steps = [next_beta(Tempered(), values, 0.0, ess) for ess in np.sort(sizes)]
    assert (np.diff(steps) <= 0.0).all()
