"""Means and variances of the energy along a ladder, and their influence values."""

import numpy as np
import pytest

from pm_evidence.estimators.rts import Shares
from pm_evidence.estimators.tempered import tempered
from pm_evidence.estimators.ti import OfAll, OfDrawn
from tests.estimators.ladders import BETA, DEAD_IN_SHARES, HALVES, IN_SHARES, draws, in_proportion

INF, HIGH = np.inf, 2.0 * np.log(2.0)
# Probability of the higher energy at each temperature, among states of positive likelihood.
SHARES = np.array([1.0 / 2.0, 1.0 / 3.0, 1.0 / 5.0])
DEAD_SHARES = np.array([1.0 / 3.0, 1.0 / 5.0, 1.0 / 9.0])


def test_states_of_each_temperature():
    found = OfDrawn.of(tempered(HALVES, *in_proportion((2, 1, 3)), None))
    np.testing.assert_allclose(found.mean, HIGH * SHARES)
    n = np.array([4, 3, 15])
    np.testing.assert_allclose(found.variance, HIGH**2 * SHARES * (1 - SHARES) * n / (n - 1))
    assert found.log_alive == 0.0


def test_states_of_zero_likelihood_are_left_out():
    """Their share at beta = 0 is told instead."""
    found = OfDrawn.of(tempered(HALVES, *in_proportion((2, 1, 3), dead=True), None))
    np.testing.assert_allclose(found.mean, HIGH * DEAD_SHARES)
    assert found.log_alive == pytest.approx(np.log(3.0 / 4.0))
    all_of_them = OfDrawn.of(tempered(HALVES, [INF, 1.0, 2.0], [0, 1, 2], None))
    assert all_of_them.log_alive == -INF
    np.testing.assert_array_equal(all_of_them.beta, [0.5, 1.0])


def test_temperatures_without_states_are_left_out():
    found = OfDrawn.of(tempered(HALVES, [1.0, 2.0, 4.0], [0, 2, 2], None))
    np.testing.assert_array_equal(found.beta, [0.0, 1.0])
    np.testing.assert_array_equal(found.mean, [1.0, 3.0])
    np.testing.assert_array_equal(found.variance, [0.0, 2.0])


@pytest.mark.parametrize("name", IN_SHARES)
def test_all_states_together(name):
    """Carlson et al. (2016), Eq. 21: exact for states in the proportions of q(x)."""
    assumed, prior, energy = IN_SHARES[name]
    log_prior = np.zeros(3) if prior is None else np.log(prior)
    found = OfAll.of(Shares(HALVES, energy, log_prior - assumed))
    np.testing.assert_allclose(found.mean, HIGH * SHARES, rtol=1e-12)
    np.testing.assert_allclose(found.variance, HIGH**2 * SHARES * (1 - SHARES), rtol=1e-12)
    assert found.log_alive == pytest.approx(0.0, abs=1e-14)


def test_all_states_together_with_zero_likelihood():
    found = OfAll.of(Shares(HALVES, DEAD_IN_SHARES, np.zeros(3)))
    np.testing.assert_allclose(found.mean, HIGH * DEAD_SHARES, rtol=1e-12)
    assert found.log_alive == pytest.approx(np.log(3.0 / 4.0))


def value(moments, of_mean, of_variance):
    return of_variance @ moments.variance - of_mean @ moments.mean + moments.log_alive


@pytest.mark.parametrize("of_all", [False, True])
def test_influence_is_the_effect_of_one_more_state(of_all):
    """By how much the sum changes if one state counts 301 times instead of 300. Seed 1.

    Some states at beta = 0 have likelihood zero.
    """
    rng = np.random.default_rng(1)
    rung = np.repeat(np.arange(6), 5)
    energy = draws(rng, rung)
    energy[1:3] = INF

    def moments(e, k):
        if of_all:
            return OfAll.of(Shares(BETA, e, np.linspace(0.0, 2.0, 6)))
        return OfDrawn.of(tempered(BETA, e, k, None))

    weights = rng.normal(size=6), rng.normal(size=6)
    many = np.tile(energy, 300), np.tile(rung, 300)
    plain = moments(*many)
    influence = plain.influence(*weights)
    assert abs(influence.sum()) < 1e-9
    for i in range(0, 30, 2):
        more = moments(np.append(many[0], energy[i]), np.append(many[1], rung[i]))
        change = value(more, *weights) - value(plain, *weights)
        assert change == pytest.approx(influence[i], rel=0.03, abs=3e-6)
