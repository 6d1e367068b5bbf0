"""Checks that an object is a kernel, and that a kernel fits its target, before it is used.

Compiled loops do not check positions and sizes. A kernel that does not fit its target would read
and write outside its arrays.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_flag, check_kind, described, float_array, whole_array
from pm_evidence.core.contracts import Kernel
from pm_evidence.core.shape import Shape

_METHODS = ("advance", "reversed", "settings")
_OF_TUNABLE = ("learn", "adjust", "without_exploration")  # all of them, or none


def checked_kernel(name: str, kernel: Any, names: Sequence[str] = ()) -> Kernel:
    """Return ``kernel`` after checking it; the error message also lists the allowed ``names``."""
    found = [m for m in (*_METHODS, *_OF_TUNABLE) if callable(getattr(kernel, m, None))]
    tunable = any(method in found for method in _OF_TUNABLE)
    wanted = (*_METHODS, *_OF_TUNABLE) if tunable else _METHODS
    missing = [method for method in wanted if method not in found]
    if isinstance(kernel, type) or missing:
        lacks = f" without {', '.join(missing)}" if missing and found else ""
        choice = f"one of {', '.join(names)} or " if names else ""
        raise ValueError(
            f"{name} must be {choice}a kernel object such as pe.kernels.HMC(), got "
            f"{described(kernel)}{lacks}; pass an object with the methods of pe.extending.Kernel."
        )
    checked: Kernel = kernel
    return checked


def check_moves(kernel: Any, target: Any, *, all_of: NDArray[np.int64] | None = None) -> None:
    """Raise ValueError if a kernel does not fit a target, or does not move all its coordinates."""
    moved = moved_by(kernel, target)
    if moved is None:
        return
    left = np.setdiff1d(np.arange(target.n_dim) if all_of is None else all_of, moved)
    if left.size:
        raise ValueError(
            f"kernel must move all {target.n_dim} coordinates, got {described(kernel)} that does "
            f"not move {left.size}, the first at position {left[0]}; combine it with a kernel for "
            "them in a pe.kernels.Cycle."
        )


def moved_by(kernel: Any, target: Any) -> NDArray[np.int64] | None:
    """Return the coordinates that a kernel says it moves; None if it has no method ``check``."""
    check = getattr(kernel, "check", None)
    if not callable(check):
        return None
    try:
        moved: NDArray[np.int64] = check(target)
    except ValueError as error:
        raise ValueError(f"kernel must fit the target, but {error}") from error
    return moved


def checked_coordinates(values: Any) -> NDArray[np.int64]:
    """Return positions in a flat vector as a read-only array, shape ``(n,)``."""
    found = whole_array("coordinates", values)
    if found.ndim != 1 or not found.size:
        raise ValueError(
            f"coordinates must be a row of at least one position, got shape {found.shape}; pass "
            "for example [0]."
        )
    if found.min() < 0 or len(np.unique(found)) < found.size:
        raise ValueError(
            f"coordinates must be distinct positions of at least 0, got {found.tolist()[:20]}; "
            "count from the first coordinate, and drop repeats."
        )
    return _read_only(found.astype(np.int64))


def checked_row(name: str, values: Any, n: int | None) -> NDArray[np.float64]:
    """Return finite numbers as a read-only array, shape ``(n,)``."""
    found = float_array(name, values)
    if found.ndim != 1 or (n is not None and found.size != n):
        length = "one number" if n is None else f"{n}, one number"
        raise ValueError(
            f"{name} must be a row of {length} for each coordinate, got shape {found.shape}; pass "
            "as many as there are coordinates."
        )
    bad = np.flatnonzero(~np.isfinite(found))
    if bad.size:
        raise ValueError(
            f"{name} must be finite, got {found[bad[0]]} at index {bad[0]}; pass a number."
        )
    return _read_only(found)


def check_positions(coordinates: NDArray[np.int64], target: Any) -> NDArray[np.int64]:
    """Return the positions of some coordinates among the discrete coordinates of a target."""
    wrong = coordinates[coordinates >= target.n_dim]
    if wrong.size:
        raise ValueError(
            f"coordinates must be below {target.n_dim}, the number of coordinates of the target, "
            f"got {wrong[0]}; count them from 0."
        )
    continuous = np.setdiff1d(coordinates, target.discrete)
    if continuous.size:
        raise ValueError(
            f"coordinates must be those of discrete variables, at {target.discrete.tolist()[:20]}, "
            f"got {continuous[0]}, which is continuous; move it with pe.kernels.HMC or "
            f"pe.kernels.RandomWalk."
        )
    return np.searchsorted(target.discrete, coordinates)


def check_shape_options(shape: Any, dense: Any = None) -> None:
    """Raise TypeError for what is no Shape or None, ValueError for what is no flag or None."""
    if shape is not None:
        check_kind("shape", shape, Shape, "leave it out, and it is learnt from the population")
    if dense is not None:
        check_flag("dense", dense)


def check_shape(shape: Shape | None, d: int) -> None:
    """Raise ValueError if a shape does not fit ``d`` continuous coordinates."""
    if shape is None:
        return
    sizes = {"mean": ((d,),), "factor": ((d, d), (d, 1))}
    for part, allowed in sizes.items():
        values = getattr(shape, part)
        fits = isinstance(values, np.ndarray) and values.dtype == np.float64
        if not fits or values.shape not in allowed:
            raise ValueError(
                f"shape.{part} must be an array of float64 of shape "
                f"{' or '.join(map(str, allowed))}, as the target has {d} continuous coordinates, "
                f"got {described(values)}; leave shape out to have it learnt."
            )
        if not np.isfinite(values).all():
            raise ValueError(
                f"shape.{part} must be finite, got {values[~np.isfinite(values)][0]}; leave shape "
                "out to have it learnt."
            )
    scale = np.diag(shape.factor) if shape.is_dense else shape.factor
    if not (scale > 0.0).all():
        raise ValueError(
            f"shape.factor must have standard deviations above 0, got {float(scale.min())}; leave "
            "shape out to have it learnt."
        )


def _read_only[T: np.generic](array: NDArray[T]) -> NDArray[T]:
    array.setflags(write=False)
    return array
