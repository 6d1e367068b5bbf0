"""Work on the rows of arrays, which a run may divide among threads and workers."""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

# Work on some rows of arrays, in place; each is treated in the same way whatever the others are.
# The function is pickled if rows are sent to other processes.
type RowWork = Callable[..., None]
# What carries out work on the rows of arrays that are read and of arrays that are written, in parts
type Divide = Callable[[RowWork, Sequence[NDArray[Any]], Sequence[NDArray[Any]]], None]

# Numbers of the options of mallopt
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3

# A thread that is started within a run does not inherit this value: a block does its work alone.
_DIVIDE: ContextVar[Divide | None] = ContextVar("divide", default=None)


def over_rows(work: RowWork, read: Sequence[NDArray[Any]], written: Sequence[NDArray[Any]]) -> None:
    """Do work on the rows of arrays, in parts if the run that this thread belongs to divides it."""
    divide = _DIVIDE.get()
    if divide is None:
        work(*read, *written)
        return
    with divided_by(None):
        divide(work, read, written)


def dividing() -> Divide | None:
    """Return what carries out the work on rows that this thread asks for, if anything does."""
    return _DIVIDE.get()


@contextmanager
def divided_by(divide: Divide | None) -> Iterator[None]:
    """Let ``divide`` carry out the work on rows that this thread asks for; None for no division."""
    token = _DIVIDE.set(divide)
    try:
        yield
    finally:
        _DIVIDE.reset(token)


def one_blas_thread() -> Any:
    """Return a context in which BLAS libraries use one thread, so that all runs round alike.

    Finding the libraries takes milliseconds. It is repeated only if modules were imported since the
    last time, because these may have loaded another library.
    """
    return _libraries(len(sys.modules)).limit(limits=1)


@lru_cache(maxsize=1)
def keep_freed_memory() -> None:
    """Let this process keep some memory that arrays have freed, where it is asked not to.

    Workers of Dask are: ``MALLOC_TRIM_THRESHOLD_`` is 64 kB. Each array of a block then takes new
    pages from the system, which makes NumPy six times slower. Up to 64 MB are kept.
    """
    if "MALLOC_TRIM_THRESHOLD_" in os.environ and sys.platform == "linux":
        set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc
        for option, n_bytes in ((_TRIM_THRESHOLD, 2**26), (_MMAP_THRESHOLD, 2**22)):
            if set_option is not None:
                set_option(option, n_bytes)


@lru_cache(maxsize=1)
def _libraries(n_modules: int) -> ThreadpoolController:
    """Return the thread pools of the libraries that are loaded with so many modules."""
    return ThreadpoolController()
