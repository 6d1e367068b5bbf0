"""Which estimate is recommended, and why not the first in the usual order."""

from dataclasses import replace

import numpy as np

from pm_evidence.core.records import LogEvidence
from pm_evidence.estimators import recommend
from tests.estimators.work import LOG_Z


def three(importance=0.010, bridge=0.010, smc=0.010):
    """Estimates with these errors."""
    errors = {"bridge": bridge, "importance": importance, "smc": smc}
    return [LogEvidence(LOG_Z, mcse, name) for name, mcse in errors.items()]


def names(found):
    return [estimate.estimator for estimate in found]


def test_the_order_is_fixed_beforehand():
    """Errors that differ by less than chance makes them differ choose nothing."""
    found = recommend(three(importance=0.010, bridge=0.019, smc=0.010))
    assert names(found) == ["bridge", "importance", "smc"]
    assert found[0].message == ""
    # a gross difference counts and is told
    found = recommend(three(importance=0.020, bridge=0.024, smc=0.0097))
    assert names(found) == ["smc", "bridge", "importance"]
    assert "its error is 0.0097 nats, and that of bridge is 0.024 nats" in found[0].message
    # but where large weights are rare, an error without any of them is too small
    assert names(recommend(three(importance=0.001)))[0] == "bridge"
    assert names(recommend(three(importance=0.001, smc=0.002)))[0] == "smc"


def test_what_is_not_ok_is_passed_over_and_told():
    broken = three(bridge=0.001)
    broken = [replace(e, status="inconsistent") if e.estimator == "bridge" else e for e in broken]
    found = recommend(broken)
    assert names(found) == ["importance", "bridge", "smc"]
    assert "the status of bridge is inconsistent" in found[0].message
    # where nothing is ok, the first with an error is named
    found = [replace(e, status="no_overlap") for e in three(bridge=float("nan"))]
    assert names(recommend(found)) == ["importance", "bridge", "smc"]


def test_an_unbiased_estimate_that_demands_more_comes_first_where_none_is_ok():
    found = [replace(e, status="inconsistent") for e in three(importance=0.06)]
    demanding = [replace(e, value=LOG_Z + 0.5) if e.mcse == 0.06 else e for e in found]
    assert names(recommend(demanding)) == ["importance", "bridge", "smc"]
    # by its own error, and only if no estimate is ok
    unclear = [replace(e, mcse=0.2) if e.mcse == 0.06 else e for e in demanding]
    assert names(recommend(unclear))[0] == "bridge"
    sound = [replace(e, status="ok") if e.estimator == "smc" else e for e in demanding]
    assert names(recommend(sound))[0] == "smc"


def test_choosing_by_gross_differences_keeps_errors_right():
    """Two estimates of equal precision with 15 degrees of freedom each. Seed 6.

    The errors that are stated are 2 % too small at most, in the root mean square; taking the
    smaller one of the two every time would make them 10 % too small.
    """
    rng, stated = np.random.default_rng(6), []
    for _ in range(4000):
        one, two = np.sqrt(rng.chisquare(15, size=2) / 15)
        stated.append(recommend(three(bridge=one, smc=two, importance=9.9))[0].mcse ** 2)
    assert 0.98 < np.sqrt(np.mean(stated)) < 1.01
