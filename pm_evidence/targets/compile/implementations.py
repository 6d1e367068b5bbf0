"""PyTensor's table of the operations that numba can compile, and its folder for their code."""

import sys
import tempfile
from importlib import import_module
from typing import Any

import pytensor

from pm_evidence.core.caches import temporary_folder
from pm_evidence.core.interrupts import uninterrupted

__all__ = ["numba_implementations", "provide_folder"]


def provide_folder() -> None:
    """Give PyTensor a temporary folder where it cannot write to its own.

    Without one it cannot compile for numba at all. Its setting is fixed once it was read, which
    importing PyMC does; what is kept there is not imported before the first compilation.
    """
    if "pytensor.link.numba.cache" in sys.modules:  # which has settled on a folder
        return
    folder = pytensor.config.base_compiledir
    try:
        (folder / "numba").mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder / "numba").close()
    except OSError:
        vars(type(pytensor.config))["base_compiledir"].val = temporary_folder() / "pytensor"


def numba_implementations() -> Any:
    """Return the module that holds the table, and make sure that the table is whole.

    The package that fills it takes a second to import. Where an interrupt cuts that short, Python
    forgets the package and keeps those of its modules that were complete, so that whoever imports
    one of these by name finds most operations without an implementation. The package itself is
    asked for here, which imports what is missing. It is not imported with our modules, because it
    takes half as long as all the rest.
    """
    with uninterrupted():
        import_module("pytensor.link.numba.dispatch")
    return import_module("pytensor.link.numba.dispatch.basic")
