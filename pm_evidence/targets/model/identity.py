"""What a model is, in digests that are the same in every process."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pymc as pm
from pymc.distributions.custom import CustomDistRV, CustomSymbolicDistRV
from pymc.distributions.distribution import _support_point
from pymc.distributions.shape_utils import _change_dist_size
from pymc.logprob.abstract import _logcdf, _logprob
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors, toposort
from pytensor.graph.type import Type
from pytensor.tensor.type import TensorType

from pm_evidence.core.digest import Digest, is_of_library

__all__ = ["description_of", "identity_of", "registered_functions"]

# Functions of pm.CustomDist are registered here by class; pickle includes the class but not these.
DISPATCHERS = (_logprob, _logcdf, _support_point, _change_dist_size)


def registered_functions(model: pm.Model) -> list[tuple[int, type, Any]]:
    """Return the functions that are registered for the custom distributions of a model."""
    nodes = (v.owner for v in ancestors([*model.basic_RVs, *model.potentials]))
    kinds = dict.fromkeys(type(node.op) for node in nodes if node is not None)
    return [
        (position, kind, dispatcher.registry[kind])
        for kind in kinds
        if issubclass(kind, CustomDistRV | CustomSymbolicDistRV)
        for position, dispatcher in enumerate(DISPATCHERS)
        if kind in dispatcher.registry
    ]


def identity_of(model: pm.Model) -> dict[str, str]:
    """Return a digest of the structure of a model and one of its data.

    Parameters
    ----------
    model : pymc.Model
        The model.

    Returns
    -------
    dict of str to str
        ``"model"``: names, distributions, transforms, and numbers in the graphs. ``"data"``:
        observed values, ``pm.Data``, and all other arrays of more than one number.

    Notes
    -----
    Graphs are followed from the variables of the model, including those inside operations; other
    objects that an operation holds are described as by ``core.digest``.
    """
    return description_of(model)[0]


def description_of(model: pm.Model) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the digests of `identity_of`, and the classes of what could not be described."""
    found = _Description()
    variables = [*model.basic_RVs, *model.potentials, *model.deterministics]
    found.graphs(variables)
    for rv in model.basic_RVs:
        found.structure.add((rv.name, rv in model.observed_RVs, model.rvs_to_transforms.get(rv)))
    found.graphs([model.rvs_to_values[rv] for rv in model.observed_RVs])
    for _, kind, function in registered_functions(model):
        found.structure.add((kind.__name__, function))
    digests = {"model": found.structure.hexdigest(), "data": found.data.hexdigest()}
    return digests, tuple(dict.fromkeys(found.undescribed))


class _Description:
    """The digests of the structure and of the data, and the variables that were met."""

    def __init__(self) -> None:
        self.structure, self.data = Digest(self._plain), Digest(self._plain)
        self._index: dict[Variable, int] = {}

    @property
    def undescribed(self) -> list[str]:
        return self.structure.undescribed + self.data.undescribed

    def graphs(self, outputs: Iterable[Variable]) -> None:
        """Add graphs, each operation after those of its inputs."""
        outputs = list(outputs)
        for node in toposort(outputs):
            if node.outputs[0] in self._index:
                continue
            inputs = [self._number(variable) for variable in node.inputs]
            self.structure.add(("apply", node.op, inputs))
            for variable in node.outputs:
                self._index[variable] = len(self._index)
        self.structure.add([(self._number(each), each.name) for each in outputs])

    def _number(self, variable: Variable) -> int:
        """Return the number of a variable; what is met first has no inputs."""
        if variable not in self._index:
            self._index[variable] = len(self._index)
            self._leaf(variable)
        return self._index[variable]

    def _leaf(self, variable: Variable) -> None:
        self.structure.add(("leaf", variable.type))
        if isinstance(variable, Constant):
            value = variable.data
            apart = isinstance(value, np.ndarray) and value.size > 1
            (self.data if apart else self.structure).add(value)
        elif isinstance(variable, SharedVariable) and isinstance(variable.type, TensorType):
            self.data.add(variable.get_value(borrow=True))

    def _plain(self, value: Any) -> Any:
        """Return what describes a part of a graph; any other value as it is."""
        if isinstance(value, Variable):
            return "variable", self._index.get(value) or self._apart([value])
        if isinstance(value, pm.Model):  # its variables that matter are in the graphs
            return "model", [rv.name for rv in value.basic_RVs]
        if isinstance(value, Type):
            return "type", str(value)
        if isinstance(value, Op):
            return self._operation(value)
        return value

    def _operation(self, op: Op) -> Any:
        """Return the class of an operation, and what it holds.

        Operations of libraries say in ``__props__`` what they hold, if they hold anything but a
        graph. Those of users often do not.
        """
        inner, declared = getattr(op, "fgraph", None), getattr(op, "__props__", None)
        props = {name: getattr(op, name, None) for name in declared or ()}
        # of a loop, how its graph is repeated; what pe.StateSpace and pe.RandomEffects keep
        more = getattr(op, "info", None), getattr(op, "spec", None)
        complete = is_of_library(type(op)) and (declared is not None or inner is not None)
        held = None if complete else dict(vars(op))
        return type(op), props, inner and self._apart(inner.outputs), more, held

    def _apart(self, outputs: Iterable[Variable]) -> str:
        """Return a digest of graphs that are no part of this one; their data belong to its data."""
        within = _Description()
        within.graphs(outputs)
        self.data.add(within.data.hexdigest())
        self.structure.undescribed += within.undescribed
        return within.structure.hexdigest()
