"""Schedules that minimise the variance of the work: quadrature and its limits."""

import numpy as np
import pytest
from scipy.integrate import solve_bvp

from pm_evidence.schedules import (
    check_smoothing,
    linear,
    smoothed,
    varopt,
)
from tests.schedules.test_prediction import predicted_variance_of_many

TRIAL = np.linspace(0.0, 1.0, 401)
MIDDLE = 0.5 * (TRIAL[1:] + TRIAL[:-1])
# The power and the floor of lattices.
LATTICE = {"power": 0.75, "floor": 0.1}
ANALYTIC = {
    "rising": np.exp(3.0 * MIDDLE),
    "falling": 1.0 / (MIDDLE + 0.05) ** 2,
    "a maximum inside": 1.0 + 50.0 * np.exp(-(((MIDDLE - 0.5) / 0.1) ** 2)),
    "constant": np.full(400, 7.0),
}


# --- the closed form ---


def test_the_inverse_of_the_length_in_closed_form():
    """V = (beta + c)**-2 has logarithmic length: beta + c rises geometrically."""
    beta, c = np.linspace(0.0, 1.0, 20_001), 0.05
    middle = 0.5 * (beta[1:] + beta[:-1])
    found = varopt(beta, (middle + c) ** -2.0, 50, smoothing=0.0)
    exact = c * ((1.0 + c) / c) ** (np.arange(51) / 50) - c
    np.testing.assert_allclose(found, exact, atol=1e-7)


def test_no_variance_to_speak_of_gives_equal_steps():
    for variance in (np.zeros(400), np.full(400, 7.0), np.full(400, -1e-12)):
        for options in ({}, LATTICE):
            found = varopt(TRIAL, variance, 10, **options)
            np.testing.assert_allclose(found, np.linspace(0.0, 1.0, 11), atol=1e-12)


def test_no_variance_at_an_end_still_reaches_it():
    """Without a floor no step ends where nothing varies; the schedule still has both ends."""
    variance = np.where(np.abs(MIDDLE - 0.5) < 0.2, 1.0, 0.0)
    found = varopt(TRIAL, variance, 10, smoothing=0.0)
    assert found[0] == 0.0 and found[-1] == 1.0 and (np.diff(found) > 0.0).all()
    np.testing.assert_allclose(np.diff(found)[1:-1], 0.04, atol=1e-9)


@pytest.mark.parametrize("power", [0.5, 0.75])
def test_the_power_of_the_variance(power):
    """Twice the step where the variance to this power is half of that elsewhere."""
    variance = np.where(TRIAL[:-1] < 0.5, 1.0, 2.0 ** (-1.0 / power))
    for floor in (0.0, 0.1):
        step = np.diff(varopt(TRIAL, variance, 3000, power=power, floor=floor))
        density = (1.0 - floor) * np.array([1.0, 0.5]) + floor * 0.75
        assert step[-10] / step[10] == pytest.approx(density[0] / density[1], rel=1e-3)


@pytest.mark.parametrize("name", ANALYTIC)
def test_the_smallest_variance_is_reached(name):
    """No schedule of K stages has a smaller one than the squared length over K."""
    variance = ANALYTIC[name]
    bound = np.mean(np.sqrt(variance)) ** 2 / 1000
    found = varopt(TRIAL, variance, 1000, smoothing=0.0)
    assert predicted_variance_of_many(found, TRIAL, variance) == pytest.approx(bound, rel=2e-3)
    for other in (linear(1000), varopt(TRIAL, variance, 1000, **LATTICE)):
        assert predicted_variance_of_many(other, TRIAL, variance) >= bound * (1.0 - 1e-9)


def test_smoothing():
    """A mean over a tenth of the values; a share below one value changes nothing."""
    values = np.random.default_rng(1).normal(size=100)
    np.testing.assert_array_equal(smoothed(values, 0.0), values)
    found = smoothed(values, 0.1)
    assert found.shape == (100,)
    assert found[50] == pytest.approx(values[45:55].mean())
    np.testing.assert_allclose(smoothed(np.full(30, 2.0), 0.5), 2.0)


@pytest.mark.parametrize(("v", "slope"), [
    (lambda b: np.exp(3.0 * b), lambda b: 3.0 * np.exp(3.0 * b)),
    (lambda b: (b + 0.1) ** -2.0, lambda b: -2.0 * (b + 0.1) ** -3.0),
    (lambda b: 1.0 + 9.0 * b**2, lambda b: 18.0 * b),
])  # fmt: skip
def test_the_differential_equation_has_the_same_solution(v, slope):
    """Kiwaki (2015), Eq. 9 with both ends fixed: ``beta'' = -beta'**2 V'(beta) / (2 V(beta))``."""

    def equation(t, y):
        return np.stack([y[1], -0.5 * y[1] ** 2 * slope(y[0]) / v(y[0])])

    def ends(start, stop):
        return np.array([start[0], stop[0] - 1.0])

    t = np.linspace(0.0, 1.0, 51)
    solved = solve_bvp(equation, ends, t, np.stack([t, np.ones_like(t)]), tol=1e-8)
    assert solved.success
    fine = np.linspace(0.0, 1.0, 20_001)
    found = varopt(fine, v(0.5 * (fine[1:] + fine[:-1])), 50, smoothing=0.0)
    np.testing.assert_allclose(found, solved.sol(t)[0], atol=1e-6)
    assert np.abs(found - t).max() > 0.1  # far from equal steps


def test_bad_shares_are_refused():
    for value in (-0.1, 1.0, "much", np.nan, True):
        with pytest.raises(ValueError, match="smoothing must be a number from 0 to below 1"):
            check_smoothing(value)
    assert check_smoothing(0) == 0.0
