"""The logarithm of a positive graph, without the rounding of what it is made of."""

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.scalar.basic import Abs, Mul, Pow, Reciprocal, Sign, Sqrt, TrueDiv
from pytensor.tensor.elemwise import DimShuffle

from pm_evidence.targets.model.multiplied import bare

__all__ = ["log_of"]


def log_of(scale: Variable) -> Variable:
    """Return the log of a positive graph, without computing a power of what may round to zero.

    A precision of ``exp(-2000)`` rounds to zero, and its inverse root to infinity, the log of which
    is 1,000.
    """
    if scale.owner is None:
        return _log(scale)
    op, inputs = scale.owner.op, scale.owner.inputs
    if isinstance(op, DimShuffle):
        return op(log_of(inputs[0]))
    match getattr(op, "scalar_op", None):
        case Pow() if isinstance(bare(inputs[1]), Constant):
            return inputs[1] * log_of(inputs[0])
        case TrueDiv() if isinstance(bare(inputs[0]), Constant):
            return _log(inputs[0]) - log_of(inputs[1])
        case Reciprocal():
            return -log_of(inputs[0])
        case Sqrt():
            return 0.5 * log_of(inputs[0])
        case Abs():
            return log_of(inputs[0])
        case Mul() if len(factors := [x for x in inputs if not _is_sign(x)]) == 1:
            return log_of(factors[0])  # PyMC multiplies by the sign of a precision
    return _log(scale)


def _is_sign(graph: Variable) -> bool:
    return isinstance(getattr(getattr(graph.owner, "op", None), "scalar_op", None), Sign)


def _log(number: Any) -> Variable:
    return pt.log(number.astype("float64"))  # PyMC stores 2.0 in single precision
