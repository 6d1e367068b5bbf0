"""What the facts of a run say of its estimates."""

from dataclasses import replace

import numpy as np
import pytest

from pm_evidence.core.records import LogEvidence
from pm_evidence.estimators.verdicts import of_noise, unbounded, unfinished

GOOD = LogEvidence(-1.0, 0.1, "bridge")


def facts(variance, *n_particles):
    return {
        "log_likelihood_variance": variance,
        "n_particles": list(n_particles or (50,)),
        "noise_acceptance": 0.01,
    }


@pytest.mark.parametrize(
    ("variance", "status"), [(0.5, "ok"), (7.9, "ok"), (8.1, "noisy_likelihood")]
)
def test_noise_is_judged(variance, status):
    judged = of_noise(GOOD, facts(variance))
    assert (judged.status, judged.value, judged.mcse) == (status, -1.0, 0.1)


def test_verdict_names_a_number_of_particles():
    judged = of_noise(GOOD, facts(20.0, 50, 4))
    assert "n_particles=50, 4" in judged.message
    assert "about 1000 particles" in judged.message


def test_worse_verdicts_stay():
    """But they tell of the noise, which is the likely reason."""
    bad = replace(GOOD, status="inconsistent", message="use more draws.")
    judged = of_noise(bad, facts(20.0))
    assert judged.status == "inconsistent"
    assert judged.message.startswith("use more draws. Besides, the estimated log likelihood has a")
    assert of_noise(bad, facts(1.0)) is bad


def test_variance_without_bounds_is_judged():
    judged = of_noise(GOOD, facts(np.inf))
    assert judged.status == "noisy_likelihood"
    assert "many more particles, or n_particles='auto'" in judged.message


def test_a_limit_that_ended_the_run_is_named():
    judged = unfinished(GOOD, "max_draws", 0.05)
    assert (judged.status, judged.value) == ("max_draws", -1.0)
    assert "the error is 0.1 nats and not 0.05, because max_draws was reached" in judged.message
    bad = replace(GOOD, status="dominated")
    assert unfinished(bad, "max_draws", 0.05) is bad


def test_no_status_outlives_an_evidence_without_bound():
    assert unbounded(replace(GOOD, status="dominated")).status == "unbounded"
