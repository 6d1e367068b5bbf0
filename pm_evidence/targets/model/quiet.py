"""Warnings of PyMC, PyTensor and NumPy that users of this package cannot act on."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

__all__ = ["quietly"]


@contextmanager
def quietly() -> Iterator[None]:
    """Silence warnings of libraries about their own code, and of overflows in a density.

    A density that overflows is minus infinity, or NaN, which is counted and reported. Users cannot
    act on deprecation warnings that libraries cause themselves, or on warnings about parts of a
    graph that run in Python where speed does not matter. Warnings of other modules are shown.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        for category in (FutureWarning, DeprecationWarning):
            warnings.filterwarnings("ignore", category=category, module=r"(pytensor|pymc)\.")
        warnings.filterwarnings("ignore", message="Numba will use object mode")
        warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS")
        yield
