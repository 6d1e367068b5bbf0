"""How many draws an error needs, and what is said of a target that was not reached."""

import time

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.records import RunRecord, Status
from pm_evidence.runs.rounds import Found, Growth, Limits, seconds_each


def test_an_error_without_bounds_needs_infinitely_many_draws():
    """Squares of errors near 1e154 or more overflow."""
    for error in (1e10, 1e200, np.inf, np.nan):
        assert Growth(reserve=1.1).to(0.02, error) == np.inf


def test_a_limit_that_nobody_set_is_no_status():
    found = Found(None, RunRecord("smc", np.array([0.0, 1.0]), {}))
    facts = Limits(0.02, asked=False).missed(found, Status.MAX_DRAWS).record.facts
    assert facts.short_of == 0.02
    facts = Limits(0.1, 5.0).missed(found, Status.MAX_TIME).record.facts
    assert (facts.stopped_by, facts.target_mcse, facts.short_of) == ("max_time", 0.1, None)


class Dear:
    """A model with evaluations of a known cost, of which the first is dearer."""

    def __init__(self):
        self.n = 0

    def finite_prior_points(self, n, seed):
        return np.zeros((n, 2))

    def evaluate(self, x):
        self.n += len(x)
        time.sleep(0.05 if self.n == 1 else 0.01)


def test_evaluations_are_timed_only_if_time_is_limited():
    target = Dear()
    assert seconds_each(Limits(0.02), target) == 0.0 and target.n == 0
    assert 0.01 <= seconds_each(Limits(0.02, 20.0), target) < 0.05 and target.n == 5
    # timing is not to take more than a part of the time
    target = Dear()
    assert seconds_each(Limits(0.02, 0.1), target) >= 0.05 and target.n == 1


def test_too_short_a_time_is_said_at_the_start():
    limits = Limits(0.02, 20.0)
    assert limits.affordable(0.005) == 2000
    limits.warn_of(3000, 0.005)
    Limits(0.02, 1e-6).warn_of(3000, 1e-5)  # nobody waits for this
    with pytest.warns(pe.EvidenceWarning, match="max_time=20 is too short: .* 0.005 s.* 25 s"):
        limits.warn_of(5000, 0.005)
