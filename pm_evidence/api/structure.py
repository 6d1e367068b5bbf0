"""The table of a model's variables: which are integrated, element by element, and which are not."""

from typing import Any

import pandas as pd

from pm_evidence.core.exceptions import exceptions_of_users
from pm_evidence.targets.model.cache import find_model
from pm_evidence.targets.plates.structure import Structure, structure_of_model


@exceptions_of_users()
def structure(model: Any = None) -> pd.DataFrame:
    """Return which variables of a model are independent element by element, given the others.

    These are what `sample_evidence` integrates: with ``marginalise=True`` all of them, and with
    ``marginalise="auto"`` those for which it pays.

    Parameters
    ----------
    model : pymc.Model, optional
        The model; may be left out inside its context.

    Returns
    -------
    pandas.DataFrame
        One row for each free variable: ``kind`` (``"local"`` or ``"global"``), ``elements`` (their
        number), ``coordinates`` (of an element), ``type`` (``"discrete"`` or ``"continuous"``),
        ``integrated_by`` (``"sum"`` over all values, ``"counts"`` for a sum until the tail is
        negligible, ``"quadrature"``), and ``reason`` (why a variable is global).

    Raises
    ------
    TypeError
        If there is no model.
    ModelError
        If the model has no well-defined evidence.

    Notes
    -----
    The structure is read from the graph of the log density: elements are independent if no
    operation but the sum over all terms reads two of them. Of crossed effects, the variable with
    more elements is local given the other. The method is exact; where an operation is not known,
    the variable is global.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> with pm.Model() as model:
    ...     spread = pm.HalfNormal("spread", 1)
    ...     effect = pm.Normal("effect", 0, spread, shape=6)
    ...     y = pm.Poisson("y", pm.math.exp(effect), observed=[1, 0, 3, 2, 2, 5])
    >>> pe.structure(model)["integrated_by"].to_dict()
    {'spread': '', 'effect': 'quadrature'}
    """
    return _table(structure_of_model(find_model(model)))


def _table(found: Structure) -> pd.DataFrame:
    rows = []
    for variable in found.layout.variables:
        plates = [plate for plate in found.plates if variable.name in plate.names]
        is_local = bool(plates)
        rows.append(
            {
                "variable": variable.name,
                "kind": "local" if is_local else "global",
                "elements": sum(p.n_elements for p in plates) if is_local else variable.size,
                "coordinates": max((p.positions.shape[1] for p in plates), default=1),
                "type": "continuous" if variable.dtype.startswith("float") else "discrete",
                "integrated_by": ", ".join(dict.fromkeys(plate.rule for plate in plates)),
                "reason": found.reasons.get(variable.name, ""),
            }
        )
    return pd.DataFrame(rows).set_index("variable")
