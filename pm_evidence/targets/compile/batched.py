"""Conversion of graphs of one particle into graphs of many."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.scalar.basic import GT, Exp
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.op import RandomVariable

from pm_evidence.targets.compile.rewrite import rewrite

__all__ = ["checks_to_minus_infinity", "inline_symbolic", "over_particles"]

# exp(x) > 0 in float64 from here on
_LEAST_EXPONENT = -745.1332191019412


def over_particles(graph: Variable, replace: Mapping[Variable, Variable], n: Variable) -> Variable:
    """Return a graph of one particle for ``n`` particles, along a new first dimension.

    Every random draw in it is made independently for every particle, even if it depends on none of
    ``replace``.

    Parameters
    ----------
    graph : TensorVariable
        Graph of one particle.
    replace : mapping of Variable to Variable
        Variables of one particle, and those of all particles that replace them.
    n : scalar integer TensorVariable
        Number of particles.
    """
    (graph,) = inline_symbolic([graph])
    replace = {one: many for one, many in replace.items() if one in set(ancestors([graph]))}
    replace.update(_independent_draws(graph, set(replace), n))
    many = vectorize_graph(graph, replace) if replace else graph
    if many.type.ndim == graph.type.ndim:
        many = pt.alloc(many, n, *(many.shape[k] for k in range(many.type.ndim)))
    return many


def _independent_draws(
    graph: Variable, batched: set[Variable], n: Variable
) -> dict[Variable, Variable]:
    """Return the draws that depend on nothing batched, and the draws that replace them."""
    batched = set(batched)
    result = {}
    for node in io_toposort([], [graph]):
        if any(v in batched for v in node.inputs):
            batched.update(node.outputs)
        elif isinstance(node.op, RandomVariable):
            rng, _, *parameters = node.inputs
            draw = node.outputs[1]
            size = [n, *(draw.shape[k] for k in range(node.op.batch_ndim(node)))]
            # a copy, as PyTensor's batched indexing expects an operation with one output
            result[draw] = node.op.make_node(rng, size, *parameters).outputs[1].copy()
            batched.update(node.outputs)
    return result


def inline_symbolic(graphs: Sequence[Variable]) -> list[Variable]:
    """Return graphs in which distributions made of others (mixtures, ...) are written out."""
    graphs = list(graphs)
    while True:
        replacements: dict[Variable, Variable] = {}
        for node in io_toposort([], graphs):
            if isinstance(node.op, SymbolicRandomVariable):
                replacements.update(zip(node.outputs, inline_ofg_node(node), strict=True))
                break  # one at a time, because distributions may be nested
        if not replacements:
            return graphs
        graphs = list(clone_replace(graphs, replacements, rebuild_strict=False))


def checks_to_minus_infinity(log_density: Variable) -> Variable:
    """Return the log density of one particle, ``-inf`` if a parameter is out of range.

    PyTensor itself would join the checks of a batch, and one particle out of range would give an
    error for all of them.
    """
    return rewrite([log_density], _without_joint_check)[0]


def _without_joint_check(node: Any, inputs: list[Variable]) -> list[Variable] | None:
    """Return the replacement of a check, or of a comparison that costs too much."""
    if isinstance(node.op, CheckParameterValue) and node.op.can_be_replaced_by_ninf:
        expression, *conditions = inputs
        for condition in conditions:
            expression = pt.switch(condition, expression, -np.inf)
        return [expression]
    if _is_exponential_above_zero(node):
        (exponent,) = inputs[0].owner.inputs
        return [pt.gt(exponent, _LEAST_EXPONENT)]
    return None


def _is_exponential_above_zero(node: Any) -> bool:
    """Return whether a node compares an exponential with 0, which costs as much as a density."""
    if not (isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, GT)):
        return False
    left, right = node.inputs
    while right.owner is not None and isinstance(right.owner.op, DimShuffle):
        right = right.owner.inputs[0]
    return (
        isinstance(right, Constant)
        and not np.any(right.data)
        and left.owner is not None
        and isinstance(left.owner.op, Elemwise)
        and isinstance(left.owner.op.scalar_op, Exp)
    )
