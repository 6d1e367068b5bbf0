"""The power-posterior estimate: an integral of the mean energy, exact where that is a line."""

import numpy as np
import pytest

from pm_evidence.core.text import concise
from pm_evidence.estimators.ti import power_posterior

BETA = np.array([0.0, 0.1, 0.4, 1.0])


def test_the_trapezoid_is_exact_for_a_line():
    """Mean energy 3 - 2 beta: the integral is 2, whatever the schedule."""
    energy = np.stack([3.0 - 2.0 * BETA - 0.1, 3.0 - 2.0 * BETA + 0.1])
    found = power_posterior(BETA, energy)
    assert found.value == pytest.approx(-2.0, abs=1e-14)
    # two islands whose integrals differ by 0.2: the error of their mean is 0.1
    assert found.mcse == pytest.approx(0.1, rel=1e-12) and found.dof == 1.0
    assert (found.estimator, found.status, concise(found.value, found.mcse)) == (
        "power_posterior",
        "ok",
        "-2.00(10)",
    )


def test_the_error_of_a_coarse_schedule_is_told():
    """Energy exp(-5 beta) and its variance 5 exp(-5 beta): the trapezoid on four points is coarse.

    The correction by the change of the variance is that of Friel, Hurn and Wyse (2014), Eq. 6.
    """
    energy = np.exp(-5.0 * BETA) + np.array([[-1e-4], [1e-4]])
    variance = np.tile(5.0 * np.exp(-5.0 * BETA), (2, 1))
    found = power_posterior(BETA, energy, variance)
    exact = -(1.0 - np.exp(-5.0)) / 5.0
    assert found.status == "coarse_schedule" and "Use more stages" in found.message
    told = -np.sum(np.diff(BETA) ** 2 * np.diff(variance[0])) / 12.0
    assert f"{-told:.2g} nats" in found.message
    assert found.value + told == pytest.approx(exact, abs=0.3 * abs(found.value - exact))
    fine = np.linspace(0.0, 1.0, 401)
    energy = np.exp(-5.0 * fine) + np.array([[-1e-4], [1e-4]])
    found = power_posterior(fine, energy, np.tile(5.0 * np.exp(-5.0 * fine), (2, 1)))
    assert found.status == "ok" and found.value == pytest.approx(exact, abs=1e-4)
