"""What was computed once is read, and not computed again, from files that show damage.

Files are written as a whole or not at all.
"""

import json
import logging
import os
import pickle
import signal
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.interrupts import Interrupted, interrupt_answered, interruptible, silent
from pm_evidence.execution.journal import Archive, Damaged, Entry, Journal


@dataclass(frozen=True)
class Square:
    """A task that notes that it ran."""

    number: int
    ran: list
    fails: type[BaseException] | None = None

    def __call__(self, report=silent):
        self.ran.append(self.number)
        if self.fails is not None:
            raise self.fails("no")
        return np.array([self.number**2])


def one_by_one(tasks, *, done, order=None):
    """Run tasks, in an order of their positions."""
    for i in order or range(len(tasks)):
        done(i, tasks[i]())


def journal(folder, run="a"):
    return Journal(Archive(folder), run)


def squares(folder, numbers=range(4), run="a", **options):
    """The results of some tasks, and which of them ran."""
    ran = []
    found = journal(folder, run).run([Square(n, ran) for n in numbers], one_by_one, **options)
    assert [each.item() for each in found] == [n**2 for n in numbers]
    return ran


def test_finished_tasks_are_read(tmp_path):
    shown = []
    assert squares(tmp_path) == [0, 1, 2, 3]
    assert squares(tmp_path, done=lambda i, found: shown.append(i)) == []
    assert shown == [0, 1, 2, 3], "the display does not count what was read"


def test_a_missing_or_damaged_one_is_computed_again(tmp_path, caplog):
    squares(tmp_path)
    first, second, *_ = sorted(tmp_path.iterdir())
    first.unlink()
    second.write_bytes(second.read_bytes()[:-50])
    with caplog.at_level(logging.WARNING):
        assert squares(tmp_path) == [0, 1]
    assert f"{second} is damaged, and is computed again" in caplog.text
    assert squares(tmp_path) == []


def test_entries_of_another_run_or_task_are_not_used(tmp_path, caplog):
    """Another run computes its own; another task under the same number is reported."""
    squares(tmp_path)
    assert squares(tmp_path, run="b") == [0, 1, 2, 3]
    with caplog.at_level(logging.WARNING):
        assert squares(tmp_path, [0, 5, 2, 3], run="b") == [5]
    assert "it holds Square(number=1) and not Square(number=5)" in caplog.text


def test_what_is_remembered(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"a": np.arange(3.0)}, 7

    for _ in range(2):
        found, number = journal(tmp_path).remembered("a fit", compute)
        assert found["a"].tolist() == [0.0, 1.0, 2.0] and number == 7
    assert calls == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["00001-a_fit.zarr.zip"]


def test_an_error_is_remembered(tmp_path):
    """A pilot that does not reach the target may have taken hours."""
    calls = []

    def fail():
        calls.append(1)
        error = pe.NumericalError("the prior is very far from the data.")
        error.n_evaluations = 12
        raise error

    for _ in range(2):
        with pytest.raises(pe.NumericalError, match="very far") as found:
            journal(tmp_path).remembered("plan", fail)
        assert found.value.n_evaluations == 12
    assert calls == [1]


def test_what_is_kept_of_a_target_has_no_number(tmp_path):
    """A target that is used again in the same process knows it, and does not ask."""
    first = journal(tmp_path)
    assert first.kept("trial", lambda: 3) == 3
    assert first.remembered("plan", lambda: 4) == 4
    assert journal(tmp_path).remembered("plan", lambda: 5) == 4
    assert journal(tmp_path).kept("trial", lambda: 5) == 3


def test_values_of_other_classes_are_computed_again(tmp_path):
    """A kernel of a user's own that is no dataclass, for example: slower, and not wrong."""
    assert isinstance(journal(tmp_path).remembered("plan", object), object)
    assert not list(tmp_path.iterdir())


def test_ctrl_c_leaves_the_first_results(tmp_path):
    """Up to the first task that had not finished, whatever came later: times may tell of results.

    What came later is stored all the same.
    """
    ran = []
    tasks = [Square(0, ran), Square(1, ran), Square(2, ran, KeyboardInterrupt), Square(3, ran)]
    with pytest.raises(Interrupted) as found:
        journal(tmp_path).run(tasks, one_by_one, order=[0, 3, 1, 2])
    assert [each.item() for each in found.value.finished] == [0, 1]
    assert squares(tmp_path) == [2]
    with pytest.raises(Interrupted) as found:
        Journal().run(tasks, one_by_one, order=[1, 2])
    assert found.value.finished == ()


def test_ctrl_c_waits_for_the_end_of_a_file(tmp_path, monkeypatch):
    """The file is whole, and its result counts; it was once written by two threads at a time."""
    replace = os.replace

    def interrupted(*names):
        signal.raise_signal(signal.SIGINT)
        replace(*names)

    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr("os.replace", interrupted)
    with interruptible():
        with pytest.raises(Interrupted) as found:
            journal(tmp_path).run([Square(2, []), Square(3, [])], one_by_one)
        interrupt_answered()
    monkeypatch.undo()
    signal.signal(signal.SIGINT, former)
    assert [each.item() for each in found.value.finished] == [4]
    assert [path.name for path in tmp_path.iterdir()] == ["00001-tasks-00000.zarr.zip"]
    assert squares(tmp_path, [2, 3]) == [3]


def test_the_clock_goes_on(tmp_path):
    """Time of earlier processes counts, and what a time has decided stays decided."""
    first = journal(tmp_path)
    first._started -= 100.0
    decided = first.time()
    first.remembered("plan", lambda: 1)
    again = journal(tmp_path)
    assert again.now() < 50.0
    assert again.time() == decided > 100.0
    again.remembered("plan", lambda: 1)
    assert 100.0 < again.now() < 150.0


def test_a_full_disk_does_not_end_a_run(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Archive, "write", full)
    here = journal(tmp_path)
    with pytest.warns(pe.EvidenceWarning, match="No space left on device"):
        assert here.remembered("plan", lambda: 1) == 1
    assert here.remembered("fit", lambda: 2) == 2  # and it is said only once


# --- files ---


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
