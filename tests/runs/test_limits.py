"""How many draws an error needs, and what is said of a target that was not reached."""

import numpy as np

from pm_evidence.core.statuses import Status
from pm_evidence.runs.limits import Limits, growth_for


def test_errors_fall_as_the_root_of_the_draws():
    assert growth_for(0.04, 0.02, 1.0) == 3.0
    assert growth_for(0.04, 0.02, 1.3) == 1.3 * 4.0 - 1.0


def test_an_error_without_bounds_needs_infinitely_many_draws():
    """Squares of errors near 1e154 or more overflow."""
    for error in (1e10, 1e200, np.inf, np.nan):
        assert growth_for(error, 0.02, 1.1) == np.inf


def test_a_limit_that_nobody_set_is_no_status():
    assert Limits(0.02, asked=False).missed(Status.MAX_DRAWS) == {"short_of": 0.02}
    expected = {"stopped_by": "max_time", "target_mcse": 0.1}
    assert Limits(0.1, 5.0).missed(Status.MAX_TIME) == expected
