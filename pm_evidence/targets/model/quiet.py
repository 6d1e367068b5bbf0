"""Warnings of PyMC, PyTensor and NumPy that no user of this package can do anything about."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

__all__ = ["quietly"]


@contextmanager
def quietly() -> Iterator[None]:
    """Silence what libraries say of their own code, and overflows on the way to a density.

    A density that overflows is minus infinity, or NaN, which is counted and told; libraries'
    use of what they have deprecated themselves, and which pieces of a graph run in Python where
    speed plays no part, concern nobody here. Warnings of other modules pass.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        for category in (FutureWarning, DeprecationWarning):
            warnings.filterwarnings("ignore", category=category, module=r"(pytensor|pymc)\.")
        warnings.filterwarnings("ignore", message="Numba will use object mode")
        warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS")
        yield
