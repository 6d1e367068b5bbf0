"""Schedules from a trial run."""

import numpy as np
import pytest

from pm_evidence.schedules.learnt import even_steps

TRIAL = np.linspace(0.0, 1.0, 401)


def test_no_variance_to_speak_of_gives_equal_steps():
    for energy_var in (np.zeros(400), np.full(400, 7.0)):
        found = even_steps(TRIAL, energy_var, 10)
        np.testing.assert_allclose(found, np.linspace(0.0, 1.0, 11), atol=1e-12)


def test_steps_are_short_where_the_energy_varies():
    middle = 0.5 * (TRIAL[1:] + TRIAL[:-1])
    energy_var = np.where(np.abs(middle - 0.6) < 0.1, 1e4, 1.0)
    found = even_steps(TRIAL, energy_var, 1000)
    assert found[0] == 0.0 and found[-1] == 1.0 and (np.diff(found) > 0.0).all()
    inside = ((found > 0.5) & (found < 0.7)).mean()
    # nine tenths of the steps, and a fifth of the tenth that lies evenly
    assert inside == pytest.approx(0.92, abs=0.04)


def test_the_power_of_the_variance():
    """Twice the step where the variance is smaller by 2 ** (4/3), but for the even tenth."""
    energy_var = np.where(TRIAL[:-1] < 0.5, 1.0, 2.0 ** (-4.0 / 3.0))
    found = even_steps(TRIAL, energy_var, 3000)
    step = np.diff(found)
    density = 0.9 * np.array([1.0, 0.5]) + 0.1 * 0.75
    assert step[-10] / step[10] == pytest.approx(density[0] / density[1], rel=1e-3)
