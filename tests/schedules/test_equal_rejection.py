"""Rejection rates are those of exchanges, and equal steps of their sum give equal rates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pm_evidence.schedules import equalised, rejection_rates

BETA = np.array([0.0, 0.25, 1.0])


def test_rates_of_two_states_at_each_temperature():
    """The acceptance probability is the exponential of step times difference, at most 1."""
    energy = np.array([3.0, 1.0, 2.0, 4.0, 0.0, 1.0])
    rung = np.array([0, 1, 2, 0, 1, 2], np.int16)
    # pairs (3, 1), (4, 0) with step 1/4, and (1, 2), (0, 1) with step 3/4
    expected = [1.0 - np.exp([-0.5, -1.0]).mean(), 0.0]
    np.testing.assert_allclose(rejection_rates(BETA, energy, rung), expected, atol=1e-15)
    swapped = rejection_rates(BETA, -energy, rung)
    np.testing.assert_allclose(swapped, [0.0, 1.0 - np.exp(-0.75)], atol=1e-15)


def test_rates_of_other_states():
    """Those without a partner are left out, and those without likelihood are never exchanged."""
    for energy, rung, expected in [
        ([2.0, 1.0, 1.0, 50.0, 90.0], [0, 1, 2, 1, 1], [1.0 - np.exp(-0.25), 0.0]),
        ([np.inf, 1.0, 1.0, 3.0, 3.0, 3.0], [0, 1, 2] * 2, [0.5, 0.0]),
        ([1.0, 1.0, 1.0], [0, 1, 1], [0.0, np.nan]),  # a temperature without states
    ]:
        found = rejection_rates(BETA, np.array(energy), np.array(rung, np.int16))
        np.testing.assert_allclose(found, expected, atol=1e-15)


@pytest.mark.parametrize("n", [2, 3, 4, 10])
def test_equal_rates_stay_equal(n):
    """Steps in beta that are rejected equally often are halved or joined evenly."""
    found = equalised(np.linspace(0.0, 1.0, 4), np.full(3, 0.4), n)
    np.testing.assert_allclose(found, np.linspace(0.0, 1.0, n), atol=1e-15)


def test_steps_are_equal_in_the_sum_of_the_rates():
    """Three quarters of all rejections are in the first step, so that it has three of four."""
    found = equalised(np.array([0.0, 0.1, 1.0]), np.array([0.6, 0.2]), 5)
    np.testing.assert_allclose(found, [0.0, 0.1 / 3, 0.2 / 3, 0.1, 1.0], atol=1e-15)


@given(rates=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8), n=st.integers(2, 40))
def test_temperatures_always_rise_from_0_to_1(rates, n):
    """Also if hardly anything was rejected, or all of it."""
    beta = np.linspace(0.0, 1.0, len(rates) + 1) ** 4
    found = equalised(beta, np.array(rates), n)
    assert found.shape == (n,) and (found[0], found[-1]) == (0.0, 1.0)
    assert (np.diff(found) > 0.0).all()
