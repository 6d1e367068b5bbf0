"""The Python blocks of README.md and of docs/ run from top to bottom, one namespace per file.

A block whose fence says ``raises=Error`` must raise that error; a ``text`` block after it must be
its message, with ``...`` for what is left out. After any other block it is what the block prints,
as ``docs/outputs.py`` has written it; numbers may differ.
"""

import builtins
import contextlib
import io
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import pymc as pm
import pytest

import pm_evidence as pe

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w+)[ \t]*(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)\s]*)?\)")
NUMBER = re.compile(r"[-+]?\d[\d.]*(e[-+]?\d+)?(\(\d+\))?")
# Processes that compile for themselves; a dozen models; draws of pm.sample; long runs.
SLOW = {
    "docs/comparing_models.md",
    "docs/decisions.md",
    "docs/how_it_works.md",
    "docs/howto/speed.md",
    "docs/methods/ais.md",
    "docs/methods/aisel.md",
    "docs/methods/arm.md",
    "docs/methods/bridge_sampling.md",
    "docs/methods/parallel_tempering.md",
    "docs/parallel.md",
    "docs/user_guide.md",
}
MADE = {"_build", "generated", "notebooks"}  # by the build of the site
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")]
    if not MADE & set(page.relative_to(ROOT).parts)
)


@dataclass(frozen=True)
class Block:
    """A Python block of a page, with the error that it announces, and the text that follows.

    The text is the message of the error, or what the block prints; None if no text follows.
    """

    code: str
    line: int
    error: str
    text: str | None


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
        belongs = (
            following is not None
            and following[1] == "text"
            and (error or not text[fence.end() : following.start()].strip())
        )
        line = text[: fence.start()].count("\n") + 1
        found.append(Block(code, line, error, following[3] if belongs else None))
    return found


def words(printed):
    """What was printed, without spaces; numbers, and rows of them, are one sign."""
    return re.sub(r"#(?:[\s,()\[\]]*#)+", "#", NUMBER.sub("#", printed)).split()


def like(pattern, message):
    """Whether a message is the one that a page shows, whose ``...`` stand for anything."""
    pattern, message = " ".join(pattern.split()), " ".join(message.split())
    parts = [re.escape(part) for part in re.split(r"\s*\.\.\.\s*", pattern)]
    return re.fullmatch(r"\s*.*\s*".join(parts), message) is not None


def run(block, namespace, page):
    """Run a block; its errors name the page and the line."""
    code = compile("\n" * block.line + block.code, str(ROOT / page), "exec")
    if not block.error:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, namespace)
        if block.text is not None:
            assert words(block.text) == words(printed.getvalue()), printed.getvalue()
        return
    error = getattr(pe, block.error, None) or getattr(builtins, block.error)
    with pytest.raises(error) as caught:
        exec(code, namespace)
    if block.text:
        assert like(block.text, str(caught.value)), str(caught.value)


@pytest.mark.docs
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


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        check_links(page)


def check_links(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target, anchor in LINK.findall(text):
        file = (ROOT / page).parent / target
        assert file.exists(), f"{page}: {target}"
        if anchor:
            linked = file.read_text(encoding="utf-8")
            titles = re.findall(r"^#+ (.*)$", linked, re.MULTILINE)
            anchors = {"#" + re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}
            anchors |= {"#" + name for name in re.findall(r'<a id="(\w+)"></a>', linked)}
            assert anchor in anchors, f"{page}: {target}{anchor}"


def test_blocks_are_found_with_what_they_announce():
    page = "a\n```python raises=ValueError\nint('x')\n```\n\n```text\ninvalid ... 'x'\n```\n"
    page += "```sh\nls\n```\n```python\nx = 1\n```\n"
    first, second = blocks(page)
    assert (first.error, first.text, first.line) == ("ValueError", "invalid ... 'x'\n", 2)
    assert (second.code, second.error, second.text) == ("x = 1\n", "", None)
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


def test_an_output_with_other_words_is_noticed():
    page = "```python\nprint('log Z', {value})\n```\n\n```text\nlog Z -3.05(12)\n```\n"
    (same,) = blocks(page.format(value="'-3.1(4)'"))
    run(same, {}, "page")
    (other,) = blocks(page.format(value="'unknown'"))
    with pytest.raises(AssertionError):
        run(other, {}, "page")
