"""Sums of a model's terms in the fixed order of ``core.sums``, with vector instructions.

PyTensor's own loops are fast if they may change the order of operations, but the last digits then
depend on the process (see ``core.sums``). If they may not, terms are added one by one, and the loop
that computes the terms cannot be vectorised either.
"""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.tensor.math import Sum, true_div
from pytensor.tensor.subtensor import AdvancedSubtensor

from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.sums import total
from pm_evidence.targets.compile.elementary import replace_elementary
from pm_evidence.targets.compile.implementations import implement_by
from pm_evidence.targets.compile.products import replace_product

__all__ = ["with_ordered_sums"]

# PyTensor merges elementwise operations at 49, and moves sums and indexing into their loops at 100.
# No two positions are equal: PyTensor would order them in another way in each process.
_RECIPROCAL, _ELEMENTARY, _SUM, _PRODUCT = 48.5, 48.6, 99.0, 99.1

# Fewer terms than this are added as fast one by one.
_FEW = 200


class OrderedSum(Op):
    """The sum of all entries of an array of float64."""

    __props__ = ()

    def make_node(self, x: Variable) -> Apply:
        """Return the node that adds up ``x``."""
        return Apply(self, [x], [pt.dscalar()])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Add up."""
        outputs[0][0] = _ordered_sum.py_func(*inputs)


def with_ordered_sums(mode: Mode) -> Mode:
    """Return a mode that takes long sums over whole arrays in a fixed order."""
    # raise the version when core.sums changes
    implement_by(OrderedSum, _ordered_sum, version=1)
    return mode.register(
        (dfs_rewriter(_multiply_by_reciprocal), _RECIPROCAL),
        (dfs_rewriter(replace_elementary), _ELEMENTARY),
        (dfs_rewriter(_order_sum), _SUM),
        (dfs_rewriter(replace_product), _PRODUCT),
    )


@node_rewriter([true_div])
def _multiply_by_reciprocal(fgraph: Any, node: Any) -> list[Variable] | None:
    """Replace the division of every term by one division."""
    x, y = node.inputs
    by_scalar = all(y.type.broadcastable) and not all(x.type.broadcastable)
    if not by_scalar or not x.type.dtype == y.type.dtype == "float64":
        return None
    return [x * pt.reciprocal(y)]


@node_rewriter([Sum])
def _order_sum(fgraph: Any, node: Any) -> list[Variable] | None:
    (x,) = node.inputs
    whole = node.op.axis is None or len(node.op.axis) == x.type.ndim
    few = None not in x.type.shape and np.prod(x.type.shape) < _FEW
    if not whole or few or not x.type.dtype == node.outputs[0].type.dtype == "float64":
        return None
    # a loop that selects entries by index is not faster with vector instructions
    terms = x.owner.inputs if x.owner is not None else []
    if any(t.owner is not None and isinstance(t.owner.op, AdvancedSubtensor) for t in terms):
        return None
    return [OrderedSum()(x)]


@njit(cache=False)
def _ordered_sum(x: Any) -> Any:
    return np.array(total(np.ravel(x)))
