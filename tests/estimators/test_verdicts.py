"""Verdicts: when two estimates of one evidence exclude each other, and what is then said."""

import re
from dataclasses import replace

import numpy as np
import pytest

from pm_evidence.core.records import CrossCheck, Facts, LogEvidence, Role, RunRecord, Status
from pm_evidence.estimators.errors import judged
from pm_evidence.estimators.of_run import estimates
from pm_evidence.estimators.verdicts import (
    DISAGREEMENT,
    agreeing,
    contradict,
    known,
    of_facts,
    of_noise,
    of_uncovered,
    short_of,
    short_of_target,
    times,
    unfinished,
)
from tests.estimators.runs import islands_of


def estimate(value, mcse=0.3, status="ok", name="smc"):
    return LogEvidence(value, mcse, name, status)


@pytest.mark.parametrize(("distance", "excluded"), [(2.49, False), (2.51, True)])
def test_five_combined_errors_exclude(distance, excluded):
    """Errors of 0.3 and 0.4 combine to 0.5, so that 2.5 nats are five of them."""
    assert DISAGREEMENT == 5.0
    one, other = estimate(-10.0), estimate(-10.0 - distance, 0.4)
    assert contradict(one, other) is contradict(other, one) is excluded
    found = agreeing(one, other, "annealing", "the bridge", "use more draws.")
    assert [each.status for each in found] == 2 * ["inconsistent" if excluded else "ok"]
    if excluded:
        assert found[0].message == found[1].message
        assert "annealing gives -10.000 and the bridge gives -12.510" in found[0].message
        assert "by 5.0 combined standard errors" in found[0].message
        assert found[0].message.endswith("use more draws.")
    else:
        assert found == (one, other)
    # an unknown error excludes nothing, and estimates with another status keep it
    assert not contradict(estimate(-10.0), estimate(-99.0, np.nan))
    worse = estimate(-10.0, status="dominated"), estimate(-50.0)
    assert agreeing(*worse, "a", "b", "c") == worse
    assert times(1.0, 0.4) == "2.5" and times(1.0, 0.0) == "infinitely many"


def test_importance_sampling_that_finds_more_tells_of_missed_mass():
    """Both are never negative and unbiased: the larger is right, the smaller has missed a part."""
    drawn = estimate(-7.0, name="importance")

    def seen(one, other=drawn):
        return judged(one, short_of(one, other))

    found = seen(estimate(-10.0))
    assert found.status == "missed_mass" and (found.value, found.mcse) == (-10.0, 0.3)
    assert "gives -7.000, and smc only -10.000" in found.message
    for value in (-4.0, -8.0):
        assert seen(estimate(value)) == estimate(value)
    assert seen(estimate(-10.0), estimate(0.0, np.nan)) == estimate(-10.0)
    for status in ("unbounded", "missed_mass"):
        assert seen(estimate(-10.0, status=status)).message == ""


def with_facts(one, **facts):
    run = RunRecord("smc", np.array([0.0, 1.0]), {}, facts=Facts(**facts))
    return judged(one, of_facts(one, run))


@pytest.mark.parametrize(
    ("log_z", "mcse", "status"),
    [(2.9, 1.0, "ok"), (3.2, 1.0, "missed_mass"), (0.4, 0.05, "missed_mass"), (-9.0, 0.1, "ok")],
)
def test_a_small_run_that_finds_more_tells_of_missed_mass(log_z, mcse, status):
    """A mode that no path of the run has seen would stay unknown; a bound may lie below it."""
    check = CrossCheck(log_z, mcse)
    found = with_facts(LogEvidence(0.0, 0.01, "bar"), cross_check=check)
    assert found.status == status
    assert ("only 0.00" in found.message) == (status != "ok")
    bound = LogEvidence(-9.0, 0.1, "lower_bound", Status.BOUND)
    assert with_facts(bound, cross_check=check) is bound


def test_the_message_names_where_the_small_run_began():
    """The remedy for a machine does not exist for a model."""
    for kind, said in (
        ("reference", "annealing from the prior gives 4.00, and bar only 0.00.*reference='prior'"),
        ("coarse", "annealing from the prior.*Use more draws"),
        ("fitted", "importance sampling from a density fitted to a short annealing"),
        ("base rates", "units of rate 1/2.*base='uniform'"),
    ):
        found = with_facts(LogEvidence(0.0, 0.01, "bar"), cross_check=CrossCheck(4.0, 0.1, kind))
        assert re.search(said, found.message)


@pytest.mark.parametrize(("share", "status"), [(1.49, "ok"), (1.51, "missed_mass")])
def test_draws_beyond_the_fitted_density(share, status):
    found = of_uncovered(estimate(-7.0, name="importance"), share)
    assert found.status == status
    assert (f"{share:.1%} of the islands' draws" in found.message) == (status != "ok")


# --- facts of the run ---

GOOD = LogEvidence(-1.0, 0.1, "bridge")


def facts(variance, *n_particles):
    return Facts(
        log_likelihood_variance=variance, n_particles=n_particles or (50,), noise_acceptance=0.01
    )


def test_noise_is_judged():
    """Its message names a number of particles that would be enough, where there is one."""
    for variance, status in ((0.5, "ok"), (7.9, "ok"), (8.1, "noisy_likelihood")):
        judged = of_noise(GOOD, facts(variance))
        assert (judged.status, judged.value, judged.mcse) == (status, -1.0, 0.1)
    judged = of_noise(GOOD, facts(20.0, 50, 4))
    assert "n_particles=50, 4" in judged.message and "about 1000 particles" in judged.message
    judged = of_noise(GOOD, facts(np.inf))
    assert judged.status == "noisy_likelihood"
    assert "many more particles, or n_particles='auto'" in judged.message


def test_a_limit_that_ended_the_run_is_named():
    judged = unfinished(GOOD, "max_draws", 0.05)
    assert (judged.status, judged.value) == ("max_draws", -1.0)
    assert (
        "the error is 0.1 nats and not 0.05, because a further round would have exceeded max_draws"
        in judged.message
    )
    bad = replace(GOOD, status="dominated")
    assert unfinished(bad, "max_draws", 0.05) is bad
    assert with_facts(bad, unbounded=True).status == "unbounded"  # which no other outlives


def test_a_default_run_says_that_its_error_is_larger_than_the_default():
    """The status stays ok, and the message says how to go on; small errors have no message."""
    coarse = LogEvidence(-1.0, 0.05, "smc", "ok", -1.1, -0.9)
    found = short_of_target(coarse, 0.02)
    assert found.status == "ok" and "the error is 0.05 nats and not 0.02" in found.message
    assert "Pass max_time" in found.message
    assert short_of_target(coarse, 0.05) is coarse
    blocks = {Role.FORWARD: islands_of(np.random.default_rng(1))}
    facts = Facts(short_of=1e-3)
    (first, *_) = estimates(RunRecord("smc", np.array([0.0, 1.0]), blocks, facts=facts))
    assert first.status == "ok" and "by default a run ends" in first.message


def test_an_error_of_many_nats_is_no_estimate():
    """-108.5 with an error of 12322 nats was shown as an evidence."""
    vague = replace(estimate(-108.5, 12322.0, "no_overlap"), message="draws are apart.")
    found = known(vague)
    assert np.isnan([found.value, found.mcse, found.lower, found.upper]).all()
    assert found.status == "no_overlap" and found.estimator == vague.estimator
    assert found.message == (
        "there is no estimate: -108.5 would have an error of 12322 nats. draws are apart."
    )
    for kept in (estimate(-1.0, 19.0, "high_variance"), estimate(-1.0, np.inf, "no_overlap")):
        assert known(kept) == kept


def test_few_values_say_what_may_be_unseen():
    found = with_facts(estimate(0.0, 0.01), n_values=1, n_prior_draws=1000)
    assert found.status == "few_values" and "a single value" in found.message
    assert "at most 0.003 of the prior" in found.message
    worse = estimate(0.0, 0.01, "missed_mass")
    assert with_facts(worse, n_values=3, n_prior_draws=1000) == worse
