"""The version of the installed package, and the folders for code that it compiled."""

import inspect
import logging
import os
import tempfile
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

try:
    VERSION = version("pm_evidence")
except PackageNotFoundError:  # run from a source tree that is not installed
    VERSION = "0"


_log = logging.getLogger("pymc.pm_evidence")
_PACKAGE = Path(__file__).resolve().parents[1]
# Where numba keeps machine code, in the order in which it looks.
_USUAL = ("UserProvided", "InTree", "UserWide")
_REMEDY = (
    "Set the environment variables NUMBA_CACHE_DIR=FOLDER and "
    "PYTENSOR_FLAGS=base_compiledir=FOLDER to a folder that can be written to."
)


def source_key(package: Path) -> str:
    """Return a text that differs for any two versions of the compiled functions of a package."""
    found = sha256(VERSION.encode())
    # where the package is installed, the installer has noted the hashes of all files
    records = sorted(package.parent.glob("pm_evidence-*.dist-info/RECORD"))
    if records:
        for record in records:
            found.update(record.read_bytes())
        return found.hexdigest()[:16]
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        if b"numba" in content:
            found.update(f"{path.relative_to(package)} {len(content)} ".encode() + content)
    return found.hexdigest()[:16]


@cache
def _subfolder() -> str:
    return f"pm_evidence-{source_key(_PACKAGE)}"


def _is_ours(py_file: str) -> bool:
    return Path(py_file).resolve().is_relative_to(_PACKAGE)


def register() -> None:
    """Register these folders with numba, the temporary one as the last choice."""
    caching: Any = import_module("numba.core.caching")
    known = caching.CacheImpl._locator_classes
    if any(_is_ours(inspect.getfile(locator)) for locator in known):
        return
    usual = [getattr(caching, f"{name}CacheLocator") for name in _USUAL]
    known[:0] = [_located(each, lambda path: os.path.join(path, _subfolder())) for each in usual]
    known.append(_located(usual[-1], lambda path: str(temporary_folder() / Path(path).name)))


def _located(usual: Any, place: Callable[[str], str]) -> Any:
    """Return a locator for functions of this package, at a place made from the usual one."""

    class Locator(usual):  # type: ignore[misc]
        def __init__(self, py_func: Any, py_file: str) -> None:
            super().__init__(py_func, py_file)
            self._cache_path = place(self.get_cache_path())

        @classmethod
        def from_function(cls, py_func: Any, py_file: str) -> Any:
            return super().from_function(py_func, py_file) if _is_ours(py_file) else None

    return Locator


def temporary_folder() -> Path:
    """Return a folder that is removed when this process ends; the first call logs a warning."""
    return Path(_temporary_folder().name)


@cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    try:
        folder = tempfile.TemporaryDirectory(prefix="pm_evidence-", ignore_cleanup_errors=True)
    except OSError as error:
        raise OSError(
            "pm_evidence needs a folder for compiled code, and can write neither to its own, nor "
            f"to the home folder, nor to one for temporary files. {_REMEDY}"
        ) from error
    _log.warning(
        "Compiled code cannot be stored on disk, because the usual folders cannot be written to. "
        "Every process compiles it again, which takes about a minute. %s",
        _REMEDY,
    )
    return folder
