"""PyTensor's table of operations that numba can compile, and its folder for compiled code."""

import sys
import tempfile
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytensor

from pm_evidence.core.caches import temporary_folder
from pm_evidence.core.codegen.numba import built, nb
from pm_evidence.core.interrupts import uninterrupted

__all__ = [
    "implement_by",
    "implement_in_python",
    "implement_scalar_by",
    "numba_implementations",
    "provide_folder",
]


def provide_folder() -> None:
    """Give PyTensor a temporary folder if it cannot write to its own.

    Without a folder it cannot compile for numba at all. Its setting is fixed as soon as it is read,
    which happens when PyMC is imported; the modules that use the folder are not imported before the
    first compilation.
    """
    if "pytensor.link.numba.cache" in sys.modules:  # it already uses a folder
        return
    folder = pytensor.config.base_compiledir
    try:
        (folder / "numba").mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder / "numba").close()
    except OSError:
        vars(type(pytensor.config))["base_compiledir"].val = temporary_folder() / "pytensor"


def numba_implementations() -> Any:
    """Return the module that holds the table, after making sure that the table is complete.

    The package that fills the table takes a second to import. If an interrupt stops the import,
    Python discards the package but keeps those of its modules that were complete. Code that imports
    one of these by name then finds most operations without an implementation. Importing the package
    itself, as done here, imports what is missing. This is not done when this module is imported,
    because it takes half as long as all other imports.
    """
    with uninterrupted():
        nb.njit  # noqa: B018  # numba is imported here, with our folders for machine code
        import_module("pytensor.link.numba.dispatch")
    return import_module("pytensor.link.numba.dispatch.basic")


def implement_by(op_type: type, function: Callable[..., Any], version: int) -> None:
    """Enter the compiled function of an operation into the table, unless it has one already.

    Parameters
    ----------
    op_type : type
        Class of the operation.
    function : callable
        A function compiled by numba, of the operation's inputs.
    version : int
        Part of the key of code on disk: raise it if the function, or one that it calls, changes.
    """
    table = numba_implementations()
    if op_type in table.numba_funcify.registry:
        return

    @table.register_funcify_default_op_cache_key(op_type)
    def _implementation(op: Any, node: Any = None, **kwargs: Any) -> Any:
        return built(function), version


def implement_scalar_by(op_type: type, function: Callable[..., Any], version: int) -> None:
    """Enter the compiled function of an operation on scalars into the table.

    Parameters
    ----------
    op_type : type
        Class of the operation, whose results are of float64.
    function : callable
        A function compiled by numba, of the operation's inputs.
    version : int
        Part of the key of code on disk: raise it if the function, or one that it calls, changes.
    """
    table = numba_implementations()
    if op_type in table.numba_funcify_and_cache_key.registry:
        return

    @table.register_funcify_and_cache_key(op_type)
    def _implementation(op: Any, node: Any = None, **kwargs: Any) -> Any:
        return built(function), f"{op_type.__module__}.{op_type.__name__} {version}"


def implement_in_python(op_type: type) -> None:
    """Let numba run an operation in Python, as it does by default, but without a warning."""
    table = numba_implementations()
    if op_type in table.numba_funcify.registry:
        return

    @table.numba_funcify.register(op_type)
    def _implementation(op: Any, node: Any = None, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Numba will use object mode")
            return table.generate_fallback_impl(op, node, **kwargs)
