"""The Python blocks of README.md and of docs/ run from top to bottom, one namespace per file.

A block whose fence says ``raises=Error`` must raise that error; a ``text`` block after it must be
its message, with ``...`` for what is left out.
"""

import builtins
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import pymc as pm
import pytest

import pm_evidence as pe

mpl.use("Agg")

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w+)[ \t]*(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)\s]*)?\)")
# Processes that compile for themselves; a dozen models.
SLOW = {"docs/decisions.md", "docs/parallel.md", "docs/user_guide.md"}
PAGES = sorted(
    str(page.relative_to(ROOT)) for page in [*ROOT.glob("docs/*.md"), ROOT / "README.md"]
)


@dataclass(frozen=True)
class Block:
    """A Python block of a page, with the error that it announces."""

    code: str
    line: int
    error: str
    message: str


def blocks(text):
    """Return the Python blocks of a page."""
    found = []
    fences = list(FENCE.finditer(text))
    for i, fence in enumerate(fences):
        language, options, code = fence.groups()
        if language != "python":
            continue
        error = options.removeprefix("raises=") if options.startswith("raises=") else ""
        following = fences[i + 1] if i + 1 < len(fences) else None
        says = following is not None and error and following[1] == "text"
        line = text[: fence.start()].count("\n") + 1
        found.append(Block(code, line, error, following[3] if says else ""))
    return found


def like(pattern, message):
    """Whether a message is the one that a page shows, whose ``...`` stand for anything."""
    pattern, message = " ".join(pattern.split()), " ".join(message.split())
    parts = [re.escape(part) for part in re.split(r"\s*\.\.\.\s*", pattern)]
    return re.fullmatch(r"\s*.*\s*".join(parts), message) is not None


def run(block, namespace, page):
    """Run a block; its errors name the page and the line."""
    code = compile("\n" * block.line + block.code, str(ROOT / page), "exec")
    if not block.error:
        exec(code, namespace)
        return
    error = getattr(pe, block.error, None) or getattr(builtins, block.error)
    with pytest.raises(error) as caught:
        exec(code, namespace)
    if block.message:
        assert like(block.message, str(caught.value)), str(caught.value)


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=pytest.mark.slow if p in SLOW else []) for p in PAGES]
)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for block in blocks((ROOT / page).read_text(encoding="utf-8")):
        with warnings.catch_warnings():
            # The pages impute on purpose, and PyMC's own simulator uses what PyTensor deprecates.
            warnings.simplefilter("ignore", pm.exceptions.ImputationWarning)
            warnings.filterwarnings(
                "ignore", message=".*RandomVariable", category=DeprecationWarning
            )
            run(block, namespace, page)


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target, anchor in LINK.findall(text):
        file = (ROOT / page).parent / target
        assert file.exists(), target
        if anchor:
            linked = file.read_text(encoding="utf-8")
            titles = re.findall(r"^#+ (.*)$", linked, re.MULTILINE)
            anchors = {"#" + re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}
            anchors |= {"#" + name for name in re.findall(r'<a id="(\w+)"></a>', linked)}
            assert anchor in anchors, f"{target}{anchor}"


def test_blocks_are_found_with_what_they_announce():
    page = "a\n```python raises=ValueError\nint('x')\n```\n\n```text\ninvalid ... 'x'\n```\n"
    page += "```sh\nls\n```\n```python\nx = 1\n```\n"
    first, second = blocks(page)
    assert (first.error, first.message, first.line) == ("ValueError", "invalid ... 'x'\n", 2)
    assert (second.code, second.error) == ("x = 1\n", "")
    namespace = {}
    run(first, namespace, "page")
    run(second, namespace, "page")
    assert namespace["x"] == 1


def test_another_error_or_another_message_is_noticed():
    page = "```python raises=ValueError\n{code}\n```\n```text\ninvalid ... 'x'\n```\n"
    (wrong,) = blocks(page.format(code="raise ValueError('other')"))
    with pytest.raises(AssertionError):
        run(wrong, {}, "page")
    (silent,) = blocks(page.format(code="pass"))
    with pytest.raises(pytest.fail.Exception):
        run(silent, {}, "page")
