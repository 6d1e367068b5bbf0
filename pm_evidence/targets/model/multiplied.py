"""Standard variables that a model multiplies by a scale: effects that are non-centred by hand."""

from collections import defaultdict
from typing import Any

import numpy as np
import pymc as pm
from pymc.logprob.transforms import LogTransform
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Exp, Identity, Mul, Sqr, Sqrt, TrueDiv
from pytensor.scalar.math import Softplus
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.basic import UniformRV
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

__all__ = ["Multiplied", "bare"]

_SELECTIONS = (DimShuffle, Subtensor, AdvancedSubtensor)
_POSITIVE = (Exp, Sqr, Sqrt, Softplus)


class Multiplied:
    """What the free variables of a model are multiplied by.

    Parameters
    ----------
    model : pymc.Model
        The model.
    """

    def __init__(self, model: pm.Model) -> None:
        self._free, self._transforms = set(model.free_RVs), model.rvs_to_transforms
        outputs = [*model.basic_RVs, *model.potentials, *model.deterministics]
        nodes = {v.owner for v in ancestors(outputs) if v.owner is not None}
        self._clients: dict[Variable, list[Apply]] = defaultdict(list)
        for node in nodes:
            for variable in dict.fromkeys(node.inputs):
                self._clients[variable].append(node)

    def scale_of(self, rv: Variable) -> Variable | None:
        """Return the scale that a variable is multiplied by wherever the model uses it.

        Parameters
        ----------
        rv : TensorVariable
            A free variable.

        Returns
        -------
        TensorVariable or None
            A positive scalar that depends on other free variables; None if there is no such scale,
            or there are several.
        """
        found: set[Variable | None] = set()
        left = [rv]
        while left:
            for node in self._clients[left.pop()]:
                if isinstance(node.op, _SELECTIONS) or _is(node.op, Identity):
                    left += node.outputs
                else:
                    found.add(self._factor(node, rv))
        scale = found.pop() if len(found) == 1 else None
        if scale is None or not all(scale.type.broadcastable):
            return None
        return scale.reshape(()) if scale.type.ndim else scale

    def _factor(self, node: Apply, rv: Variable) -> Variable | None:
        """Return the positive factor of a product with a variable; None if there is none."""
        if not _is(node.op, Mul):
            return None
        varying = [bare(v) for v in node.inputs if self._varies(v)]
        others = [v for v in varying if rv not in ancestors([v])]
        if len(others) != 1 or len(varying) != 2:
            return None
        return others[0] if self._is_positive(others[0]) else None

    def _varies(self, variable: Variable) -> bool:
        return any(v in self._free for v in ancestors([variable], blockers=self._free))

    def _is_positive(self, variable: Variable) -> bool:
        variable = bare(variable)
        if isinstance(variable, Constant):
            return bool(np.all(variable.data > 0.0))
        op = getattr(variable.owner, "op", None)
        if _is(op, (Mul, TrueDiv)):
            return all(self._is_positive(each) for each in variable.owner.inputs)
        if variable not in self._free:
            return _is(op, _POSITIVE)
        if isinstance(variable.owner.op, UniformRV):
            lower = bare(variable.owner.op.dist_params(variable.owner)[0])
            return isinstance(lower, Constant) and bool(np.all(lower.data >= 0.0))
        return isinstance(self._transforms[variable], LogTransform)


def _is(op: Any, kinds: type | tuple[type, ...]) -> bool:
    """Return whether an operation is elementwise, of a kind."""
    return isinstance(op, Elemwise) and isinstance(op.scalar_op, kinds)


def bare(variable: Variable) -> Variable:
    """Return a variable before it was named, or its dimensions were arranged."""
    owner = variable.owner
    while owner is not None and (isinstance(owner.op, DimShuffle) or _is(owner.op, Identity)):
        variable = owner.inputs[0]
        owner = variable.owner
    return variable
