"""Checkpoints: what a call of ``sample_evidence`` has computed, kept for the same call."""

import logging
import os
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import xarray as xr

from pm_evidence.core.checks import described
from pm_evidence.core.digest import Digest, digest_of
from pm_evidence.core.exceptions import warn
from pm_evidence.core.random import resolve_seed
from pm_evidence.core.version import VERSION
from pm_evidence.execution.journal import Archive, Damaged, Entry, Journal
from pm_evidence.families.native import is_native
from pm_evidence.runs.rounds import Run
from pm_evidence.targets.estimated.target import EstimatedTarget
from pm_evidence.targets.model.cache import description_of
from pm_evidence.targets.model.target import PyMCTarget

_log = logging.getLogger("pymc.pm_evidence")

# Name of the entry that describes the call, and version of all that is stored.
_CALL, _FORMAT = "call", 1
_LONGEST_SHOWN = 60


# A part of a call: its ``digest``, and ``shown``, its value in words where that is short.
Part = dict[str, str]


def _described_call(target: Any, arguments: Mapping[str, Any]) -> tuple[dict[str, Part], list[str]]:
    """Return version, model, data and arguments as parts, and what has no content to compare."""
    undescribed: list[str] = []

    def identity(model: Any) -> dict[str, Any]:
        digests, missing = description_of(model)
        undescribed.extend(missing)
        return digests

    def plain(value: Any) -> Any:
        """Return what describes a compiled model or a DataTree; any other value as it is."""
        if isinstance(value, EstimatedTarget):
            value = value.evaluated
        if isinstance(value, PyMCTarget):
            return "target", identity(value.model)
        if isinstance(value, xr.DataTree):
            return {
                str(group): {str(name): each.values for name, each in node.data_vars.items()}
                for group, node in value.children.items()
            }
        return value

    def part(value: Any, *, shown: bool = True) -> Part:
        found, text = Digest(plain), repr(value) if shown else ""
        found.add(value)
        undescribed.extend(found.undescribed)
        short = len(text) <= _LONGEST_SHOWN and " at 0x" not in text
        return {"digest": found.hexdigest(), "shown": text if short else ""}

    if is_native(target):
        # a dataclass says all there is in its fields
        constants = {} if is_dataclass(target) else target.constant_data()
        of_target = {"model": (target, constants), "data": target.observed_data()}
    else:
        of_target = identity(target)
    parts = {"version": part(VERSION)}
    parts |= {name: part(each, shown=False) for name, each in of_target.items()}
    return parts | {name: part(value) for name, value in arguments.items()}, undescribed


def with_journal(
    run: Run, target: Any, arguments: Mapping[str, Any], path: Any, random_seed: Any
) -> Run:
    """Return a run with its seed, and with what an earlier process has computed of it.

    ``arguments`` are those on which the numbers of a run depend, beside model, data and seed. The
    others say where it runs, what is shown, how long it may go on, and which groups it gives.
    """
    if path is None:
        return replace(run, seed=resolve_seed(random_seed))
    archive = Archive(_folder(path))
    parts, undescribed = _described_call(target, arguments)
    if undescribed:
        warn(
            f"checkpoint must be of a call that can be compared with later ones, got one that uses "
            f"{' and '.join(dict.fromkeys(undescribed))}, whose content cannot be: nothing is "
            "stored or read. Keep such objects out of the densities of the model."
        )
        return replace(run, seed=resolve_seed(random_seed))
    stored, n_finished = _stored(archive, path), len(archive) - 1
    if stored is not None and n_finished:
        seed = int(stored["seed"]) if random_seed is None else resolve_seed(random_seed)
        _check_same(path, stored, parts, seed)
        _log.info("%d finished parts of this run are read from %s.", n_finished, path)
    else:
        seed = resolve_seed(random_seed)
        archive.write(_CALL, Entry({"format": _FORMAT, "seed": str(seed), "parts": parts}, {}))
    mark = digest_of((seed, [part["digest"] for part in parts.values()]))
    return replace(run, seed=seed, journal=Journal(archive, mark))


def _folder(path: Any) -> Path:
    """Return the folder of a checkpoint, which is made if there is none."""
    if not isinstance(path, str | os.PathLike) or isinstance(path, bytes) or not os.fspath(path):
        raise TypeError(
            f"checkpoint must be the path of a folder, got {described(path)}; pass for example "
            "'my_run'."
        )
    folder = Path(path).absolute()  # the working folder may change during the run
    if folder.exists() and not folder.is_dir():
        raise ValueError(
            f"checkpoint must be the path of a folder, got that of a file, {str(path)!r}; pass "
            "another path."
        )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _stored(archive: Archive, path: Any) -> dict[str, Any] | None:
    """Return the description of the call that a checkpoint is of; None if there is none."""
    try:
        entry = archive.read(_CALL)
        if entry is not None:
            return _checked(dict(entry.attributes), path)
    except Damaged as reason:
        file = archive.path(_CALL)
        _log.warning("%s is damaged, and is written again for this call: %s", file, reason)
        return None
    others = [each.name for each in archive.folder.iterdir() if each.name != f"{_CALL}.part"]
    if others:
        raise ValueError(
            f"checkpoint must be a new folder or that of a checkpoint, got {str(path)!r} "
            f"with other files, such as {others[0]!r}; pass another path."
        )
    return None


def _checked(attributes: dict[str, Any], folder: Any) -> dict[str, Any]:
    """Return the description of a call as it is stored, or raise ValueError if it is none."""
    if attributes.get("format") != _FORMAT:
        raise ValueError(
            f"checkpoint must be of format {_FORMAT}, got {str(folder)!r} of format "
            f"{attributes.get('format')}, by another version of pm_evidence; pass another path."
        )
    parts = attributes.get("parts")
    is_whole = isinstance(parts, dict) and all(isinstance(part, dict) for part in parts.values())
    if not is_whole or not str(attributes.get("seed")).isdigit():
        raise ValueError(
            f"checkpoint must be a checkpoint of pm_evidence, got {str(folder)!r} whose file "
            f"{_CALL!r} describes no call; pass another path."
        )
    return attributes


def _check_same(
    folder: Any, stored: Mapping[str, Any], parts: Mapping[str, Part], seed: int
) -> None:
    """Raise ValueError if a checkpoint is of another call, naming all that differs."""
    now = {**parts, "random_seed": {"shown": str(seed)}}
    before = {**stored["parts"], "random_seed": {"shown": stored["seed"]}}
    names = [name for name in dict.fromkeys([*now, *before]) if now.get(name) != before.get(name)]
    if names:
        found = ", ".join(
            _difference(name, *(each.get(name, {}).get("shown") for each in (before, now)))
            for name in names
        )
        raise ValueError(
            f"checkpoint must be of this very call, got {str(folder)!r} of a call with {found}. "
            "Call with the same model, data and arguments, in the same version of pm_evidence, to "
            "resume it, or pass another path for a new run."
        )


def _difference(name: str, before: str | None, now: str | None) -> str:
    """Return in words how a part of two calls differs."""
    if before and now and before != now:
        return f"{name}={before} (now {now})"
    return f"{'other' if name == 'data' else 'another'} {name}"
