"""No step of a decelerated schedule is longer than its bound."""

import numpy as np
import pytest

from pm_evidence.schedules.deceleration import check_largest_step, decelerated


def test_a_long_step_is_cut_and_the_later_ones_are_stretched():
    """Kiwaki's Algorithm 3, by hand: 0.6 becomes 0.4, and the rest is stretched by 3/2."""
    found = decelerated(np.array([0.0, 0.6, 0.7, 0.8, 1.0]), 0.4)
    np.testing.assert_allclose(found, [0.0, 0.4, 0.55, 0.7, 1.0], atol=1e-15)


def test_earlier_steps_stay_as_they_are():
    """The algorithm goes through the steps in order: only what comes later is stretched."""
    beta = np.array([0.0, 0.1, 0.2, 0.6, 0.8, 1.0])
    found = decelerated(beta, 0.3)
    np.testing.assert_allclose(found, [0.0, 0.1, 0.2, 0.5, 0.75, 1.0], atol=1e-15)


def test_a_stretched_step_that_becomes_too_long_is_cut_as_well():
    beta = np.array([0.0, 0.5, 0.85, 0.9, 0.95, 1.0])
    found = decelerated(beta, 0.36)
    np.testing.assert_allclose(
        np.diff(found), [0.36, 0.36, 0.28 / 3, 0.28 / 3, 0.28 / 3], atol=1e-15
    )


def test_where_the_long_steps_come_last_the_others_are_stretched():
    """Nothing comes after them; without this the bound would not hold."""
    found = decelerated(np.array([0.0, 0.01, 0.02, 0.1, 1.0]), 0.3)
    np.testing.assert_allclose(np.diff(found), [0.2, 0.2, 0.3, 0.3], atol=1e-15)


def test_a_schedule_within_its_bound_is_kept():
    beta = np.array([0.0, 0.5, 1.0])
    assert decelerated(beta, 0.5) is beta
    assert decelerated(beta, 2.0) is beta


def test_a_bound_that_only_equal_steps_meet():
    found = decelerated(np.array([0.0, 0.9, 0.95, 1.0]), 1.0 / 3.0)
    np.testing.assert_allclose(found, np.arange(4) / 3.0, atol=1e-12)
    assert found[-1] == 1.0


@pytest.mark.parametrize("bound", [0, -0.1, np.nan, np.inf, "short", None])
def test_a_bound_is_a_number(bound):
    with pytest.raises(ValueError, match="largest_step must be a finite number above 0"):
        check_largest_step(bound, None)


def test_a_bound_with_which_the_stages_do_not_reach_1_is_refused():
    message = r"largest_step must be at least 1 / n_stages = 0.25 for n_stages=4, got 0.2; pass a"
    with pytest.raises(ValueError, match=message):
        decelerated(np.array([0.0, 0.25, 0.5, 0.75, 1.0]), 0.2)
