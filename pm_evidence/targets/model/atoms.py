"""Detection of distributions with probability on single values, which have no density.

Annealing and its MCMC steps assume that the density of a continuous variable is one with respect to
Lebesgue measure. If a variable takes some value with positive probability (an *atom*), PyMC's log
density is a probability at that value and a density elsewhere, and the two cannot be compared.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

import numpy as np
from pymc.distributions.distribution import DiracDeltaRV, SymbolicRandomVariable
from pymc.distributions.mixture import MixtureRV
from pytensor.graph.basic import Constant, Variable
from pytensor.scalar import basic as ps
from pytensor.scan.op import Scan
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

__all__ = ["Measure", "adds_probability_to_density", "measure_of"]


class Measure(IntEnum):
    """The kind of values that a variable takes, given its parents."""

    FIXED = 0
    DISCRETE = 1
    CONTINUOUS = 2
    MIXED = 3


_ROUNDING = (
    ps.RoundHalfToEven,
    ps.RoundHalfAwayFromZero,
    ps.Floor,
    ps.Ceil,
    ps.Trunc,
    ps.Sign,
    ps.IntDiv,
    ps.LT,
    ps.GT,
    ps.LE,
    ps.GE,
    ps.EQ,
    ps.NEQ,
    ps.IsNan,
    ps.IsInf,
)


def measure_of(variable: Variable, given: Iterable[Variable] = ()) -> Measure:
    """Return the kind of values that a variable takes, as far as its graph tells.

    Parameters
    ----------
    variable : TensorVariable
        A random variable, or a function of some.
    given : iterable of Variable
        Variables that count as known, such as the other variables of a model.

    Notes
    -----
    Draws of a Python function, in ``pm.CustomDist(random=...)``, are classified by their type.
    """
    known = dict.fromkeys(given, Measure.FIXED)
    known.pop(variable, None)
    return _measure(variable, known)


def adds_probability_to_density(variable: Variable) -> bool:
    """Whether a mixture's density adds the probability of an atom to a density at that value.

    This is the case if one component has an atom and another has none. Components that share
    their atoms, such as variables censored at the same value, have a proper density.
    """
    op = variable.owner.op
    if not isinstance(op, MixtureRV) or np.dtype(variable.dtype).kind != "f":
        return False
    _, _, *components = variable.owner.inputs
    kinds = {measure_of(component) for component in components}
    return Measure.CONTINUOUS in kinds and len(kinds) > 1


def _measure(variable: Variable, known: dict[Variable, Measure]) -> Measure:
    if variable not in known:
        known[variable] = Measure.FIXED  # for graphs that refer back to the variable
        known[variable] = _of_node(variable, known)
    return known[variable]


def _of_node(variable: Variable, known: dict[Variable, Measure]) -> Measure:
    node = variable.owner
    if node is None:
        return Measure.FIXED
    op = node.op
    if isinstance(op, RandomVariable):
        return _by_type(variable)
    if isinstance(op, DiracDeltaRV):
        return Measure.DISCRETE
    if isinstance(op, SymbolicRandomVariable):
        return _of_symbolic(variable, known)
    if isinstance(op, Scan):
        return _by_type(variable)
    if isinstance(op, Elemwise):
        return _of_elementwise(node, known)
    if isinstance(op, Subtensor | AdvancedSubtensor | Alloc):
        return _measure(node.inputs[0], known)
    if isinstance(op, IncSubtensor | AdvancedIncSubtensor):
        return _joined([_measure(v, known) for v in node.inputs[:2]])
    if isinstance(op, Join | MakeVector):
        return _joined([_measure(v, known) for v in node.inputs[isinstance(op, Join) :]])
    return max((_measure(v, known) for v in node.inputs), default=Measure.FIXED)


def _by_type(variable: Variable) -> Measure:
    continuous = np.dtype(getattr(variable.type, "dtype", "int64")).kind == "f"
    return Measure.CONTINUOUS if continuous else Measure.DISCRETE


def _of_symbolic(variable: Variable, known: dict[Variable, Measure]) -> Measure:
    """Return the measure of a distribution that is made of others, from its inner graph."""
    node = variable.owner
    inner = dict(zip(node.op.fgraph.inputs, (_measure(v, known) for v in node.inputs), strict=True))
    return _measure(node.op.fgraph.outputs[node.outputs.index(variable)], inner)


def _of_elementwise(node: Any, known: dict[Variable, Measure]) -> Measure:
    operation = node.op.scalar_op
    measures = [_measure(v, known) for v in node.inputs]
    if max(measures) == Measure.FIXED:
        return Measure.FIXED
    if isinstance(operation, _ROUNDING):
        return Measure.DISCRETE
    if isinstance(operation, ps.Cast) and node.outputs[0].type.dtype.startswith(("int", "uint")):
        return Measure.DISCRETE
    if isinstance(operation, ps.Switch):
        # a constant that is not finite marks an impossible value, such as a quantile beyond 1
        branches = [
            m for v, m in zip(node.inputs[1:], measures[1:], strict=True) if not _infinite(v)
        ]
        return _beside(branches, chosen_at_random=measures[0] > Measure.FIXED)
    if isinstance(operation, ps.Clip):
        x, *bounds = node.inputs
        kept = [
            m for v, m in zip(bounds, measures[1:], strict=True) if not (_infinite(v) or v is x)
        ]
        return _beside([measures[0], *kept])
    if isinstance(operation, ps.Maximum | ps.Minimum):
        return _beside([m for v, m in zip(node.inputs, measures, strict=True) if not _infinite(v)])
    return max(measures)


def _beside(measures: list[Measure], *, chosen_at_random: bool = True) -> Measure:
    """Return the measure of a variable that takes values of several kinds."""
    kinds = set(measures)
    if len(kinds) > 1 and Measure.CONTINUOUS in kinds:
        return Measure.MIXED
    kind = max(kinds, default=Measure.FIXED)
    return Measure.DISCRETE if chosen_at_random and kind == Measure.FIXED else kind


def _joined(measures: list[Measure]) -> Measure:
    """Return the measure of an array of several parts; fixed ones are ignored as placeholders."""
    return _beside([m for m in measures if m > Measure.FIXED], chosen_at_random=False)


def _infinite(variable: Variable) -> bool:
    while variable.owner is not None and len(variable.owner.inputs) == 1:
        variable = variable.owner.inputs[0]  # a change of type or shape
    return isinstance(variable, Constant) and not np.isfinite(variable.data).any()
