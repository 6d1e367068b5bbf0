"""The errors and warnings of the package.

Every message names the parameter, the rule, the value and the remedy.
"""

import contextlib
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["EvidenceWarning", "ModelError", "NumericalError", "exceptions_of_users", "warn"]

# A warning names the line of the user's code that led to it: files with these prefixes are passed
# over. Python does not count the whole name of a file as a prefix of it.
_PASSED_OVER = (str(Path(__file__).parent.parent) + os.sep, contextlib.__file__.removesuffix(".py"))


class ModelError(ValueError):
    """The model has no well-defined evidence, or not one that can be annealed to."""


class NumericalError(RuntimeError):
    """A density returned NaN, or no draw has any support under the data."""


class EvidenceWarning(UserWarning):
    """An evidence estimate should not be relied on without a second look."""


def warn(message: str) -> None:
    """Issue an `EvidenceWarning` at the line of the user's code that called the package."""
    warnings.warn(message, EvidenceWarning, skip_file_prefixes=_PASSED_OVER)


@contextmanager
def exceptions_of_users() -> Iterator[None]:
    """Raise what Python code of the user raised inside of compiled code, as it was raised there.

    Compiled code that calls a Python operation cannot pass its exception on. The interpreter
    finds it afterwards, and makes it the cause of a ``SystemError`` about the compiled function.
    Use as a context, or as a decorator.
    """
    try:
        yield
    except SystemError as error:
        cause = error.__cause__
        while isinstance(cause, SystemError) and cause.__cause__ is not None:
            cause = cause.__cause__
        if cause is None:
            raise
        # or each would lead to the other, for whoever follows the chain
        error.__cause__ = error.__context__ = None
        raise cause from None
