"""What is shown of several models that were run in one call."""

from pm_evidence.results import compare
from pm_evidence.results.comparison import ModelComparison
from tests.results.test_compare import make_tree


def comparison(**fields):
    results = {"a": make_tree(-10.0), "b": make_tree(-40.0)}
    return ModelComparison(compare(results), results, **fields)


def test_the_table_alone():
    found = comparison()
    assert repr(found) == repr(found.table)
    assert found._repr_html_() == found.table._repr_html_()


def test_what_the_table_does_not_show():
    found = comparison(first_runs={"a": make_tree(-10.0)}, failed={"c": "the density is <NaN>"})
    assert "Run once only, as the comparison needs no smaller error: b" in repr(found)
    assert "c is left out: the density is <NaN>" in repr(found)
    assert "the density is &lt;NaN&gt;" in found._repr_html_()
