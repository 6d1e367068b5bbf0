"""What all tests share: where the real data lie."""

import os
from pathlib import Path

import pytest

_DATA = "PM_EVIDENCE_DATA"
_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"

if not os.environ.get(_DATA) and _BESIDE.is_dir():
    os.environ[_DATA] = str(_BESIDE)


@pytest.fixture
def data_folder():
    """The folder of real data; a test that asks for it is left out where there is none."""
    folder = os.environ.get(_DATA)
    if not folder:
        pytest.skip(f"{_DATA} is not set")
    if not Path(folder).is_dir():
        pytest.skip(f"{_DATA} names no folder: {folder}")
    return Path(folder)
