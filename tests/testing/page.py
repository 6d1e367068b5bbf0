"""The objects of docs/extending.md: the code that defines them is that of the page."""

from types import SimpleNamespace

from tests.docs.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "extending.md"


def objects(*positions):
    """Return what the Python blocks of the page at these positions define."""
    namespace = {"__name__": "__main__"}
    found = blocks(PAGE.read_text(encoding="utf-8"))
    for position in positions:
        exec(compile(found[position].code, str(PAGE), "exec"), namespace)
    return SimpleNamespace(**namespace)
