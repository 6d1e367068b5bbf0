"""Write what the code of the pages prints and draws into the pages.

    python docs/outputs.py docs/get_started.md README.md

A ``text`` block right after a Python block is what that block prints, and a picture in
``figures/pages/`` after it is what it draws. Tests run the same blocks, and fail if the words of an
output have changed; numbers may differ in their last digits between processors.
"""

import argparse
import contextlib
import io
import re
import tempfile
import warnings
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"\s*^```text\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"\s*^!\[[^\]]*\]\(([^)]*figures/pages/[^)]*)\)", re.MULTILINE)


def printed_by(code, namespace, name):
    """Run a block; return what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(code, name, "exec"), namespace)
    return "\n".join(line.rstrip() for line in printed.getvalue().strip("\n").split("\n")) + "\n"


def save_picture(file):
    """Save the figure that a block has drawn, small enough for a repository."""
    file.parent.mkdir(parents=True, exist_ok=True)
    plt.savefig(file, dpi=72, bbox_inches="tight", metadata={"Software": None})
    plt.close("all")


def with_outputs(page):
    """Return the text of a page with the outputs of its blocks; pictures are saved."""
    text, done, position = page.read_text(encoding="utf-8"), [], 0
    namespace = {"__name__": "__main__"}
    while block := BLOCK.search(text, position):
        printed = printed_by(block[1], namespace, str(page))
        done.append(text[position : block.end()])
        position = block.end()
        if output := OUTPUT.match(text, position):
            done.append(f"\n```text\n{printed}```\n")
            position = output.end()
        if picture := PICTURE.match(text, position):
            save_picture(page.parent / picture[1])
    return "".join(done) + text[position:]


def main():
    """Update the pages that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="+", type=Path)
    for page in [page.resolve() for page in parser.parse_args().pages]:
        # files that the code writes, such as checkpoints, do not belong to the repository
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            page.write_text(with_outputs(page), encoding="utf-8")
        print(page.name)


if __name__ == "__main__":
    main()
