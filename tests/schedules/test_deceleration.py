"""No step of a decelerated schedule is longer than its bound."""

import numpy as np
import pytest

from pm_evidence.schedules import check_largest_step, decelerated


def test_by_hand():
    """Kiwaki's Algorithm 3: steps are cut in their order, and what comes later is stretched.

    Where the long steps come last, nothing is left to be stretched but the steps before them.
    """
    for beta, bound, expected in [
        ([0.0, 0.6, 0.7, 0.8, 1.0], 0.4, [0.0, 0.4, 0.55, 0.7, 1.0]),
        ([0.0, 0.1, 0.2, 0.6, 0.8, 1.0], 0.3, [0.0, 0.1, 0.2, 0.5, 0.75, 1.0]),
        # a stretched step that becomes too long is cut as well
        ([0.0, 0.5, 0.85, 0.9, 0.95, 1.0], 0.36, [0.0, 0.36, 0.72, 2.44 / 3, 2.72 / 3, 1.0]),
        ([0.0, 0.01, 0.02, 0.1, 1.0], 0.3, [0.0, 0.2, 0.4, 0.7, 1.0]),
    ]:
        np.testing.assert_allclose(decelerated(np.array(beta), bound), expected, atol=1e-15)


def test_a_schedule_within_its_bound_is_kept():
    beta = np.array([0.0, 0.5, 1.0])
    assert decelerated(beta, 0.5) is beta
    assert decelerated(beta, 2.0) is beta


def test_a_bound_that_only_equal_steps_meet():
    found = decelerated(np.array([0.0, 0.9, 0.95, 1.0]), 1.0 / 3.0)
    np.testing.assert_allclose(found, np.arange(4) / 3.0, atol=1e-12)
    assert found[-1] == 1.0


def test_bounds_that_are_refused():
    """A bound is a number, with which the stages reach 1."""
    for bound in (0, -0.1, np.nan, np.inf, "short", None):
        with pytest.raises(ValueError, match="largest_step must be a finite number above 0"):
            check_largest_step(bound, None)
    message = r"largest_step must be at least 1 / n_stages = 0.25 for n_stages=4, got 0.2; pass a"
    with pytest.raises(ValueError, match=message):
        check_largest_step(0.2, 4)
