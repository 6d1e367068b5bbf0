"""The pages stay short: words of the guide, lines of README and changelog, words of a sentence."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDE_WORDS, README_LINES, CHANGELOG_LINES, SENTENCE_WORDS = 2500, 150, 60, 25
# Pages for developers, whose lists of names are read as one sentence.
OTHERS = {f"docs/{name}.md" for name in ("internals", "architecture", "approximations")}


def words_of_pages():
    spec = importlib.util.spec_from_file_location("words", ROOT / "docs" / "words.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_short():
    words = words_of_pages()
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
    found = words_of_pages().count(page)
    assert found.sentences == (3, 2, 1) and found.prose == 6
    assert found.all == len(page.split())
