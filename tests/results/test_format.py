"""Tables as text, LaTeX and HTML: digits of the errors, and names with any characters."""

import numpy as np
import pandas as pd
import pytest

from pm_evidence.core.records import LogEvidence
from pm_evidence.results import compare, format_table
from pm_evidence.results.table import Row, in_html, sensitivity_table
from tests.api.refusals import check_refusals

ODD = r"50 % \o_{a} <b> & $x$ ~#^"


@pytest.fixture
def table():
    return compare(
        {
            ODD: LogEvidence(-33.1, 0.02, "bar"),
            "slope": LogEvidence(-30.81234, 0.0081, "bar"),
            "never": LogEvidence(-95.5, 0.4, "smc", "no_overlap", message="Use <more> stages."),
        }
    )


def test_numbers_come_in_two_forms(table):
    first = format_table(table).splitlines()[2].split()
    assert first == ["slope", "-30.812(8)", "0", "0.9078(18)", "ok"]
    second = format_table(table, numbers="plus_minus").splitlines()[2]
    assert "-30.812 ± 0.008" in second and "0.9078 ± 0.0018" in second


def test_latex_is_escaped_and_in_mathematics(table):
    latex = format_table(table, "latex", numbers="plus_minus", caption="100 % of A_1")
    name = r"50 \% \textbackslash{}o\_\{a\} \textless{}b\textgreater{} \& \$x\$ "
    assert name + r"\textasciitilde{}\#\textasciicircum{} & $-33.100 \pm 0.020$" in latex
    assert r"no\_overlap" in latex
    assert r"\caption{100 \% of A\_1}" in latex
    assert r"(7.3 \pm 2.9) \times 10^{-29}" in latex
    assert format_table(table, "latex").splitlines()[1:] == table.to_latex().splitlines()[1:]


def test_html_is_escaped(table):
    html = format_table(table, "html", caption="A <b> & more")
    assert "&lt;b&gt; &amp; $x$" in html
    assert "<caption>A &lt;b&gt; &amp; more</caption>" in html
    assert "\N{MINUS SIGN}30.812(8)" in html and "log Bayes factor" in html
    hyphen = pd.DataFrame({"name": ["half-Cauchy", "-1.2e-05"]})
    assert list(in_html(hyphen)["name"]) == ["half-Cauchy", "\N{MINUS SIGN}1.2e\N{MINUS SIGN}05"]


def test_tables_of_other_functions_have_their_errors():
    numbers = {"mean": 1.2345, "sd": 0.51, "ess_mean": 3987.4, "mcse_mean": 0.011, "mcse_sd": 0.02}
    summary = pd.DataFrame(numbers, index=[0])
    assert format_table(summary).splitlines()[1].split() == ["0", "1.234(11)", "0.510(20)", "3987"]
    rows = [
        Row(
            "a_b",
            "\N{MULTIPLICATION SIGN} 2",
            2.0,
            LogEvidence(-1.5, 0.01, "bar"),
            -0.5,
            0.02,
            how="new run",
        ),
        Row(
            "c",
            "wide",
            np.nan,
            LogEvidence(np.nan, np.nan, "", "failed", message="Why."),
            np.nan,
            np.nan,
        ),
    ]
    other = sensitivity_table(rows)
    latex = format_table(other, "latex")
    assert r"a\_b & $\times$ 2 & $-1.500(10)$ & $-0.500(20)$ & new run & ok \\" in latex
    assert r"c & wide & $\mathrm{nan}$ & $\mathrm{nan}$ & as written & failed \\" in latex
    assert "c, wide: failed: Why." in str(other)


def test_what_cannot_be_written_is_refused(table):
    cases = [
        ({"table": None}, TypeError, "table must be of type DataFrame"),
        ({"table": pd.DataFrame({"log_evidence": []})}, ValueError, "at least one row"),
        ({"style": "pdf"}, ValueError, "style must be one of"),
        ({"numbers": "both"}, ValueError, "numbers must be one of"),
        ({"columns": ["odd"]}, ValueError, "columns must be among"),
        ({"columns": "status"}, TypeError, "columns must be a list"),
        ({"caption": 3}, TypeError, "caption must be a text"),
    ]
    check_refusals(format_table, [({"table": table, **given}, *said) for given, *said in cases])
