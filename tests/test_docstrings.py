"""Examples in docstrings run, and give what they show."""

import doctest
import importlib
import warnings
from pathlib import Path

import pytest

import pm_evidence

ROOT = Path(pm_evidence.__file__).parent
# Modules whose examples compile large models or sample for more than ten seconds.
SLOW = {"api.integrated", "api.sample", "api.simulated", "plots.stages"}


def name_of(path):
    """Return the name of a module within the package, such as ``api.sample``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = sorted(
    name_of(path) for path in ROOT.rglob("*.py") if ">>>" in path.read_text(encoding="utf-8")
)


def failures(module):
    """Run the examples of a module, and return what the wrong ones print."""
    printed = []
    runner = doctest.DocTestRunner(verbose=False)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module):
        if test.examples:
            runner.run(test, out=printed.append)
    assert runner.tries > 0, module.__name__
    return printed


@pytest.mark.docs
@pytest.mark.parametrize(
    "name", [pytest.param(m, marks=pytest.mark.slow if m in SLOW else []) for m in MODULES]
)
def test_the_examples_of_a_module_run(name, tmp_path, monkeypatch):
    """Users copy these examples first, and read from them what a call returns."""
    monkeypatch.chdir(tmp_path)  # some examples write files
    module = importlib.import_module(f"pm_evidence.{name}".rstrip("."))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PyTensor could not link to a BLAS", UserWarning)
        wrong = failures(module)
    assert not wrong, "\n".join(wrong)


def test_a_wrong_example_is_found():
    """Otherwise the test above would pass whatever the examples show."""
    module = type(doctest)("made")
    module.__doc__ = ">>> 1 + 1\n3\n"
    assert any("Expected:" in text for text in failures(module))
