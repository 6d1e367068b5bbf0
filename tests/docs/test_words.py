"""The pages stay short, and the paper and the announcement have their form and right numbers."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDE_WORDS, README_LINES, CHANGELOG_LINES, SENTENCE_WORDS = 2500, 150, 60, 25
# Pages for developers, whose lists of names are read as one sentence.
OTHERS = {f"docs/{name}.md" for name in ("internals", "architecture", "approximations")}


def script(name):
    """Return a script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_short():
    words = script("words")
    read = {str(p.relative_to(ROOT)): p.read_text(encoding="utf-8") for p in words.pages()}
    assert words.count(read["docs/user_guide.md"]).all <= GUIDE_WORDS
    assert len(read["README.md"].splitlines()) <= README_LINES
    averages = {name: words.count(text).average for name, text in read.items()}
    long = {n: a for n, a in averages.items() if a > SENTENCE_WORDS and n not in OTHERS}
    assert not long


def test_a_version_has_few_lines_in_the_changelog():
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, *versions = re.split(r"^## \[", changes, flags=re.MULTILINE)
    lines = {part.split("]")[0]: len(part.splitlines()) for part in versions}
    assert max(lines.values()) <= CHANGELOG_LINES, lines
    assert max(map(len, changes.splitlines())) <= 120


def test_words_are_counted():
    page = (
        "# Title\n\nOne `a b` two. Three (four)!\n\n| a | b |\n\n```python\nx = 1\n```\n\n- five\n"
    )
    found = script("words").count(page)
    assert found.sentences == (3, 2, 1) and found.prose == 6
    assert found.all == len(page.split())


# --- the paper and the announcement ---


PAPER, ANNOUNCEMENT = (ROOT / "docs" / f"{name}.md" for name in ("paper", "announcement"))
SECTIONS = ["Summary", "Statement of need", "State of the field", "Software design"]
SECTIONS += ["Research impact statement", "Limitations", "References"]


def test_the_numbers_are_those_of_the_stored_runs():
    module = script("paper_numbers")
    values, seen = module.numbers(), set()
    for page in module.PAGES:
        text = page.read_text(encoding="utf-8")
        new, phrases = module.updated(text, values)
        assert new == text, f"{page.name}: run python docs/paper_numbers.py --write"
        assert module.unchecked(text) == [], page.name
        seen |= set(phrases)
    assert seen == set(module.PHRASES)


def test_a_wrong_number_and_one_in_no_phrase_are_noticed():
    module = script("paper_numbers")
    wrong = "The root mean square\nerror is 0.5 nats.\nAll of 12 runs. `x = 3` [@a2020]\n"
    new, _ = module.updated(wrong, {"rms": "0.018"})
    assert new == wrong.replace("0.5", "0.018")
    assert module.unchecked(wrong) == ["12"]


def test_the_paper_has_the_form_of_the_journal():
    text = PAPER.read_text(encoding="utf-8")
    _, head, body = text.split("---\n", 2)
    assert re.findall(r"^(\w+):", head, re.MULTILINE) == [
        *("title", "tags", "authors", "affiliations", "date", "bibliography")
    ]
    assert re.findall(r"^# (.*)$", body, re.MULTILINE) == SECTIONS
    assert 800 <= len(body.split()) <= 1200
    cited = set(re.findall(r"@(\w+)", body))
    assert cited == set(
        re.findall(r"^@\w+\{(\w+),", (PAPER.parent / "paper.bib").read_text("utf-8"), re.MULTILINE)
    )
    labels = set(re.findall(r"\\label\{([\w:]+)\}", body))
    assert labels == set(re.findall(r"\\autoref\{([\w:]+)\}", body)) != set()


def test_the_announcement_is_short():
    text = ANNOUNCEMENT.read_text(encoding="utf-8")
    assert len(text.split()) <= 350
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) == 8
