"""What holds of every stored run: it reads back as it was, and gives the same estimates again."""

from hypothesis import given, settings

from pm_evidence.estimators.of_run import applicable, estimates
from pm_evidence.results import to_datatree
from pm_evidence.results.datatree import estimate, to_record
from tests.core.test_properties import assert_same
from tests.strategies import run_records


def stored(record):
    """The groups that a run without posterior draws is stored in."""
    found = estimates(record)
    return to_datatree(
        record,
        found,
        recommended=found[0].estimator,
        posterior={},
        fingerprint="",
        random_seed=1,
        versions={},
    )


@settings(max_examples=40)
@given(record=run_records())
def test_a_stored_record_reads_back_as_it_was(record):
    """Work, traces, bridges and origins of every block, the schedule, and the facts of the run."""
    assert_same(to_record(stored(record)), record)


@settings(max_examples=40)
@given(record=run_records())
def test_a_stored_record_gives_its_estimates_again(record):
    """Those that the run reports, and any other that can be computed from its record."""
    dt = stored(record)
    found, reported = estimate(dt), estimates(record)
    assert list(found) == [each.estimator for each in reported]
    for each in reported:
        assert_same(found[each.estimator], each)
    there = applicable(record)
    for name, again in estimate(dt, list(there)).items():
        assert_same(there[name](), again)
