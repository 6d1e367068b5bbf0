"""Whether the local variables of a model are integrated, which is a rule and not a clock."""

from typing import Any

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.compile.numpy_graph import NotBatchedError
from pm_evidence.targets.estimated.variable import estimated_variables
from pm_evidence.targets.model.cache import target_of
from pm_evidence.targets.plates.target import PlateTarget


def plate_target(model: Any, marginalise: Any) -> PlateTarget | None:
    """Return the target of a model whose local variables are integrated, or None.

    Parameters
    ----------
    model : pymc.Model
        The model.
    marginalise : {"auto", True, False}
        What the user asks for.

    Raises
    ------
    ModelError
        If it is True and no variable can be integrated.
    """
    if marginalise is False or estimated_variables(model):
        return None
    problem = "it has no local variables"
    try:
        target = target_of(model, marginalise=True, backend="numpy")
        assert isinstance(target, PlateTarget)
        if target.rules:
            return target
    except (NotBatchedError, NotImplementedError) as error:
        problem = str(error)
    if marginalise == "auto":
        return None
    raise ModelError(
        "marginalise must be 'auto' or False for a model without variables that can be integrated "
        f"one element at a time: {problem}. pe.structure(model) says why of each variable."
    )
