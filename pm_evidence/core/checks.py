"""Checks of arguments, in one form: parameter, rule, value, remedy."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import wraps
from reprlib import Repr
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SHORT = Repr(maxlevel=3, maxstring=60, maxother=60, maxlong=60)
_PLAIN = (bool, int, float, complex, str, bytes, type(None), list, tuple, dict, set, np.generic)
_REAL_DTYPES, _WHOLE_DTYPES = "iuf", "iu"


def described(value: Any) -> str:
    """Return a short description of a value for a message, also if the value is large."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return _SHORT.repr(value)
    return f"an object of type {type(value).__name__}"


def real_number(value: Any) -> float | None:
    """Return a real number as a float, also NaN and infinities; None for anything else.

    An int that is too large for a float also gives None.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def check_count(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return a whole number from ``least`` to ``most`` as an int; raise ValueError for others."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least:
        raise ValueError(
            f"{name} must be a whole number of at least {least}, got {described(value)}; "
            f"pass {name}={max(least, 1000) if name == 'draws' else least} or more."
        )
    if most is not None and value > most:
        raise ValueError(f"{name} must be at most {most:,}, got {described(value)}; pass fewer.")
    return int(value)


def check_positive(name: str, value: Any, usual: float = 1.0) -> float:
    """Return a finite number above 0 as a float; raise ValueError for others."""
    return _number(name, value, 0.0, "be a finite number above 0", f"{usual:g}")


def check_finite(name: str, value: Any, usual: float) -> float:
    """Return a finite number as a float; raise ValueError for others."""
    return _number(name, value, -np.inf, "be a finite number", f"{usual:g}")


def check_share(name: str, value: Any, usual: float) -> float:
    """Return a number strictly between 0 and 1 as a float; raise ValueError for others."""
    return _number(name, value, 0.0, "lie between 0 and 1", str(usual), below=1.0)


def _number(
    name: str, value: Any, above: float, rule: str, usual: str, below: float = np.inf
) -> float:
    """Return a number between two bounds, which it must not be equal to."""
    number = real_number(value)
    if number is None or not above < number < below:
        raise ValueError(f"{name} must {rule}, got {described(value)}; try {usual}.")
    return number


def check_flag(name: str, value: Any) -> bool:
    """Return True or False; raise ValueError for others."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {described(value)}; pass one of them.")
    return bool(value)


def check_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """Return one of the ``choices``; raise ValueError for others."""
    choices = list(choices)
    if not isinstance(value, str) or value not in choices:
        named = ", ".join(map(repr, choices))
        rule = f"be one of {named}" if len(choices) > 1 else f"be {named}"
        close = get_close_matches(value.lower(), choices, 1) if isinstance(value, str) else []
        meant = f"; did you mean {close[0]!r}?" if close else "."
        raise ValueError(f"{name} must {rule}, got {described(value)}{meant}")
    return value


def with_remedies[**P, R](
    remedies: Mapping[str, str],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that says what to pass in the place of arguments of other packages."""

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def called(*args: P.args, **options: P.kwargs) -> R:
            for name in options:
                if name in remedies:
                    said = f"{function.__name__} has no argument {name}; {remedies[name]}."
                    raise TypeError(said)
            return function(*args, **options)

        return called

    return decorated


def check_text(name: str, value: Any) -> str:
    """Return a string; raise TypeError for others."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, got {described(value)}; put it in quotes.")
    return value


def check_dimensions(name: str, dims: Iterable[str]) -> None:
    """Raise ValueError if a name of a dimension has a slash, which divides groups of results."""
    for dim in dims:
        if "/" in dim:
            raise ValueError(
                f"{name} must not contain a slash, got {dim!r}, which results cannot be stored "
                f"under; rename it, for example to {dim.replace('/', '_')!r}."
            )


def check_kind(name: str, value: Any, kind: type, remedy: str) -> None:
    """Raise TypeError unless a value is an instance of a class."""
    if not isinstance(value, kind):
        raise TypeError(
            f"{name} must be of type {kind.__name__}, got {described(value)}; {remedy}."
        )


def missing_members(value: Any, contract: type) -> list[str]:
    """Return the public attributes and methods of a contract that an object lacks, in order."""
    names = [*contract.__annotations__, *vars(contract)]
    public = dict.fromkeys(name for name in names if not name.startswith("_"))
    return [name for name in public if not hasattr(value, name)]


def float_array(name: str, values: Any) -> Floats:
    """Return an array_like of real numbers as float64, of any shape."""
    return _numbers(name, values, _REAL_DTYPES, "real numbers", "float").astype(np.float64)


def whole_array(name: str, values: Any) -> NDArray[np.int64]:
    """Return an array_like of whole numbers as int64, of any shape."""
    return _numbers(name, values, _WHOLE_DTYPES, "whole numbers", "int").astype(np.int64)


def plain_array(name: str, values: Any) -> NDArray[Any]:
    """Return an array_like as it is."""
    if np.ma.isMaskedArray(values) and np.ma.getmaskarray(values).any():
        raise ValueError(
            f"{name} must have no missing entries, got a masked array with "
            f"{int(np.ma.getmaskarray(values).sum())} masked entries; leave them out, or fill them."
        )
    try:
        return np.asarray(values)
    except Exception as error:  # objects may raise any exception on conversion to an array
        raise ValueError(
            f"{name} must be an array, got {described(values)}, which cannot be converted to one; "
            "give all rows the same length, and pass numbers."
        ) from error


def _numbers(name: str, values: Any, kinds: str, what: str, dtype: str) -> NDArray[Any]:
    array = plain_array(name, values)
    if array.size == 0 and array.dtype.kind == "f":  # an empty list has the dtype of floats
        return array
    if array.dtype.kind not in kinds:
        found = "" if isinstance(values, np.ndarray) else f", of dtype {array.dtype}"
        raise ValueError(
            f"{name} must hold {what}, got {described(values)}{found}; convert it with "
            f".astype({dtype}), or look for entries that are not numbers."
        )
    return array
