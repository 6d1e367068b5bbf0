"""Which log Bayes factor is recommended, and what makes it doubtful."""

from dataclasses import replace

import numpy as np
import pytest

from pm_evidence.core.records import BlockRecord, Facts, LogEvidence, Role, RunRecord, StageTrace
from pm_evidence.estimators.of_run import applicable, estimates, of_pair

LOG_BF = 0.7
NO_TRACE = StageTrace(*np.zeros((4, 1)))


def record(spread=0.5, n=2000, first=None, second=None, shift=0.0, **facts):
    """Work of both directions between normal densities, whose ratio is known."""
    rng, half = np.random.default_rng(1), 0.5 * spread**2
    work = {
        Role.FORWARD: rng.normal(-LOG_BF + half, spread, n),
        Role.REVERSE: rng.normal(-LOG_BF - half, spread, n) + shift,
    }
    first = first or LogEvidence(-10.0, 0.03, "bridge")
    second = second or LogEvidence(-10.7, 0.03, "bridge")
    blocks = {
        role: [BlockRecord(0, each, NO_TRACE, origin=np.arange(n) % 32)]
        for role, each in work.items()
    }
    facts = Facts(evidences=(first, second), **facts)
    return RunRecord("model_to_model", np.array([0.0, 1.0]), blocks, facts=facts)


def test_models_that_are_alike():
    found = estimates(record())
    assert [each.estimator for each in found[:2]] == ["bar", "two_evidences"]
    assert found[0].status == "ok" and abs(found[0].value - LOG_BF) < 4 * found[0].mcse
    assert found[1].value == pytest.approx(0.7) and found[1].mcse == pytest.approx(0.03 * 2**0.5)
    assert found[0].mcse < found[1].mcse
    assert found == of_pair(record())
    made = applicable(record())
    assert {"bar", "two_evidences", "histogram", "jarzynski", "jarzynski_reverse"} <= set(made)
    assert all(np.isfinite(each().value) for each in made.values())
    # an error above the one asked for
    found = estimates(record(stopped_by="given_draws", target_mcse=1e-4))
    assert found[0].status == "max_draws" and found[0].estimator == "bar"


def test_two_evidences_are_recommended_where_posteriors_hardly_overlap():
    found = estimates(record(spread=9.0))
    assert found[0].estimator == "two_evidences" and found[0].status == "ok"
    assert found[1].status == "no_overlap" and "compare_models" in found[1].message


def test_two_evidences_that_contradict_the_work():
    """One posterior lacks a mode: its evidence is too small, and the work does not show it."""
    found = estimates(record(first=LogEvidence(-10.7, 0.03, "bridge")))
    assert [each.status for each in found[:3]] == ["inconsistent"] * 3
    assert "separate coarse evidences" in found[0].message
    # or the two directions contradict each other
    found = estimates(record(shift=0.5))
    assert found[0].status == "inconsistent" and "fluctuation theorem" in found[0].message


def test_draws_that_cannot_be_relied_on():
    """But what ended a coarse run is no fault of its draws."""
    bad = LogEvidence(-10.0, 0.03, "bridge", "doubtful_draws", message="R-hat is large.")
    for which in ("first", "second"):
        found = estimates(record(**{which: bad}))
        assert found[0].status == "doubtful_draws"
        assert which in found[0].message and "R-hat" in found[0].message
    for status in ("max_draws", "max_time"):
        found = estimates(record(first=LogEvidence(-10.0, 0.03, "bridge", status)))
        assert found[0].estimator == "bar" and found[0].status == "ok"


def test_paths_without_weight():
    """A first model whose likelihood is zero at all draws of the second."""
    empty = record()
    block = replace(empty.of(Role.FORWARD)[0], work=np.full(2000, np.inf))
    found = estimates(empty.updated(Role.FORWARD, [block]))
    assert found[0].estimator == "two_evidences"
    assert {each.estimator: each.status for each in found}["bar"] == "no_support"
