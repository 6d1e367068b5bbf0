"""PyTensor's table of the operations that numba can compile, and its folder for their code."""

import sys
import tempfile
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytensor

from pm_evidence.core.caches import temporary_folder
from pm_evidence.core.interrupts import uninterrupted

__all__ = [
    "implement_by",
    "implement_in_python",
    "numba_implementations",
    "provide_folder",
]


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


def implement_by(op_type: type, function: Callable[..., Any], version: int) -> None:
    """Enter the compiled function that does an operation into the table, unless it is there.

    Parameters
    ----------
    op_type : type
        Class of the operation.
    function : callable
        A function compiled by numba, of the operation's inputs.
    version : int
        Part of the key of code on disk: raise it when the function, or what it calls, changes.
    """
    table = numba_implementations()
    if op_type in table.numba_funcify.registry:
        return

    @table.register_funcify_default_op_cache_key(op_type)
    def _implementation(op: Any, node: Any = None, **kwargs: Any) -> Any:
        return function, version


def implement_in_python(op_type: type) -> None:
    """Let numba run an operation in Python, as it would by itself, without a warning each time."""
    table = numba_implementations()
    if op_type in table.numba_funcify.registry:
        return

    @table.numba_funcify.register(op_type)
    def _implementation(op: Any, node: Any = None, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Numba will use object mode")
            return table.generate_fallback_impl(op, node, **kwargs)
