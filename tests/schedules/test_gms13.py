"""Schedules that are linear between knots."""

import numpy as np

from pm_evidence.schedules import divergences_from_variance, gms13, linear

KNOTS = np.linspace(0.0, 1.0, 5)


def test_stages_are_divided_in_proportion_to_the_root_of_the_divergence():
    """4 : 2 : 1 : 1 of 80 stages, with equal steps in each interval."""
    found = gms13(KNOTS, np.array([16.0, 4.0, 1.0, 1.0]), 80)
    counts = np.histogram(found[:-1], bins=KNOTS - 1e-12)[0]
    np.testing.assert_array_equal(counts, [40, 20, 10, 10])
    np.testing.assert_allclose(np.diff(found)[:40], 0.25 / 40, rtol=1e-9)


def test_two_knots_are_a_linear_schedule():
    np.testing.assert_allclose(gms13(np.array([0.0, 1.0]), np.array([3.0]), 7), linear(7))
    np.testing.assert_allclose(gms13(KNOTS, np.zeros(4), 8), linear(8))


def test_energies_and_variances_give_the_same_divergences():
    """On a path that is linear in beta the variance is minus the slope of the mean energy.

    d independent coordinates with prior N(0, 1) and energy x**2 / (2 s**2) have the mean energy
    d / (2 (s**2 + beta)) and the variance d / (2 (s**2 + beta)**2).
    """
    d, square = 10, 0.2
    beta = np.linspace(0.0, 1.0, 10_001)
    middle = 0.5 * (beta[1:] + beta[:-1])
    of_variance = divergences_from_variance(KNOTS, beta, d / (2.0 * (square + middle) ** 2))
    of_energy = -np.diff(KNOTS) * np.diff(d / (2.0 * (square + KNOTS)))
    np.testing.assert_allclose(of_variance, of_energy, rtol=1e-6)
