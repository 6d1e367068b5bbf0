"""The table of compared models as people read it, and as the DataFrame that it is."""

import re

import numpy as np
import pandas as pd
import pytest

from pm_evidence.core.records import LogEvidence
from pm_evidence.results import compare
from pm_evidence.results import factor_of_results as bayes_factor

COLUMNS = 11
MODELS = {
    "flat_line": LogEvidence(-33.1, 0.02, "bar", dof=15.0),
    "slope": LogEvidence(-30.81234, 0.0081, "bar", dof=30.0),
    "never": LogEvidence(-95.5, 0.4, "smc", "no_overlap", message="Use <more> stages."),
}


@pytest.fixture
def table():
    return compare(MODELS)


def test_text_shows_few_columns_with_the_digits_of_the_errors(table):
    lines = str(table).splitlines()
    assert lines[0].split() == ["log_evidence", "log_bf", "prob", "status"]
    assert lines[2].split() == ["slope", "-30.812(8)", "0", "0.9078(18)", "ok"]
    assert lines[3].split() == ["flat_line", "-33.100(20)", "-2.288(22)", "0.0922(18)", "ok"]
    assert lines[4].split()[1:] == ["-95.5(4)", "-64.7(4)", "7.3(2.9)e-29", "no_overlap"]
    assert "7 more columns" in lines[5]
    assert any(line.startswith("never: no_overlap: Use <more> stages.") for line in lines)


def test_html_shows_the_same_and_escapes_it(table):
    html = table._repr_html_()
    assert "\N{MINUS SIGN}30.812(8)" in html
    assert "log Bayes factor" in html
    assert "mcse" not in html
    assert "Use &lt;more&gt; stages." in html


def test_all_columns_are_there_and_what_is_made_from_it_is_an_ordinary_frame(table):
    assert len(table.columns) == COLUMNS
    assert isinstance(table, pd.DataFrame)
    for made in (table[["log_bf", "log_bf_mcse"]], table.round(3), table.iloc[:2], table.copy()):
        assert type(made) is pd.DataFrame
    plain = pd.DataFrame(table)
    assert type(plain) is pd.DataFrame
    assert len(plain.columns) == COLUMNS
    assert "log_bf_mcse" in plain.to_string()
    assert table.loc["slope", "mcse"] == 0.0081


def test_style_writes_fitting_digits_over_numbers(table):
    pytest.importorskip("jinja2")
    html = table.style.background_gradient(subset="prob").to_html()
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", html)
    assert cells[:4] == ["-30.812(8)", "0", "0.9078(18)", "ok"]
    assert len(cells) == 4 * len(table)
    assert "background-color" in html  # made from the number below the text


def test_latex_needs_no_further_escape(table):
    pytest.importorskip("jinja2")
    latex = table.to_latex()
    assert r"flat\_line & $-33.100(20)$ & $-2.288(22)$ & $0.0922(18)$ & ok" in latex
    assert r"never & $-95.5(4)$ & $-64.7(4)$ & $7.3(2.9) \times 10^{-29}$ & no\_overlap" in latex
    assert "mcse" in table.to_latex(columns=["mcse"])
    odd = compare({r"50 % \o": LogEvidence(-np.inf, np.nan, "smc"), "b": MODELS["slope"]})
    assert r"50 \% \textbackslash{}o & $-\infty$" in odd.to_latex()


def test_a_bayes_factor_reads_as_a_sentence():
    factor = bayes_factor(MODELS["slope"], MODELS["flat_line"])
    assert str(factor) == "positive evidence for the first model: log Bayes factor 2.288(22)"
    html = factor._repr_html_()
    for text in ("2.288(22) nats", "9.85", "positive evidence for the first model"):
        assert text in html
