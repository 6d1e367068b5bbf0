"""A temporary folder for compiled code, for machines on which the usual folders are read-only.

numba stores machine code beside the source, or in the user's cache folder, and raises an error if
it can write to neither, as in containers with a read-only file system. In this case the code is
stored in a temporary folder until the process ends.
"""

import logging
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Self

from numba.core.caching import CacheImpl, UserProvidedCacheLocator

__all__ = ["register", "temporary_folder"]

_log = logging.getLogger("pymc.pm_evidence")
_PACKAGE = Path(__file__).resolve().parents[1]
_REMEDY = (
    "Set the environment variables NUMBA_CACHE_DIR=FOLDER and "
    "PYTENSOR_FLAGS=base_compiledir=FOLDER to a folder that can be written to."
)


class TemporaryLocator(UserProvidedCacheLocator):
    """Gives numba the temporary folder for functions of this package, if no other folder works."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._py_file = py_file
        self._lineno = py_func.__code__.co_firstlineno
        subfolder = self.get_suitable_cache_subpath(py_file)  # type: ignore[no-untyped-call]
        self._cache_path = str(temporary_folder() / subfolder)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Self | None:
        """Return the locator of a function, or None if the function is not of this package."""
        if not Path(py_file).resolve().is_relative_to(_PACKAGE):
            return None
        locator = cls(py_func, py_file)
        locator.ensure_cache_path()  # type: ignore[no-untyped-call]
        return locator


def register() -> None:
    """Register the temporary folder with numba, as the last choice."""
    if TemporaryLocator not in CacheImpl._locator_classes:
        CacheImpl._locator_classes.append(TemporaryLocator)


def temporary_folder() -> Path:
    """Return a folder that is removed when this process ends; the first call logs a warning.

    Raises
    ------
    OSError
        If no temporary folder can be created either.
    """
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
