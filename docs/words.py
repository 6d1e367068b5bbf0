"""Count the words of the pages, and those of their sentences.

    python docs/words.py [docs/user_guide.md ...]

``all`` counts everything between spaces, code, outputs and tables included. ``prose`` is paragraphs
and items of lists; a piece of code in a sentence is one word, and so is a formula.
"""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MADE = {"_build", "generated", "notebooks"}  # by the build of the site
DIRECTIVE = re.compile(r"^:::.*$|^:[\w-]+:.*$", re.MULTILINE)
PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
CODE = re.compile(r"``.+?``|`[^`]+`|\$[^$]+\$", re.DOTALL)
END = re.compile(r"(?<=[.?!])[)\"*]*\s+(?=[\"*(A-Z`])")
ABBREVIATION = re.compile(r"\b(et al|vs|e\.g|i\.e|Fig|Eq|[A-Z])\.")


@dataclass(frozen=True)
class Count:
    """Words of a page."""

    all: int
    prose: int
    sentences: tuple[int, ...]

    @property
    def average(self):
        """Return the words of an average sentence."""
        return sum(self.sentences) / max(len(self.sentences), 1)


def paragraphs(text):
    """Return paragraphs and items of lists, without code, tables, headings and pictures."""
    text = re.sub(r"^```.*?^```[ \t]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = LINK.sub(r"\1", PICTURE.sub("", DIRECTIVE.sub("", text)))
    text = CODE.sub("Code", re.sub(r"<[^>]+>", "", text))
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "#"))]
    text = re.sub(r"^\s*([-*]|\d+\.) ", "\n\n", "\n".join(lines), flags=re.MULTILINE)
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def count(text):
    """Return the words of a page and of its sentences; references are no sentences."""
    lengths = []
    for paragraph in paragraphs(re.split(r"^## References$", text, flags=re.MULTILINE)[0]):
        for sentence in END.split(ABBREVIATION.sub(r"\1", paragraph)):
            lengths.append(len(sentence.split()))
    return Count(len(text.split()), sum(lengths), tuple(lengths))


def pages():
    """Return the pages of the site and the README."""
    found = ROOT.glob("docs/**/*.md")
    return [ROOT / "README.md", *sorted(p for p in found if not MADE & set(p.parts))]


def main():
    """Print a row for each page, and the sum."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path)
    total, row = 0, "{:<38} {:>7} {:>7} {:>9} {:>8}"
    print(row.format("page", "all", "prose", "sentence", "longest"))
    for page in [p.resolve() for p in parser.parse_args().pages] or pages():
        found = count(page.read_text(encoding="utf-8"))
        total += found.all
        longest = max(found.sentences, default=0)
        name = str(page.relative_to(ROOT))
        print(row.format(name, found.all, found.prose, f"{found.average:.1f}", longest))
    print(row.format("in all", total, "", "", ""))


if __name__ == "__main__":
    main()
