"""Lines of Python for the functions that are generated around a jitted graph."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from pm_evidence.core.codegen.native import view_address
from pm_evidence.core.codegen.numba import nb

__all__ = ["assignments", "views_of_arrays"]


def views_of_arrays(
    arrays: Sequence[NDArray[Any]], data: str, position: int = 0
) -> tuple[list[str], list[str], dict[str, Any], int]:
    """Return the lines that create arrays from their addresses and shapes.

    Parameters
    ----------
    arrays : sequence of ndarray
        Arrays with the types and numbers of dimensions of those to be created.
    data : str
        Name of the array of int64 that holds address and shape of each, one after the other.
    position : int
        Position of the first address in it.

    Returns
    -------
    lines : list of str
        One for each array.
    names : list of str
        The names that they assign to.
    scope : dict
        The global names that they use.
    position : int
        Position after the last shape.
    """
    lines, names = [], []
    scope: dict[str, Any] = {"carray": nb.carray, "view_address": view_address}
    for i, array in enumerate(arrays):
        scope[f"type{i}"] = nb.from_dtype(array.dtype)
        shape = "".join(f"{data}[{position + 1 + k}], " for k in range(array.ndim))
        lines.append(f"a{i} = carray(view_address({data}[{position}]), ({shape}), type{i})")
        names.append(f"a{i}")
        position += 1 + array.ndim
    return lines, names, scope, position


def assignments(name: str, shape: tuple[int, ...], target: str, start: int) -> list[str]:
    """Return the lines that copy an array into a row from position ``start`` on.

    These are loops, because numba would compile its error message about shapes as well for an
    assignment of whole rows, which takes seconds.

    Parameters
    ----------
    name : str
        Name of the array.
    shape : tuple of int
        Its shape.
    target : str
        Name of the target and its first indices, for example ``"out[row, "``.
    start : int
        Position of the first entry along the last axis of the target.
    """
    step = " " * 4
    if not shape:
        return [f"{target}{start}] = {name}.item()"]
    indices = [f"i{axis}" for axis in range(len(shape))]
    loops = [
        f"{step * axis}for {index} in range({length}):"
        for axis, (index, length) in enumerate(zip(indices, shape, strict=True))
    ]
    place = "0"
    for index, length in zip(indices, shape, strict=True):
        place = f"({place} * {length} + {index})"
    element = f"{name}[{', '.join(indices)}]"
    return [*loops, f"{step * len(shape)}{target}{start} + {place}] = {element}"]
