"""The picture of the tree in docs/architecture.md is true: every file and folder has its place."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "pm_evidence"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def section(title):
    """Return the text below a heading of the page."""
    return re.search(rf"^## {title}$(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)[1]


def test_files_that_the_page_names_exist():
    """Names with a folder; a path of the package is given without its name."""
    named = set(re.findall(r"`([\w/]+/[\w/]*\.py)`", PAGE))
    assert len(named) > 15
    missing = [
        name for name in named if not (PACKAGE / name).exists() and not (ROOT / name).exists()
    ]
    assert not missing


def test_names_in_code_that_the_page_mentions_exist():
    """What stands in parentheses behind a file is defined in it."""
    pairs = re.findall(r"`([\w/]+\.py)` \(`(?:\w+\.)?(\w+)`", PAGE)
    assert len(pairs) > 3
    for file, name in pairs:
        text = (PACKAGE / file).read_text(encoding="utf-8")
        assert re.search(rf"(def|class) {name}\b", text), f"{file}: {name}"


def test_every_folder_is_in_the_tree():
    tree = section("The tree")
    folders = {path.parent.name for path in PACKAGE.rglob("__init__.py")} - {PACKAGE.name}
    assert not [name for name in folders if f" {name}/" not in tree]


def test_every_layer_is_in_the_picture_of_the_layers():
    layers = section("Layers")
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    drawn = set(re.findall(r"\b\w+\b", "\n".join(re.findall(r"^    .*$", layers, re.MULTILINE))))
    assert packages <= drawn
