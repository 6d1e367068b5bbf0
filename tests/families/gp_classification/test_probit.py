"""The log of the normal distribution function."""

import numpy as np
import pytest
from scipy.special import log_ndtr

from pm_evidence.families.gp_classification.probit import hazards, log_ndtr_and_slope


@pytest.mark.parametrize("t", [-1e6, -60.0, -10.001, -10.0, -9.9, -1.0, 0.0, 0.5, 9.0, 30.0])
def test_value_and_slope(t):
    """Against SciPy, and the slope by its definition, on both sides of the change of formula."""
    value, slope = log_ndtr_and_slope(t)
    assert value == pytest.approx(log_ndtr(t), rel=1e-13, abs=1e-300)
    log_density = -0.5 * t * t - 0.5 * np.log(2.0 * np.pi)
    if t > -1000.0:
        assert slope == pytest.approx(np.exp(log_density - log_ndtr(t)), rel=1e-11)
    assert slope >= max(-t, 0.0)


def test_many_hazards_are_those_of_each():
    t = np.array([-1e6, -3.0, 0.0, 40.0])
    np.testing.assert_array_equal(hazards(t), [log_ndtr_and_slope(v)[1] for v in t])
