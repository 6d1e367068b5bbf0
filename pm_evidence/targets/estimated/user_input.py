"""Checks of the user's arguments for parts of a model that are not PyMC distributions."""

import inspect
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable

from pm_evidence.core.checks import check_kind, check_text, described, plain_array

__all__ = ["MOST_PARTICLES", "check_call", "given_value", "model_of", "numeric_value"]

MOST_PARTICLES = 1_000_000  # of one estimate


def check_call(what: str, function: Any, *arguments: Any) -> None:
    """Check that ``function`` can be called with these arguments.

    Raises
    ------
    TypeError
        If it is not a function, or not one of this number of arguments.
    """
    names = ", ".join(getattr(argument, "name", None) or "..." for argument in arguments)
    example = f"write {what}=lambda {names}: pm.Normal.dist(...)".replace("lambda :", "lambda:")
    if not callable(function) or isinstance(function, type):
        raise TypeError(
            f"{what} must be a function that returns a distribution, got {described(function)}; "
            f"{example}."
        )
    try:
        inspect.signature(function).bind(*arguments)
    except ValueError:  # a C function without a known signature
        return
    except TypeError as error:
        raise TypeError(
            f"{what} must be a function of {len(arguments)} arguments, but such a call fails "
            f"({error}); {example}."
        ) from error


def model_of(name: Any, model: Any, dims: Any) -> pm.Model:
    """Return the model that a variable is added to, after checks that PyMC does not make.

    Raises
    ------
    TypeError
        If the name is not a string, dims are not names, or there is no model.
    ValueError
        If dims are not dimensions of the model.
    """
    check_text("name", name)
    if not name.strip():
        raise ValueError("name must not be empty; pass for example 'y'.")
    if model is not None:
        check_kind("model", model, pm.Model, "leave it out inside the model's context")
    model = pm.modelcontext(model)
    named = (dims,) if isinstance(dims, str) else () if dims is None else dims
    are_names = isinstance(named, tuple | list) and all(isinstance(d, str | None) for d in named)
    if not are_names:
        raise TypeError(
            f"dims must be a name or a tuple of names, got {described(dims)}; leave it out for "
            "none."
        )
    unknown = [dim for dim in named if dim is not None and dim not in model.coords]
    if unknown:
        raise ValueError(
            f"dims must name dimensions of the model, {list(model.coords)}, got {unknown[0]!r}; "
            "give them coordinates, or leave dims out."
        )
    if model.name_for(name) in model.named_vars:
        raise ValueError(
            f"name must be new in the model, got {name!r}, which is taken; choose another."
        )
    return model


def given_value(name: str, value: Any) -> NDArray[Any]:
    """Return the array that the user gives; ``name`` is used in the message of an error."""
    if isinstance(value, Variable):
        return numeric_value(value)
    if np.ma.isMaskedArray(value):
        return np.asarray(value)
    return plain_array(name, value)


def numeric_value(variable: Any) -> NDArray[Any]:
    """Return the array that a constant, a ``pm.Data`` or an array holds."""
    if isinstance(variable, Constant):
        return np.asarray(variable.data)
    if isinstance(variable, SharedVariable):
        return np.asarray(variable.get_value())
    if isinstance(variable, Variable):
        return np.asarray(variable.eval())
    return np.asarray(variable)
