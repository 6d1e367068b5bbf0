"""What a run has computed so far, kept in files so that the same run can go on from there.

A run is deterministic: the same call asks for the same things in the same order. So each of them
has a number, and if the run is repeated, what was stored under the number is not computed again.
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codec import Unreadable, Unstorable, decoded, encoded
from pm_evidence.core.exceptions import NumericalError, warn
from pm_evidence.core.interrupts import Interrupted, uninterrupted
from pm_evidence.execution.blocks import Task

_SUFFIX, _UNFINISHED = ".zarr.zip", ".part"
_CHECKSUM, _ARRAYS = "sha256", "arrays"


class Damaged(Exception):
    """A file is truncated or changed, or is no file of an archive."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a file of an archive holds."""

    attributes: Mapping[str, Any]  # values that JSON can hold, without NaN and infinity
    arrays: Mapping[str, NDArray[Any]]  # arrays of numbers

    def checksum(self) -> str:
        """Return a checksum of the values, shapes and types of all that the entry holds."""
        found = hashlib.sha256(json.dumps(self.attributes, sort_keys=True).encode())
        for name in sorted(self.arrays):
            array = self.arrays[name]
            found.update(f"{name}{array.dtype.str}{array.shape}".encode())
            found.update(np.ascontiguousarray(array).data)
        return found.hexdigest()


class Archive:
    """A folder of entries, each a Zarr group in a file of its own.

    An entry is written to a file of another name, which is then renamed, so that a process that is
    killed leaves no half of an entry. A checksum tells whether a file was truncated or changed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return sum(1 for path in self.folder.iterdir() if path.name.endswith(_SUFFIX))

    def path(self, name: str) -> Path:
        """Return the file of an entry."""
        return self.folder / f"{name}{_SUFFIX}"

    def write(self, name: str, entry: Entry) -> None:
        """Write an entry, in place of one of the same name."""
        import zarr  # importing it takes half a second, and few runs need it
        from zarr.storage import ZipStore

        unfinished = self.folder / f"{name}{_UNFINISHED}"
        facts = {_ARRAYS: [*entry.arrays], _CHECKSUM: entry.checksum()}
        attributes = {**entry.attributes, **facts}
        with ZipStore(unfinished, mode="w") as store:
            group = zarr.open_group(store, mode="w", attributes=attributes)
            for key, array in entry.arrays.items():
                group.create_array(key, data=array, chunks=tuple(max(n, 1) for n in array.shape))
        os.replace(unfinished, self.path(name))

    def read(self, name: str) -> Entry | None:
        """Return an entry; None if there is none."""
        if not self.path(name).exists():
            return None
        try:
            entry, checksum = self._read(name)
        except Exception as error:  # whatever a damaged file makes zarr and its codecs raise
            raise Damaged(f"{type(error).__name__} {error}".strip()) from error
        if entry.checksum() != checksum:
            raise Damaged("its checksum differs")
        return entry

    def _read(self, name: str) -> tuple[Entry, Any]:
        import zarr
        from zarr.storage import ZipStore

        with ZipStore(self.path(name), mode="r") as store:
            # zarr types the members as arrays or groups
            group: Any = zarr.open_group(store, mode="r")
            attributes: dict[str, Any] = dict(group.attrs)
            arrays = {key: np.asarray(group[key][...]) for key in attributes.pop(_ARRAYS)}
        checksum = attributes.pop(_CHECKSUM)
        return Entry(attributes, arrays), checksum


_log = logging.getLogger("pymc.pm_evidence")
_MISSING = object()


class Journal:
    """Computes what a run asks for, unless it was stored by an earlier process."""

    def __init__(self, archive: Archive | None = None, run: str = "") -> None:
        self._archive, self._run = archive, run
        self._number = self._n_times = 0
        self._earlier, self._started = 0.0, time.perf_counter()

    def run(
        self,
        tasks: Sequence[Task],
        runner: Callable[..., Any],
        *,
        done: Callable[[int, Any], None] = lambda block, record: None,
        **shown: Any,
    ) -> list[Any]:
        """Return the results of tasks, of which those that are not stored run."""
        call, results = self._numbered("tasks"), dict[int, Any]()
        names, marks = [f"{call}-{i:05d}" for i in range(len(tasks))], [*map(_mark, tasks)]
        try:
            for i, (name, mark) in enumerate(zip(names, marks, strict=True)):
                found = self._read(name, mark, {})
                if found is not _MISSING:
                    results[i] = found
                    done(i, found)
            missing = [i for i in range(len(tasks)) if i not in results]

            def finished(position: int, result: Any) -> None:
                i = missing[position]
                if i in results:  # reported again after an interrupt
                    return
                results[i] = result
                self._write(names[i], marks[i], {}, result)
                done(i, result)

            if missing:
                runner([tasks[i] for i in missing], done=finished, **shown)
        except KeyboardInterrupt as error:
            first = next((i for i in range(len(tasks)) if i not in results), len(tasks))
            raise Interrupted(tuple(results[i] for i in range(first))) from error
        return [results[i] for i in range(len(tasks))]

    def remembered(
        self, name: str, compute: Callable[[], Any], *, numbered: bool = True, **given: Any
    ) -> Any:
        """Return what a function returns; it is not called if that is stored."""
        file = self._numbered(name.replace(" ", "_")) if numbered else f"of_target-{name}"
        found = self._read(file, name, given)
        if found is _MISSING:
            try:
                found = compute()
            except NumericalError as error:
                facts = {"message": str(error), "n_evaluations": error.n_evaluations}
                self._write(file, name, {}, None, facts)
                raise
            self._write(file, name, given, found)
        return found

    def kept(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return the same as `remembered`, under a name alone; see ``core.kept``.

        It has no number, because a target that is used again knows it already.
        """
        return self.remembered(name, compute, numbered=False)

    def now(self) -> float:
        """Return the seconds that the run has taken, in this process and in earlier ones."""
        return self._earlier + time.perf_counter() - self._started

    def time(self) -> float:
        """Return the same as `now` for a decision, which a repeated run makes in the same way."""
        self._n_times += 1
        name = f"time-{self._n_times:05d}"
        found = self._read(name, "time", {})
        if found is _MISSING:
            found = self.now()
            self._write(name, "time", {}, found)
        return float(found)

    def close(self) -> None:
        """Neither store nor read anything from now on."""
        self._archive = None

    def _numbered(self, name: str) -> str:
        self._number += 1
        return f"{self._number:05d}-{name}"

    def _read(self, name: str, mark: str, given: Mapping[str, Any]) -> Any:
        """Return what is stored under a name, or ``_MISSING``; raise the error that is stored."""
        if self._archive is None:
            return _MISSING
        try:
            entry = self._archive.read(name)
            if entry is None or entry.attributes.get("run") != self._run:
                return _MISSING
            if entry.attributes["what"] != mark:
                raise Damaged(f"it holds {entry.attributes['what']} and not {mark}")
            value = decoded(entry.attributes["value"], entry.arrays, given)
            seconds, error = float(entry.attributes["seconds"]), entry.attributes["error"]
            if error is not None:
                failed = NumericalError(str(error["message"]))
                failed.n_evaluations = int(error["n_evaluations"])
        except (Damaged, Unreadable, LookupError, TypeError, ValueError) as reason:
            path = self._archive.path(name)
            _log.warning("%s is damaged, and is computed again: %s", path, reason)
            return _MISSING
        self._earlier += max(seconds - self.now(), 0.0)
        if error is not None:
            raise failed
        return value

    def _write(
        self, name: str, mark: str, given: Mapping[str, Any], value: Any, error: Any = None
    ) -> None:
        if self._archive is None:
            return
        try:
            tree, arrays = encoded(value, given)
        except Unstorable as reason:
            _log.info("%s is not stored, and would be computed again: %s", mark, reason)
            return
        facts = {"run": self._run, "what": mark, "seconds": self.now(), "error": error}
        try:
            # zarr writes in another thread, which an interrupt would leave at work
            with uninterrupted():
                self._archive.write(name, Entry({**facts, "value": tree}, arrays))
        except OSError as reason:
            self._archive = None
            warn(
                f"checkpoint must be a folder that can be written, but {reason}: the run goes on, "
                "and nothing more is stored. Free some space, and call again to finish it."
            )


def _mark(task: Any) -> str:
    """Return in words what a task is: its class, and its fields that are numbers or texts."""
    name = type(task).__name__.strip("_")
    if not is_dataclass(task):
        return name
    values = {each.name: getattr(task, each.name) for each in fields(task)}
    facts = [
        f"{key}={int(value) if isinstance(value, int) else value}"
        for key, value in values.items()
        if isinstance(value, int | str)
    ]
    return f"{name}({', '.join(facts)})"
