"""Checks of arguments, in one form: parameter, rule, value, remedy."""

from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["check_choice", "check_count", "check_positive", "check_share"]


def check_count(name: str, value: Any, least: int) -> int:
    """Return ``value`` as an int.

    Raises
    ------
    ValueError
        If it is not a whole number of at least ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(
            f"{name} must be a whole number of at least {least}, got {value!r}; "
            f"pass {name}={max(least, 1000) if name == 'draws' else least} or more."
        )
    return int(value)


def check_positive(name: str, value: Any) -> float:
    """Return ``value`` as a float.

    Raises
    ------
    ValueError
        If it is not a finite number above 0.
    """
    if not isinstance(value, int | float | np.number) or not 0.0 < value < np.inf:
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}; try 1.")
    return float(value)


def check_share(name: str, value: Any, usual: float) -> float:
    """Return ``value`` as a float.

    Raises
    ------
    ValueError
        If it is not a number strictly between 0 and 1.
    """
    if not isinstance(value, int | float | np.number) or not 0.0 < value < 1.0:
        raise ValueError(f"{name} must lie between 0 and 1, got {value!r}; try {usual}.")
    return float(value)


def check_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """Return ``value``.

    Raises
    ------
    ValueError
        If it is not one of ``choices``.
    """
    choices = list(choices)
    if not isinstance(value, str) or value not in choices:
        named = ", ".join(map(repr, choices))
        rule = f"be one of {named}" if len(choices) > 1 else f"be {named}"
        raise ValueError(f"{name} must {rule}, got {value!r}.")
    return value
