"""The difference of two evidences: a log Bayes factor and its error."""

import numpy as np
import pytest
from scipy import stats

from pm_evidence.core.records import LogEvidence
from pm_evidence.estimators import difference


def estimate(value, mcse, half, status="ok", message="", name="smc"):
    return LogEvidence(value, mcse, name, status, value - half, value + half, message)


def test_degrees_of_freedom_are_those_of_welch():
    """Errors from few islands need wider intervals; SciPy's Welch test is the independent way."""
    rng = np.random.default_rng(1)
    one, two = rng.normal(0.0, 0.1, 16), rng.normal(0.0, 0.3, 5)
    results = [LogEvidence(0.0, float(stats.sem(x)), "smc", dof=len(x) - 1.0) for x in (one, two)]
    known = stats.ttest_ind(one, two, equal_var=False)
    found = difference(*results)
    assert found.dof == pytest.approx(known.df)
    half = stats.t.ppf(0.975, known.df) * found.mcse
    assert found.upper - found.value == pytest.approx(half)
    exact = difference(LogEvidence(1.0, 0.0, "smc"), LogEvidence(2.0, 0.0, "smc"))
    assert (exact.lower, exact.upper) == (-1.0, -1.0)


@pytest.mark.parametrize("bad_first", [True, False])
def test_the_worse_status_remains(bad_first):
    """A prior constant that cannot be trusted spoils the evidence as well."""
    good, bad = estimate(-3.0, 0.1, 0.2), estimate(-1.0, 0.9, 2.0, "high_variance", "too large")
    result = difference(bad, good) if bad_first else difference(good, bad)
    assert result.status == "high_variance" and result.message == "too large"
