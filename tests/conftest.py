"""What all tests share: real data, figures, and the number of examples of a property."""

import gc
import os
import sys
from pathlib import Path

import pytensor
import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run: a test that passed passes again, and nothing is kept on disk.
settings.register_profile(
    "pm_evidence",
    max_examples=50,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("pm_evidence")

# What tests compile for comparison runs in Python: numba, or a compiler of C, would take longer.
pytensor.config.mode = "FAST_COMPILE"
pytensor.config.cxx = ""

# Figures are drawn without a screen.
os.environ["MPLBACKEND"] = "Agg"

# Compiling makes millions of objects that last; a search for garbage among them takes long.
gc.set_threshold(100_000, 20, 100)

_DATA = "PM_EVIDENCE_DATA"
_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"

if not os.environ.get(_DATA) and _BESIDE.is_dir():
    os.environ[_DATA] = str(_BESIDE)


# Folders whose files are begun first, since they take longest, and the one that is begun last, when
# the machine code that it needs is there.
_FIRST, _LAST = ("targets", "families", "api"), "golden"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Order the files, and leave the tests within them in their order; mark those of scripts."""
    place = {folder: i for i, folder in enumerate(_FIRST)} | {_LAST: len(_FIRST) + 1}
    here = Path(__file__).parent
    folders = {item: item.path.relative_to(here).parts[0] for item in items}
    items.sort(key=lambda item: place.get(folders[item], len(_FIRST)))
    for item in items:
        if folders[item] in ("examples", "benchmarks"):
            item.add_marker("docs")


@pytest.fixture(autouse=True)
def _close_figures():
    """Close figures after each test."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def data_folder():
    """The folder of real data; a test that asks for it is left out where there is none."""
    folder = os.environ.get(_DATA)
    if not folder:
        pytest.skip(f"{_DATA} is not set")
    if not Path(folder).is_dir():
        pytest.skip(f"{_DATA} names no folder: {folder}")
    return Path(folder)
