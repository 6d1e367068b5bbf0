"""Rules of integration, on polynomials that they integrate exactly."""

import numpy as np
import pytest

from pm_evidence.estimators.ti import RULES, correction, trapezoid, weights

BETA = np.array([0.0, 0.1, 0.4, 1.0])


@pytest.mark.parametrize("power", range(4))
def test_corrected(power):
    """With slopes at the knots the rule is exact up to cubes on equal steps, and squares on any."""
    for beta in (BETA, np.linspace(0.0, 1.0, 5)):
        slope = power * beta ** max(power - 1, 0)
        found = trapezoid(beta) @ beta**power + correction(beta) @ slope
        assert found == pytest.approx(1.0 / (power + 1), abs=1e-14)


@pytest.mark.parametrize("rule", RULES)
def test_weights(rule):
    """One pair of weights for each rule; only the corrected one uses variances."""
    means, variances = weights(rule, BETA)
    assert means.sum() == pytest.approx(1.0)
    assert (np.abs(variances).max() > 0.0) == (rule == "corrected")
