"""Graphs in double precision."""

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.scalar.basic import Cast
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Prod, Sum

from pm_evidence.targets.compile.rewrite import rewrite

__all__ = ["in_double_precision"]


def in_double_precision(outputs: Sequence[Variable]) -> list[Variable]:
    """Return the graphs with elementwise float operations, and sums of them, done in float64.

    PyTensor keeps Python literals as int8 or float32 and takes their logarithms in float32. This
    causes an error of 3e-3 nats after 1e5 observations.
    """
    return rewrite(outputs, _in_double)


def _in_double(node: Any, inputs: list[Variable]) -> list[Variable] | None:
    """Return a node's outputs computed in float64, or None if nothing has to change."""
    if not _is_single_precision(node):
        return None
    # pm.CAR sums a scalar over an axis: PyTensor fails to compute that in advance, and logs it
    if isinstance(node.op, Sum | Prod) and inputs[0].type.ndim == 0:
        return [pt.cast(inputs[0], "float64")]
    doubles = [v if v.type.dtype in ("bool", "float64") else pt.cast(v, "float64") for v in inputs]
    if all(new is old for new, old in zip(doubles, node.inputs, strict=True)):
        return None
    # these operations would round their result to single precision again
    if isinstance(node.op, Sum | Prod):
        return node.op.clone(dtype="float64", acc_dtype="float64").make_node(*doubles).outputs
    if isinstance(node.op, MakeVector):
        return MakeVector("float64").make_node(*doubles).outputs
    return node.clone_with_new_inputs(doubles, strict=False).outputs


def _is_single_precision(node: Any) -> bool:
    if isinstance(node.op, Elemwise):
        if isinstance(node.op.scalar_op, Cast):  # the user's own choice
            return False
    elif not isinstance(node.op, Sum | Prod | MakeVector):
        return False
    return any(out.type.dtype in ("float16", "float32") for out in node.outputs)
