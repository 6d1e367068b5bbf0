"""The parts of a survey stay within its budget, and in memory."""

import pytest

from pm_evidence.samplers.survey_budget import (
    SHARE_OF_ASCENTS,
    USUAL_BUDGET,
    n_probes,
    n_scanned,
    share_of_ascents,
)


@pytest.mark.parametrize("share", [0.05, 0.3, 1.0, 2.0])
def test_ascents_scan_and_probes_use_the_budget(share):
    """What a survey makes beyond what was asked for, because of several modes, has no excess."""
    budget = share * USUAL_BUDGET
    values = n_scanned(budget, 10) + n_probes(budget, 0.0, 10)
    assert SHARE_OF_ASCENTS * budget + values / 3 == pytest.approx(budget, rel=1e-3)


def test_the_usual_budget_has_probes_in_excess():
    """A spike of which half as many probes see nothing in 1.5 % of runs."""
    few, many = (n_probes(USUAL_BUDGET, asked, 20) for asked in (0.05 * USUAL_BUDGET, USUAL_BUDGET))
    assert n_scanned(USUAL_BUDGET, 20) < few < 0.51 * many
    assert n_probes(0.05 * USUAL_BUDGET, 0.05 * USUAL_BUDGET, 20) < 0.01 * few


def test_memory_is_bounded_in_many_dimensions():
    assert n_scanned(1e6, 5000) * 5000 <= 4_000_000
    assert n_probes(1e6, 1e6, 5000) * 5000 <= 4_000_000


def test_small_budgets_keep_some_ascents():
    assert share_of_ascents(10.0) == 0.4
    assert share_of_ascents(0.5 * USUAL_BUDGET) == 0.5
    assert share_of_ascents(1e6) == 1.0
