"""What a run has computed so far, kept in files so that the same run can go on from there.

A run is deterministic: the same call asks for the same things in the same order. So each of them
has a number, and if the run is repeated, what was stored under the number is not computed again.
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        store = ZipStore(unfinished, mode="w")
        try:
            group = zarr.open_group(store, mode="w", attributes=attributes)
            for key, array in entry.arrays.items():
                group.create_array(key, data=array, chunks=tuple(max(n, 1) for n in array.shape))
        finally:
            store.close()
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

        store = ZipStore(self.path(name), mode="r")
        try:
            group = zarr.open_group(store, mode="r")
            attributes: dict[str, Any] = dict(group.attrs)
            read: Any = group  # whose members zarr types as arrays or groups
            arrays = {key: np.asarray(read[key][...]) for key in attributes.pop(_ARRAYS)}
        finally:
            store.close()
        checksum = attributes.pop(_CHECKSUM)
        return Entry(attributes, arrays), checksum


# Numbers of an array that are written as text instead of as a Zarr array, which takes 2 ms.
_SHORT = 100
_LARGEST_INT = 2**53
_SEPARATOR = "."
_PACKAGE = __name__.partition(".")[0] + "."


class Unstorable(Exception):
    """A value is of a class that is not stored."""


class Unpackable(Exception):
    """A stored value is not one that this package has written."""


class Packing:
    """Turns values into trees of JSON with arrays beside them, and back.

    Only dataclasses of this package, and those that are named here, are ever made from a file, by
    their constructors. (Pickle would be shorter, and would run whatever code somebody has put into
    a file.) An object that occurs twice is stored once, and is one object again afterwards.
    """

    def __init__(
        self, classes: Iterable[type] = (), given: Mapping[str, Any] | None = None
    ) -> None:
        self._classes = {_name(kind): kind for kind in classes}
        self._given = dict(given or {})

    def pack(self, value: Any) -> tuple[Any, dict[str, NDArray[Any]]]:
        """Return the tree of a value, and its long arrays by name."""
        writer = _Writer(self._classes, self._given)
        return writer.tree(value, ""), writer.arrays

    def unpack(self, tree: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """Return the value of a tree."""
        try:
            return _Reader(self._classes, self._given, arrays).value(tree)
        except (
            *(LookupError, TypeError, ValueError, AttributeError, RecursionError),
            ImportError,
        ) as error:
            raise Unpackable(str(error)) from error


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_own(kind: Any) -> bool:
    """Return whether a class is a dataclass of this package."""
    return isinstance(kind, type) and is_dataclass(kind) and kind.__module__.startswith(_PACKAGE)


def _class_of(name: str) -> type:
    """Return the dataclass of this package that has a name; raise LookupError for any other."""
    module, _, last = name.rpartition(".")
    found: Any = getattr(import_module(module), last, None) if name.startswith(_PACKAGE) else None
    if not _is_own(found) or _name(found) != name:
        raise LookupError(f"{name} is no class that is stored")
    kind: type = found
    return kind


class _Writer:
    """Writes one value."""

    def __init__(self, classes: Mapping[str, type], given: Mapping[str, Any]) -> None:
        self._names = {*classes.values()}
        self._given = {id(value): name for name, value in given.items()}
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # alive, so that no other object gets the same id
        self.arrays: dict[str, NDArray[Any]] = {}

    def tree(self, value: Any, name: str) -> Any:
        """Return the tree of a part of the value."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str(value)
        if isinstance(value, int) and not isinstance(value, np.generic):
            return int(value) if abs(value) < _LARGEST_INT else {"int": str(int(value))}
        if isinstance(value, float) and not isinstance(value, np.generic):
            return value if isfinite(value) else {"float": str(value)}
        if isinstance(value, list):
            return [self._part(each, name, i) for i, each in enumerate(value)]
        if isinstance(value, tuple):
            return {"tuple": [self._part(each, name, i) for i, each in enumerate(value)]}
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {"dict": {key: self._part(each, name, key) for key, each in value.items()}}
        return self._shared(value, name)

    def _part(self, value: Any, name: str, key: Any) -> Any:
        return self.tree(value, f"{name}{_SEPARATOR}{key}" if name else str(key))

    def _shared(self, value: Any, name: str) -> Any:
        """Return the tree of an object, which may occur repeatedly."""
        if id(value) in self._given:
            return {"given": self._given[id(value)]}
        if id(value) in self._seen:
            return {"same": self._seen[id(value)]}
        tree: Any
        if isinstance(value, np.ndarray | np.generic):
            tree = self._array(np.asarray(value), name or "value")
            if isinstance(value, np.generic):
                tree["scalar"] = True
        elif type(value) in self._names or _is_own(type(value)):
            held = {
                each.name: self._part(getattr(value, each.name), name, each.name)
                for each in fields(value)
                if each.init
            }
            tree = {"class": _name(type(value)), "fields": held}
        else:
            raise Unstorable(type(value).__name__)
        self._seen[id(value)] = len(self._kept)
        self._kept.append(value)
        return tree

    def _array(self, array: NDArray[Any], name: str) -> dict[str, Any]:
        if array.dtype.kind not in "biufc":
            raise Unstorable(f"array of {array.dtype}")
        # the order in memory changes the last digits of sums and products
        columns = array.flags.f_contiguous and not array.flags.c_contiguous
        tree: dict[str, Any] = {"columns": True} if columns else {}
        if array.size <= _SHORT and array.dtype in (np.float64, np.int64, np.bool_):
            values = [self.tree(each, name) for each in array.ravel().tolist()]
            return tree | {"dtype": array.dtype.name, "shape": [*array.shape], "values": values}
        while name in self.arrays:
            name += "_"
        self.arrays[name] = array
        return tree | {"array": name}


class _Reader:
    """Reads one value."""

    def __init__(
        self,
        classes: Mapping[str, type],
        given: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
    ) -> None:
        self._classes, self._given, self._arrays = classes, given, arrays
        self._read: list[Any] = []

    def value(self, tree: Any) -> Any:
        """Return the value of a part of the tree."""
        if isinstance(tree, list):
            return [self.value(each) for each in tree]
        if not isinstance(tree, dict):
            return tree
        kinds = ("int", "float", "tuple", "dict", "given", "same")
        kind = next((name for name in kinds if name in tree), None)
        match kind:
            case "int":
                return int(tree["int"])
            case "float":
                return float(tree["float"])
            case "tuple":
                return tuple(self.value(each) for each in tree["tuple"])
            case "dict":
                return {key: self.value(each) for key, each in tree["dict"].items()}
            case "given":
                return self._given[tree["given"]]
            case "same":
                return self._read[tree["same"]]
        found = self._instance(tree) if "class" in tree else self._array(tree)
        self._read.append(found)
        return found

    def _instance(self, tree: dict[str, Any]) -> Any:
        name = tree["class"]
        kind = self._classes[name] if name in self._classes else _class_of(name)
        return kind(**{name: self.value(each) for name, each in tree["fields"].items()})

    def _array(self, tree: dict[str, Any]) -> Any:
        if "array" in tree:
            array = self._arrays[tree["array"]]
        else:
            values = [self.value(each) for each in tree["values"]]
            array = np.array(values, tree["dtype"]).reshape(tree["shape"])
        if "columns" in tree:
            array = np.asfortranarray(array)
        return array[()] if "scalar" in tree else array


def classes_in(value: Any) -> set[type]:
    """Return the dataclasses that an object consists of."""
    if isinstance(value, list | tuple):
        return set().union(*map(classes_in, value))
    if not is_dataclass(value) or isinstance(value, type):
        return set()
    parts = [getattr(value, each.name) for each in fields(value) if each.init]
    return {type(value)}.union(*map(classes_in, parts))


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

    def remembered(self, name: str, compute: Callable[[], Any], **given: Any) -> Any:
        """Return what a function returns; it is not called if that is stored."""
        return self._stored(self._numbered(name.replace(" ", "_")), name, compute, given)

    def _stored(
        self, file: str, name: str, compute: Callable[[], Any], given: Mapping[str, Any]
    ) -> Any:
        found = self._read(file, name, given)
        if found is _MISSING:
            try:
                found = compute()
            except NumericalError as error:
                self._write(file, name, {}, None, _facts(error))
                raise
            self._write(file, name, given, found)
        return found

    def kept(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return the same as `remembered`, under a name alone; see ``core.kept``.

        It has no number, because a target that is used again knows it already.
        """
        return self._stored(f"of_target-{name}", name, compute, {})

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

    def _packing(self, given: Mapping[str, Any]) -> Packing:
        return Packing(classes_in([*given.values()]), given)

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
            value = self._packing(given).unpack(entry.attributes["value"], entry.arrays)
            seconds, error = float(entry.attributes["seconds"]), entry.attributes["error"]
            if error is not None:
                failed = NumericalError(str(error["message"]))
                failed.n_evaluations = int(error["n_evaluations"])
        except (Damaged, Unpackable, LookupError, TypeError, ValueError) as reason:
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
            tree, arrays = self._packing(given).pack(value)
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


def _facts(error: NumericalError) -> dict[str, Any]:
    return {"message": str(error), "n_evaluations": error.n_evaluations}


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
