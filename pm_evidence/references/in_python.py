"""Densities of users, written in Python, as functions that compiled code calls by address."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import described
from pm_evidence.targets.compile.density import CompiledDensity

__all__ = ["check_reference", "density_in_python"]

_DOUBLES, _WORDS = ctypes.POINTER(ctypes.c_double), ctypes.POINTER(ctypes.c_int64)
_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int64, _DOUBLES, _DOUBLES, _DOUBLES, _WORDS)
_TRIALS = 100


def density_in_python(reference: Any, positions: NDArray[np.int64], n_dim: int) -> CompiledDensity:
    """Return the log density of a user's object as a function without gradient.

    Compiled loops call it for one point at a time, under Python's lock. An exception in it counts
    as a density of NaN: the proposal is rejected, and the run warns of it.

    Parameters
    ----------
    reference : Reference
        The object.
    positions : ndarray of int64, shape (d,)
        Positions of its coordinates in a point.
    n_dim : int
        Number of coordinates of a point.
    """

    def call(x: Any, out: Any, gradient: Any, data: Any) -> int:
        try:
            point = np.ctypeslib.as_array(x, (n_dim,))[positions]
            out[0] = float(np.asarray(reference.log_density(point[None]))[0])
        except Exception:  # which must not leave a function that machine code has called
            return 1
        return 0

    function = _SIGNATURE(call)
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    data = np.zeros(1, np.int64)
    return CompiledDensity(address, data, False, (type(reference).__name__,), (function,))


def check_reference(reference: Any, d: int) -> None:
    """Raise an error unless an object draws and has a log density in ``d`` coordinates.

    Parameters
    ----------
    reference : Reference
        The object; it is asked for 100 draws and their log densities.
    d : int
        Number of coordinates.

    Raises
    ------
    ValueError
        If draws or log densities are of the wrong shape, or are not finite.
    """
    x = np.asarray(reference.draw(_TRIALS, np.random.default_rng(0)))
    if x.shape != (_TRIALS, d) or x.dtype.kind not in "iuf" or not np.isfinite(x).all():
        raise ValueError(
            f"reference.draw(n, rng) must return finite draws of shape (n, {d}), one column for "
            f"each continuous coordinate that is not circular, got {described(x)} for n={_TRIALS};"
            " correct its draw."
        )
    values = np.asarray(reference.log_density(x.astype(float)))
    if values.shape != (_TRIALS,) or not np.isfinite(values).all():
        raise ValueError(
            f"reference.log_density(x) must return a finite number for each of its own draws, got "
            f"{described(values)} for {_TRIALS} draws; return the normalised log density of every "
            "row of x in nats."
        )
