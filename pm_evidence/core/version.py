"""The version of the installed package, and the folders for code that it compiled."""

import inspect
import logging
import os
import tempfile
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

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
    known[:0] = [_with_key(locator) for locator in usual]
    known.append(_temporary(caching.UserProvidedCacheLocator))


def _with_key(usual: Any) -> Any:
    """Return a locator that gives functions of this package a subfolder of the usual folder."""

    class Locator(usual):  # type: ignore[misc]
        def get_cache_path(self) -> str:
            return os.path.join(super().get_cache_path(), _subfolder())

        @classmethod
        def from_function(cls, py_func: Any, py_file: str) -> Any:
            return super().from_function(py_func, py_file) if _is_ours(py_file) else None

    return Locator


def _temporary(usual: Any) -> Any:
    """Return a locator that gives functions of this package the temporary folder."""

    class TemporaryLocator(usual):  # type: ignore[misc]
        def __init__(self, py_func: Any, py_file: str) -> None:
            self._py_file = py_file
            self._lineno = py_func.__code__.co_firstlineno
            subfolder = self.get_suitable_cache_subpath(py_file)
            self._cache_path = str(temporary_folder() / subfolder)

        @classmethod
        def from_function(cls, py_func: Any, py_file: str) -> Self | None:
            """Return the locator of a function, or None if the function is not of this package."""
            if not _is_ours(py_file):
                return None
            locator = cls(py_func, py_file)
            locator.ensure_cache_path()
            return locator

    return TemporaryLocator


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
