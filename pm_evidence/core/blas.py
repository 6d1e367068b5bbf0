"""Linear algebra on one thread, within work that is divided among threads already."""

import sys
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["one_blas_thread"]


def one_blas_thread() -> Any:
    """Return a context in which BLAS libraries use one thread, so that all runs round alike.

    Finding the libraries takes milliseconds. It is repeated only if modules were imported since the
    last time, because these may have loaded another library.
    """
    return _libraries(len(sys.modules)).limit(limits=1)


@lru_cache(maxsize=1)
def _libraries(n_modules: int) -> ThreadpoolController:
    """Return the thread pools of the libraries that are loaded with so many modules."""
    return ThreadpoolController()
