"""Where the density of hyperparameters rises again beyond a peak."""

import numpy as np
import pymc as pm
import pytest

from pm_evidence.samplers.nested_laplace import beyond
from tests.samplers.test_regions import model_with, of, squares


def peak_at(conditional, draws, place):
    """Return the approximation at some hyperparameters."""
    start = draws[0].copy()
    start[conditional.given] = place
    return conditional.first(start)


def test_a_peak_where_there_are_no_prior_draws():
    """It is nine prior standard deviations away, where steps are two of them long."""

    def log_density(t):  # without the prior: its two peaks are equal
        pair = pm.math.logaddexp(-0.5 * squares(t, -4.0, 0.4), -0.5 * squares(t, 5.0, 0.4))
        return pair + 0.5 * squares(t, 0.0, 1.0)

    conditional, draws, _ = of(model_with(log_density, 1), 0)
    for place, other in ((-4.0, 5.0), (4.0, -4.0)):
        found = beyond(conditional, peak_at(conditional, draws, place))
        assert any(abs(fit.values[0] - other) < 1.1 for fit in found)


@pytest.mark.slow
def test_the_other_hyperparameters_follow():
    """Two scales explain the same data: one peak has the one large, the other one the other."""

    def log_density(t):
        ridge = -0.5 * ((t[0] + t[1]) / 0.2) ** 2
        place = pm.math.logaddexp(-2.0 * (t[0] - 3.0) ** 2, -2.0 * (t[0] + 3.0) ** 2)
        return ridge + place + 0.5 * squares(t, 0.0, 1.0)

    conditional, draws, _ = of(model_with(log_density, 2), 0)
    found = beyond(conditional, peak_at(conditional, draws, [-3.0, 3.0]))
    assert any(np.abs(fit.values - [3.0, -3.0]).max() < 1.0 for fit in found)


def test_a_single_peak():
    conditional, draws, _ = of(model_with(lambda t: -0.5 * squares(t, 1.0, 0.3), 3), 0)
    before = conditional.n_evaluations
    assert not beyond(conditional, peak_at(conditional, draws, [0.9, 0.9, 0.9]))
    assert conditional.n_evaluations - before < 3000
