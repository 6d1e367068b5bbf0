"""The errors and warnings of the package.

Every message names the parameter, the rule, the value and the remedy.
"""

import contextlib
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

# A warning names the line of the user's code that caused it, because files with these prefixes are
# skipped. Python does not accept the complete name of a file as a prefix.
_PASSED_OVER = (str(Path(__file__).parent.parent) + os.sep, contextlib.__file__.removesuffix(".py"))


class ModelError(ValueError):
    """The evidence of a model is not defined, or cannot be estimated by annealing."""


class NumericalError(RuntimeError):
    """A density is NaN, or the likelihood is zero at all draws from the prior.

    Attributes
    ----------
    n_evaluations : int
        Evaluations of the density before the error, where they are known.
    """

    n_evaluations: int = 0


class EvidenceWarning(UserWarning):
    """An evidence estimate should not be relied on without a second look."""


def warn(message: str) -> None:
    """Issue an `EvidenceWarning` at the line of the user's code that called the package."""
    warnings.warn(message, EvidenceWarning, skip_file_prefixes=_PASSED_OVER)


@contextmanager
def usual_floats() -> Iterator[None]:
    """Let NumPy treat errors of floating point as usual, whatever the user's session says.

    Weights underflow to zero on purpose. After ``np.seterr(all="raise")`` each of them would be an
    error. Use as a context, or as a decorator.
    """
    with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
        yield


@contextmanager
def exceptions_of_users() -> Iterator[None]:
    """Raise an exception of the user's Python code, called by compiled code, without a wrapper.

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
        # otherwise the two exceptions would be causes of each other, an endless chain
        error.__cause__ = error.__context__ = None
        raise cause from None
