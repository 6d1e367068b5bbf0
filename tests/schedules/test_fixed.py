"""Schedules that are known before a run."""

import numpy as np

from pm_evidence.schedules import fixed_schedule, linear, sm08
from tests.estimators.refusals import check_refused


def test_named_schedules():
    """Equal steps, and 500 up to 0.5, 4,000 up to 0.9 and 10,000 up to 1, as in the paper."""
    np.testing.assert_allclose(linear(10), np.arange(11) / 10, rtol=1e-15)
    beta = sm08(14500)
    expected = np.interp(np.arange(14501), [0, 500, 4500, 14500], [0.0, 0.5, 0.9, 1.0])
    np.testing.assert_allclose(beta, expected, rtol=0, atol=1e-12)
    # and its shape is kept when there are fewer
    np.testing.assert_allclose(sm08(145), beta[::100], rtol=0, atol=1e-12)


def test_bad_schedules():
    """A run over a wrong schedule would end, and its evidence would be wrong."""
    no_array = "schedule must be .* an array of inverse temperatures, got "
    names = r"schedule must be .*'sm08', 'gms13', 'varopt', .* or an array .*got 'geometric'"
    cases = [
        ("geometric", names),
        ([0.1, 1.0], r"schedule must rise from 0 to 1, got 0.1 to 1.0; add the missing end"),
        ([0.0, 0.9], r"schedule must rise from 0 to 1, got 0.0 to 0.9; add the missing end"),
        ([1.0, 0.0], r"schedule must rise from 0 to 1, got 1.0 to 0.0"),
        ([0, 0.5, 0.4, 1], r"got betas\[2\]=0.4 after 0.5; sort it and drop repeats"),
        ([0, 0.5, 0.5, 1], r"got betas\[2\]=0.5 after 0.5"),
        ([0, np.nan, 1], r"got betas\[1\]=nan after 0.0"),
        ([], r"schedule must be a sequence of at least two inverse temperatures, got shape \(0,\)"),
        ([0.0], r"at least two inverse temperatures, got shape \(1,\)"),
        ([[0.0, 1.0]], r"at least two inverse temperatures, got shape \(1, 2\)"),
        (0.5, no_array + "0.5"),
        (["cold", "hot"], no_array + r"\["),
        ({0.0: 1.0}, no_array + r"\{"),
        ([0.0, [0.5, 0.6], 1.0], no_array + r"\["),
        (None, no_array + "None"),
    ]
    np.testing.assert_array_equal(fixed_schedule([0, 0.5, 1]), [0.0, 0.5, 1.0])  # as it is
    check_refused(fixed_schedule, [((schedule,), message) for schedule, message in cases])
