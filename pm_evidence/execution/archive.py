"""A folder of Zarr files, each of which is written as a whole or not at all."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Archive", "Damaged", "Entry"]

_SUFFIX, _UNFINISHED = ".zarr.zip", ".part"
_CHECKSUM, _ARRAYS = "sha256", "arrays"


class Damaged(Exception):
    """A file is truncated or changed, or is no file of an archive."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a file of an archive holds.

    Parameters
    ----------
    attributes : mapping
        Values that JSON can hold, without NaN and infinity.
    arrays : mapping of str to ndarray
        Arrays of numbers.
    """

    attributes: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]

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

    Parameters
    ----------
    folder : Path
        The folder; it exists.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return sum(1 for path in self.folder.iterdir() if path.name.endswith(_SUFFIX))

    def path(self, name: str) -> Path:
        """Return the file of an entry."""
        return self.folder / f"{name}{_SUFFIX}"

    def write(self, name: str, entry: Entry) -> None:
        """Write an entry, in place of one of the same name.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
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
        """Return an entry; None if there is none.

        Raises
        ------
        Damaged
            If its file is truncated or changed.
        """
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
