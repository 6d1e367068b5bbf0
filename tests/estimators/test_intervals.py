"""95 % intervals on the number of independent units that the error comes from."""

import pytest
from scipy import stats

from pm_evidence.estimators.intervals import interval
from pm_evidence.estimators.standard_errors import Spread


@pytest.mark.parametrize("n_units", [2, 3, 16, 1000])
def test_student(n_units):
    """With 16 islands a normal interval holds 93 % at best."""
    lower, upper = interval(-3.0, Spread(0.2, n_units - 1))
    half = stats.t.ppf(0.975, n_units - 1) * 0.2
    assert lower == pytest.approx(-3.0 - half) and upper == pytest.approx(-3.0 + half)


def test_at_least_one_degree_of_freedom():
    """With fewer there is no Student distribution."""
    assert interval(0.0, Spread(1.0, 0.3)) == interval(0.0, Spread(1.0, 1.0))
