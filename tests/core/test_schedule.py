"""What a run says of its schedule is read back as it was."""

import numpy as np

from pm_evidence.core.contracts import Plan
from pm_evidence.core.records import Role, RunRecord
from pm_evidence.core.schedule import PathVariance, UsedSchedule

BETA = np.array([0.0, 0.3, 1.0])


def test_facts_are_read_back():
    """Without them a stored run could not say how it found its inverse temperatures."""
    used = UsedSchedule(BETA, "varopt", {"largest_step": None, "smoothing": 0.1}, 0.25)
    record = RunRecord("ais", BETA, {Role.FORWARD: ()}, info=used.facts())
    assert record.schedule == used
    assert record.schedule.beta is BETA


def test_a_record_without_facts_does_not_know():
    found = UsedSchedule.of(BETA, {})
    assert (found.name, found.options) == ("unknown", {})
    assert np.isnan(found.predicted_variance)
    assert UsedSchedule(BETA).name == "given"


def test_a_plan_that_somebody_makes_needs_neither():
    plan = Plan(BETA, (None, None))
    assert plan.schedule is None and plan.path_variance is None
    assert PathVariance(BETA, np.ones(2)).variance.sum() == 2.0
