"""Exponentials and logarithms of a model's terms, with vector instructions.

LLVM cannot vectorise a loop that calls the C library, so that in a regression with many rows most
of the time goes into one exponential after the other. The functions here are those of
``core.codegen.fast_math``, extended to all numbers: zeros, infinities and NaN as in NumPy, and an
error of a few units in the last place.
"""

from collections.abc import Callable
from math import exp, inf, nan
from typing import Any

import pytensor.scalar as ps
from pytensor.graph.basic import Variable
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scalar.basic import UnaryScalarOp
from pytensor.tensor.elemwise import Elemwise

from pm_evidence.core.codegen.fast_math import fast_exp, fast_log
from pm_evidence.core.codegen.numba import njit
from pm_evidence.targets.compile.implementations import implement_scalar_by

__all__ = ["replace_elementary"]

# Raise it when one of the functions changes: it is a part of the key of code on disk.
_VERSION = 2
# Below this number an exponential is no normal number, and is computed in two factors.
_LOW, _SHIFT = -700.0, 100.0
_UNSHIFT = exp(-_SHIFT)
_FEW = 8  # entries of a row: a shorter loop is not faster with vector instructions
_SMALLEST_NORMAL, _TWO_54, _54_LOG_2 = 2.2250738585072014e-308, 2.0**54, 37.42994775023705


@njit(cache=False, forceinline=True)
def _exp(x: Any) -> Any:
    """Return ``exp(x)``."""
    is_low = x < _LOW
    return fast_exp(x + (_SHIFT if is_low else 0.0)) * (_UNSHIFT if is_low else 1.0)


@njit(cache=False, forceinline=True)
def _log(x: Any) -> Any:
    """Return ``log(x)``."""
    is_low = x < _SMALLEST_NORMAL
    found = fast_log(x * (_TWO_54 if is_low else 1.0)) - (_54_LOG_2 if is_low else 0.0)
    found = found if x < inf else x  # infinity and NaN
    found = -inf if x == 0.0 else found
    return nan if x < 0.0 else found


@njit(cache=False, forceinline=True)
def _log1p(x: Any) -> Any:
    """Return ``log(1 + x)``, of small numbers too."""
    above = 1.0 + x
    # what rounding of the sum has lost; not a number at -1 and at infinity
    lost = (x - (above - 1.0)) / above
    return _log(above) + (lost if abs(lost) < 1.0 else 0.0)


@njit(cache=False, forceinline=True)
def _sigmoid(x: Any) -> Any:
    """Return ``1 / (1 + exp(-x))``."""
    e = _exp(-abs(x))
    return (1.0 if x >= 0.0 else e) / (1.0 + e)


@njit(cache=False, forceinline=True)
def _softplus(x: Any) -> Any:
    """Return ``log(1 + exp(x))``."""
    e = _exp(-abs(x))
    above = 1.0 + e  # from 1 to 2
    return (x if x > 0.0 else 0.0) + (fast_log(above) + (e - (above - 1.0)) / above)


class _Elementary(UnaryScalarOp):
    """An elementary function of a float64, by vector instructions where it is in a loop."""

    original: Any
    function: Callable[[Any], Any]

    def __init__(self) -> None:
        super().__init__(ps.upgrade_to_float, name=type(self).__name__)

    def impl(self, x: Any) -> Any:
        """Return the function in Python."""
        return self.original.impl(x)

    def c_code(self, *args: Any) -> str:
        """Refuse: the C backend is not used."""
        raise NotImplementedError


class VectorExp(_Elementary):
    """The exponential."""

    original, function = ps.exp, _exp


class VectorLog(_Elementary):
    """The natural logarithm."""

    original, function = ps.log, _log


class VectorLog1p(_Elementary):
    """The logarithm of one plus a number."""

    original, function = ps.log1p, _log1p


class VectorSigmoid(_Elementary):
    """The logistic function."""

    original, function = ps.sigmoid, _sigmoid


class VectorSoftplus(_Elementary):
    """The logarithm of one plus an exponential."""

    original, function = ps.softplus, _softplus


_KINDS = (VectorExp, VectorLog, VectorLog1p, VectorSigmoid, VectorSoftplus)
_BY_ORIGINAL = {type(kind.original): kind for kind in _KINDS}


@node_rewriter([Elemwise])
def replace_elementary(fgraph: Any, node: Any) -> list[Variable] | None:
    """Replace elementary functions of arrays of float64, unless their rows are short."""
    kind = _BY_ORIGINAL.get(type(node.op.scalar_op))
    (out,) = node.outputs[:1]
    if kind is None or out.type.ndim == 0 or node.inputs[0].type.dtype != "float64":
        return None
    row = out.type.shape[-1]
    if row is not None and row < _FEW:
        return None
    implement_scalar_by(kind, kind.function, _VERSION)
    return [Elemwise(kind())(*node.inputs)]
