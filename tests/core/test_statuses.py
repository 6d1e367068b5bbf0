"""Every status is explained in one table, and no other can be produced.

A status that the table leaves out sends the user of a warning to a page that does not help.
"""

import re
from pathlib import Path

import pm_evidence as pe
from pm_evidence.core.records import PAGE, Status, with_pointer

ROOT = Path(__file__).resolve().parents[2]
ANCHOR = r'<a id="(\w+)"></a>`\1`'


def table():
    """Return the cells of the rows of the page, without the header."""
    lines = (ROOT / PAGE).read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| <a id=")]
    return {re.fullmatch(ANCHOR, row[0])[1]: row[1:] for row in rows}


def test_the_table_has_every_status_with_cause_and_remedy():
    rows = table()
    assert list(rows) and set(rows) == set(Status)
    for status, cells in rows.items():
        assert len(cells) == 2 and all(cells), status


def test_every_message_leads_to_the_table():
    """A sound estimate needs no pointer."""
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    for status in set(Status) - {Status.OK}:
        text = with_pointer(status, "The reason.")
        assert text == f"The reason. See docs/statuses.md#{status}."
        assert with_pointer(str(status), "") == f"See docs/statuses.md#{status}."
        assert f'<a id="{status}"></a>' in page
    assert with_pointer("ok", "bridge is recommended because ...") == (
        "bridge is recommended because ..."
    )
    assert PAGE not in pe.LogEvidence(-1.0, 0.1, "bar")._repr_html_()


def test_notebooks_and_tables_show_the_pointer():
    broken = pe.LogEvidence(-1.0, 0.1, "bar", Status.NO_OVERLAP, message="they hardly overlap.")
    assert "no_overlap" in broken._repr_html_() and PAGE in broken._repr_html_()
    table = pe.compare({"a": broken, "b": pe.LogEvidence(-9.0, 0.1, "bar")})
    assert f"no_overlap: they hardly overlap. See {PAGE}#no_overlap." in table["warning"]["a"]
    assert PAGE not in table["warning"]["b"]
