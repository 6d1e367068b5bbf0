"""PyTensor's table of the operations that numba can compile."""

from importlib import import_module
from typing import Any

from pm_evidence.core.interrupts import uninterrupted

__all__ = ["numba_implementations"]


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
