"""Numbers and tables as people read them: a value ends where its error does; text is no markup."""

import math
import xml.etree.ElementTree as ET

from pm_evidence.core.text import concise, decimals, facts


def test_the_digits_follow_the_error():
    for value, error, shown in (
        (-31.0364, 0.0081, "-31.036(8)"),
        (-31.0364, 0.0123, "-31.036(12)"),
        (-31.0364, 0.354, "-31.04(35)"),
        (-31.0364, 0.356, "-31.0(4)"),
        # rounding takes the error to another decade
        (-31.0364, 0.0996, "-31.04(10)"),
        (-31.0364, 0.99, "-31.0(1.0)"),
        (-31.0364, 9.96, "-31(10)"),
        # errors at and beyond the decimal point are written out
        (-31.0364, 1.87, "-31.0(1.9)"),
        (-1204.6, 12.3, "-1205(12)"),
        (-1234.5, 345.0, "-1230(340)"),
        (-1000.0, 5000.0, "-1000(5000)"),
        # no error, none known, none that ends
        (-5.44432, 0.0, "-5.4443(0)"),
        (-31.0, 1e-30, "-31.0000(0)"),
        (-31.0364, math.nan, "-31.04 (error unknown)"),
        (-31.0364, math.inf, "-31.04(inf)"),
        (-math.inf, math.nan, "-inf"),
        (math.inf, 0.1, "inf"),
        (math.nan, 0.1, "nan"),
        # probabilities and Bayes factors
        (8.8e-27, 1.2e-27, "8.8(1.2)e-27"),
        (3.1e-9, 4e-10, "3.1(4)e-09"),
        (-1.5e300, 2e298, "-1.500(20)e+300"),
        (2e-5, 5e-3, "0.000(5)"),
        (-1e-4, 0.01, "0.000(10)"),
        (0.0, 0.0, "0.0000(0)"),
    ):
        assert concise(value, error) == shown


def test_decimals_of_what_has_no_error():
    assert [decimals(error) for error in (math.nan, math.inf, 0.0, -1.0)] == [2, 2, 2, 2]
    assert decimals(1e-300) == 12
    assert decimals(500.0) == -2


def test_rows_are_named_facts_in_their_order():
    table = ET.fromstring(facts("Run", [("log Z", "-31.0(1)"), ("status", "ok")]))
    assert table.findtext("caption") == "Run"
    cells = [[cell.text for cell in row] for row in table.iter("tr")]
    assert cells == [["log Z", "-31.0(1)"], ["status", "ok"]]


def test_markup_in_a_fact_is_text():
    """Names of models and messages are the user's: a notebook must not run them."""
    text = '<script>alert("1")</script> & more'
    table = ET.fromstring(facts(text, [(text, text)]))
    assert [e.text for e in table.iter() if e.text] == [text, text, text]


def test_empty_facts_are_left_out():
    table = ET.fromstring(facts("Run", [("message", ""), ("status", "ok")]))
    assert [row.findtext("th") for row in table.iter("tr")] == ["status"]
