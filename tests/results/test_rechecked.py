"""A second run that finds less evidence than the first says so, also when estimated again."""

import pytest

import pm_evidence as pe
from pm_evidence.results.datatree import rechecked
from tests.models import shared


@pytest.fixture(scope="module")
def result():
    options = {"draws": 320, "target_mcse": None, "random_seed": 1, "progressbar": False}
    return pe.sample_evidence(shared("normal").model, **options)


def test_runs_that_agree(result):
    value = pe.log_evidence(result).value
    assert rechecked(result, pe.LogEvidence(value + 0.1, 0.2, "smc")) is result


def test_a_first_run_with_more_evidence(result):
    found = rechecked(result, pe.LogEvidence(1.0, 0.1, "smc"))
    evidence = pe.log_evidence(found)
    assert evidence.status == "missed_mass" and "gives 1.00" in evidence.message
    assert pe.estimate(found)[evidence.estimator].status == "missed_mass"
    assert pe.log_evidence(result).status == "ok"  # the original is not changed
    assert found["posterior"].identical(result["posterior"])
