"""Every public name is on the page of the API, and has a docstring in the numpydoc format."""

import importlib
import re
import tomllib
from pathlib import Path
from types import ModuleType

from numpydoc.validate import validate

ROOT = Path(__file__).resolve().parents[2]
MODULES = [
    "",
    "estimators",
    "extending",
    "gp",
    "kernels",
    "lattices",
    "methods",
    "mixtures",
    "paths",
]
MODULES += ["rbm", "references", "schedules", "testing"]
# No docstring; a parameter without a description, or described without being one; no "Returns".
WRONG = {"GL08", "PR01", "PR02", "RT01"}
# A type and a dictionary, which have no docstrings; protocols and an enumeration, which nobody
# calls.
OTHERS = {"Report", "TAGS", "Kernel", "Path", "Phase", "Tunable"}


def public_names():
    """Return pairs of a module and a name of it, as users write them."""
    pairs = []
    for part in MODULES:
        module = importlib.import_module(f"pm_evidence.{part}".rstrip("."))
        pairs += [
            (module.__name__, name)
            for name in module.__all__
            if not isinstance(getattr(module, name), ModuleType)
        ]
    return pairs


def names_on_the_page():
    text, module, found = (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), "", set()
    for line in text.splitlines():
        if current := re.match(r"\.\. currentmodule:: (.*)", line):
            module = current[1]
        elif name := re.fullmatch(r"   (\w+)", line):
            found.add((module, name[1]))
    return found


def wrong_docstring(name):
    """Return what is wrong with the docstring of a dotted name."""
    return [text for code, text in validate(name)["errors"] if code in WRONG]


def test_the_page_has_all_public_names():
    assert names_on_the_page() == set(public_names())


def test_public_names_have_numpydoc_docstrings():
    names = [f"{module}.{name}" for module, name in public_names() if name not in OTHERS]
    wrong = {name: found for name in names if (found := wrong_docstring(name))}
    assert not wrong


def test_a_docstring_without_parameters_is_noticed(monkeypatch):
    import pm_evidence as pe

    monkeypatch.setattr(pe.compare, "__doc__", "Compare models.\n")
    assert wrong_docstring("pm_evidence.compare")


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(\d[\d.]*)\] - (.*)$", changes, re.MULTILINE)
    assert newest[1] == project["version"]
    cited = re.search(r"^version: (.*)\ndate-released: (.*)$", citation, re.MULTILINE)
    assert cited.groups() == newest.groups()
