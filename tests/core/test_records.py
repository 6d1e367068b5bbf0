"""Records: what a run leaves behind is read again by every estimator."""

import numpy as np
import pytest

from pm_evidence.core.records import (
    BlockRecord,
    CrossCheck,
    Facts,
    LogEvidence,
    Role,
    RunRecord,
    StageTrace,
    UsedSchedule,
)

TRACE = StageTrace(*np.zeros((4, 2)))


def block(index, work):
    return BlockRecord(index, np.array(work, dtype=float), TRACE)


@pytest.mark.parametrize(
    ("mcse", "shown"),
    [
        (0.5, "value=-31.311, mcse=0.500"),
        (0.012, "value=-31.311, mcse=0.012"),
        (0.0012, "value=-31.3113, mcse=0.0012"),
        (float("nan"), "value=-31.311, mcse=nan"),
    ],
)
def test_repr_shows_the_digits_that_the_error_leaves(mcse, shown):
    """Users copy numbers from it: digits beyond the error would mislead."""
    text = repr(LogEvidence(-31.31127, mcse, "bar", "ok"))
    assert text == f'LogEvidence({shown}, estimator="bar", status="ok")'


def test_work_is_joined_in_the_order_of_the_blocks():
    """Estimators of both directions read it; a lost block would bias them."""
    run = RunRecord("ais", np.array([0.0, 1.0]), {Role.FORWARD: [block(0, [1, 2])]})
    run = run.extended(Role.FORWARD, [block(1, [np.inf])])
    np.testing.assert_array_equal(run.work(Role.FORWARD), [1.0, 2.0, np.inf])
    none = run.work(Role.REVERSE)
    assert none.shape == (0,) and none.dtype == np.float64 and run.of(Role.REVERSE) == ()
    both = run.extended(Role.REVERSE, [block(0, [3])])
    np.testing.assert_array_equal(both.work(Role.REVERSE), [3.0])


@pytest.mark.parametrize(
    ("evidence", "shown"),
    [
        (LogEvidence(-31.0364, 0.0081, "bar"), "-31.036(8)"),
        (LogEvidence(-31.0364, 12.0, "bar", "high_variance"), "-31(12) [high_variance]"),
        (LogEvidence(-np.inf, np.nan, "smc", "no_support"), "-inf [no_support]"),
    ],
)
def test_text_is_value_and_error_with_what_is_wrong(evidence, shown):
    """A doubtful number that is printed like a sound one misleads."""
    assert str(evidence) == shown
    assert f"{evidence}" == shown
    assert f"{evidence:>30}" == f"{shown:>30}"
    assert f"{evidence:.2f}" == f"{evidence.value:.2f}"


def test_notebooks_show_what_is_known_and_no_markup_of_a_message():
    evidence = LogEvidence(-31.0364, 0.0081, "bar", "no_overlap", -31.05, -31.02, "a < b & c")
    html = evidence._repr_html_()
    for text in (
        "-31.036(8) nats",
        "-31.050 to -31.020 nats",
        "bar",
        "no_overlap",
        "a &lt; b &amp; c",
    ):
        assert text in html
    assert "95 % interval" not in LogEvidence(-1.0, 0.1, "bar")._repr_html_()
    assert "message" not in LogEvidence(-1.0, 0.1, "bar")._repr_html_()
    assert "See docs/statuses.md#no_overlap." in html


def test_an_estimate_that_is_none():
    """A negative error would go into tables, and squared into those of differences."""
    for fields, message in (
        ({"mcse": -1.0}, r"mcse must not be negative, got -1\.0; pass the standard error"),
        ({"value": "5"}, r"value must be a number of nats, got '5'"),
        ({"value": None}, r"value must be a number of nats, got None"),
        ({"mcse": np.ones(2)}, r"mcse must be a number of nats, got an array of shape \(2,\)"),
        ({"lower": 1.0, "upper": 0.0}, r"lower must not exceed upper, got 1\.0 and 0\.0"),
        ({"dof": 0.0}, r"dof must be a positive number, got 0\.0; leave it out"),
        ({"dof": np.nan}, r"dof must be a positive number, got nan"),
        ({"estimator": None}, r"estimator must be a string, got None"),
        ({"status": True}, r"status must be a string, got True"),
        ({"status": "banana"}, r"status must be one of 'ok', .*, got 'banana'"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            LogEvidence(**{"value": -1.0, "mcse": 0.1, "estimator": "bar", **fields})


# --- schedules ---

BETA = np.array([0.0, 0.3, 1.0])


def test_a_record_knows_its_schedule():
    """Without it a stored run could not say how it found its inverse temperatures."""
    used = UsedSchedule(BETA, "varopt", {"largest_step": None, "smoothing": 0.1}, 0.25)
    record = RunRecord("ais", BETA, {Role.FORWARD: ()}, facts=Facts(schedule=used))
    assert record.schedule is used
    assert record.facts.attributes()["schedule"] == "varopt"
    unknown = RunRecord("ais", BETA, {}).schedule
    assert (unknown.name, unknown.options) == ("unknown", {})
    assert np.isnan(unknown.predicted_variance)


def test_facts_that_apply_are_attributes():
    """Those that estimates read are checked when they are stated."""
    record = RunRecord("ais", BETA, {}).stating(route="importance", n_evaluations=3)
    found = record.stating(cross_check=CrossCheck(1.0, 0.1, "coarse")).facts.attributes()
    assert found == {
        **{"n_evaluations": 3, "n_nan": 0, "route": "importance", "trial": "coarse"},
        **{"trial_log_z": 1.0, "trial_mcse": 0.1},
    }
    with pytest.raises(TypeError, match="unknown_fact"):
        record.stating(unknown_fact=1)
