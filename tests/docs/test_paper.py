"""The paper and the announcement: their numbers are those of the stored runs, and their form."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAPER, ANNOUNCEMENT = (ROOT / "docs" / f"{name}.md" for name in ("paper", "announcement"))
SECTIONS = ["Summary", "Statement of need", "State of the field", "Software design"]
SECTIONS += ["Research impact statement", "Limitations", "References"]


def numbers_of_pages():
    spec = importlib.util.spec_from_file_location("paper", ROOT / "docs" / "paper_numbers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_numbers_are_those_of_the_stored_runs():
    module = numbers_of_pages()
    values, seen = module.numbers(), set()
    for page in module.PAGES:
        text = page.read_text(encoding="utf-8")
        new, phrases = module.updated(text, values)
        assert new == text, f"{page.name}: run python docs/paper_numbers.py --write"
        assert module.unchecked(text) == [], page.name
        seen |= set(phrases)
    assert seen == set(module.PHRASES)


def test_a_wrong_number_and_one_in_no_phrase_are_noticed():
    module = numbers_of_pages()
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
