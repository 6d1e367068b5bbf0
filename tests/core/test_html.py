"""Tables for notebooks: plain text stays plain text."""

import xml.etree.ElementTree as ET

from pm_evidence.core.html import facts


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
