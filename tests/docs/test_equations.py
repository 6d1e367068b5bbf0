"""For every equation of the papers, docs/equations.md names what computes and what tests it."""

import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "equations.md"
# The number of the last equation of each paper, and what else it numbers.
PAPERS = {
    "Habeck (2017)": (16, {"Algorithm 1"}),
    "Carlson et al. (2016)": (23, {"Algorithm 1"}),
    "Fraccaro et al. (2016)": (
        15,
        {"Algorithm 1", "Algorithm 2", "Theorem 1", "Proposition 1", "A.1", "A.2"},
    ),
    "Kiwaki (2015)": (15, {"Algorithm 1", "Algorithm 2", "Algorithm 3", "Theorem 1"}),
    "Tran et al. (2014)": (
        13,
        {"Algorithm 1", "Algorithm 1'", "Proposition 1", "Lemma 1", "Theorem 1"},
    ),
}
NAME = re.compile(r"`((?:pe|pm_evidence|examples)\.[\w.]+)`")
TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
WITHOUT = ("derivation", "definition", "none: ")  # what a row without a function begins with


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    label: str
    what: str
    function: str
    test: str
    page: str


def tables(text):
    """Return the rows of each section by its title."""
    found = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
        rows = [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines]
        found[section.splitlines()[0]] = rows
    return found


def named(name):
    """Return what a dotted name stands for."""
    parts = (
        name.replace("pe.", "pm_evidence.", 1).split(".") if name[:3] == "pe." else name.split(".")
    )
    for stop in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:stop]))
        except ModuleNotFoundError:
            continue
        for part in parts[stop:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


def wrong_in(row):
    """Return what is wrong with a row, or an empty string."""
    names, tests = NAME.findall(row.function), TEST.findall(row.test)
    for name in names:
        try:
            named(name)
        except (ModuleNotFoundError, AttributeError):
            return f"no {name}"
    has_function = not row.function.startswith(WITHOUT)
    if has_function and not names:
        return "neither a function nor a reason"
    if has_function and not tests:
        return "a function without a test"
    for file, test in tests:
        path = ROOT / "tests" / file
        if not path.is_file() or not re.search(rf"^def {test}\(", path.read_text("utf-8"), re.M):
            return f"no {file}::{test}"
    pages = re.findall(r"\]\(([\w/]+\.md)\)", row.page)
    if not pages or not all((ROOT / "docs" / page).is_file() for page in pages):
        return f"no page {row.page}"
    return ""


def missing(rows, last, others):
    """Return the labels that a table lacks, and those that occur twice."""
    labels = [row.label for row in rows]
    wanted = {str(k) for k in range(1, last + 1)} | others
    return (wanted - set(labels)) | {label for label in wanted if labels.count(label) > 1}


@pytest.fixture(scope="module")
def page():
    return tables(PAGE.read_text(encoding="utf-8"))


def test_every_equation_is_there(page):
    assert list(page) == list(PAPERS)
    lacking = {title: missing(page[title], *PAPERS[title]) for title in page}
    assert not any(lacking.values()), lacking


def test_all_names_tests_and_pages_exist(page):
    wrong = {
        f"{title}, {row.label}": found
        for title, rows in page.items()
        for row in rows
        if (found := wrong_in(row))
    }
    assert not wrong


def test_what_is_wrong_is_noticed():
    test = "`docs/test_equations.py::test_what_is_wrong_is_noticed`"
    good = Row("1", "a", "`pe.estimators.bar`", test, "[p](papers.md)")
    assert wrong_in(good) == ""
    for changed in (
        {"function": "`pe.estimators.no_such`"},
        {"function": "`pm_evidence.no_such.bar`"},
        {"function": "something"},
        {"test": ""},
        {"test": "`docs/test_equations.py::test_no_such`"},
        {"test": "`docs/no_such.py::test_a`"},
        {"page": "[p](no_such.md)"},
    ):
        assert wrong_in(Row(**{**good.__dict__, **changed})), changed
    assert missing([good], 2, {"Theorem 1"}) == {"2", "Theorem 1"}
    assert missing([good, good], 1, set()) == {"1"}
