"""Files that are written as a whole or not at all, and that show damage."""

import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pm_evidence.execution.journal import Archive, Damaged, Entry

ENTRY = Entry(
    {"text": "é", "number": 0.1 + 0.2, "whole": 1.0, "list": [1, None, True, {"a": -0.0}]},
    {
        "draws": np.random.default_rng(1).normal(size=(40, 3)),
        "none": np.empty((0, 3)),
        "one": np.array(2.5),
        "bits": np.arange(300, dtype=np.uint8),
        "seeds": np.full(4, 2**64 - 1, np.uint64),
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    },
)


@pytest.fixture
def archive(tmp_path):
    archive = Archive(tmp_path)
    archive.write("a", ENTRY)
    return archive


def test_what_is_written_is_read(archive):
    """Also NumPy's scalars and arrays without an element, and numbers to the last bit."""
    found = archive.read("a")
    assert found.attributes == ENTRY.attributes
    assert str(found.attributes["list"][3]["a"]) == "-0.0"
    assert set(found.arrays) == set(ENTRY.arrays)
    for name, array in ENTRY.arrays.items():
        assert found.arrays[name].dtype == array.dtype and found.arrays[name].shape == array.shape
        assert np.array_equal(found.arrays[name], array)
    assert archive.read("b") is None and len(archive) == 1


def test_files_are_plain_zarr(archive):
    """Who wants to look inside needs no more than zarr."""
    zarr = pytest.importorskip("zarr")
    with zarr.storage.ZipStore(archive.path("a"), mode="r") as store:
        group = zarr.open_group(store, mode="r")
        assert group.attrs["text"] == "é" and group["draws"].shape == (40, 3)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_found(archive, share):
    path = archive.path("a")
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(Damaged):
        archive.read("a")


def test_a_changed_byte_is_found(archive):
    """Wherever it is; a byte of the directory at the end may leave all values as they are."""
    path = archive.path("a")
    whole = path.read_bytes()
    for place in range(0, len(whole), 97):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            found = archive.read("a")
        except Damaged:
            continue
        assert found.checksum() == ENTRY.checksum()


def test_a_process_that_dies_while_it_writes_leaves_the_old_entry(archive, monkeypatch):
    def die(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", die)
    with pytest.raises(KeyboardInterrupt):
        archive.write("a", Entry({"x": 1}, {}))
    assert archive.read("a").attributes == ENTRY.attributes
    assert len(archive) == 1, "the unfinished file counts as an entry"


class Touches:
    """An object that makes a file when it is unpickled."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)


def test_a_file_that_asks_to_be_unpickled_runs_no_code(tmp_path):
    made = tmp_path / "made"
    codecs = {"filters": [{"id": "vlen-utf8"}, {"id": "pickle"}], "compressor": None}
    array = {
        "zarr_format": 2,
        "shape": [1],
        "chunks": [1],
        "dtype": "|O",
        "fill_value": "",
        "order": "C",
    }
    archive = Archive(tmp_path)
    with zipfile.ZipFile(archive.path("part"), "w") as file:
        file.writestr(".zgroup", '{"zarr_format": 2}')
        file.writestr(".zattrs", '{"arrays": ["x"], "checksum": ""}')
        file.writestr("x/.zarray", json.dumps(array | codecs))
        file.writestr("x/0", pickle.dumps(Touches(made)))
    with pytest.raises(Damaged, match="pickle"):
        archive.read("part")
    assert not made.exists()
    pickle.loads(pickle.dumps(Touches(made)))
    assert made.exists()  # it would have
