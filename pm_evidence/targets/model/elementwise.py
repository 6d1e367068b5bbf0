"""Convexity of the results of elementwise operations, and truth values known of all elements."""

from collections.abc import Callable, Sequence
from functools import reduce
from math import exp, inf, log
from operator import add, mul
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.scalar.math import Erfc, Sigmoid, Softplus

from pm_evidence.targets.model.curvature import (
    CONCAVE,
    CONVEX,
    NOTHING,
    UNKNOWN,
    Curvature,
    Function,
    composed,
)

__all__ = ["Rule", "of_elements"]

# Returns what is known of the result of a node, given what is known of its inputs.
Rule = Callable[[Any, Sequence[Function]], Function]

_FALSE, _TRUE = Function(low=0.0, high=0.0), Function(low=1.0, high=1.0)
_EITHER = Function(low=0.0, high=1.0)


def of_elements(node: Any, op: Any, arguments: Sequence[Function]) -> Function:
    """Return what is known of the result of an elementwise operation.

    Parameters
    ----------
    node : Apply
        The node.
    op : ScalarOp
        Its operation on elements.
    arguments : sequence of Function
        What is known of its inputs.
    """
    for kind in type(op).__mro__:
        if kind in _OF_NUMBERS:
            all_finite = all(each.is_finite for each in arguments)
            return _OF_NUMBERS[kind](node, arguments) if all_finite else NOTHING
        if kind in _OF_ANYTHING:
            return _OF_ANYTHING[kind](node, arguments)
    return NOTHING


def _sum(node: Any, arguments: Sequence[Function]) -> Function:
    return reduce(add, arguments)


def _difference(node: Any, arguments: Sequence[Function]) -> Function:
    return arguments[0] + -arguments[1]


def _product(node: Any, arguments: Sequence[Function]) -> Function:
    if len(node.inputs) == 2 and node.inputs[0] is node.inputs[1]:
        return arguments[0].to_power(2.0)
    return reduce(mul, arguments)


def _quotient(node: Any, arguments: Sequence[Function]) -> Function:
    above, below = arguments
    if below.value is None:
        return above * below.reciprocal()
    with np.errstate(all="ignore"):
        return above * Function.constant(1.0 / below.value)


def _power(node: Any, arguments: Sequence[Function]) -> Function:
    base, power = arguments
    is_number = power.value is not None and power.low == power.high
    return base.to_power(power.low) if is_number else NOTHING


def _exp(node: Any, arguments: Sequence[Function]) -> Function:
    (x,) = arguments
    return Function.positive(x.curvature, exp(min(x.high, 700.0)) if x.high < 700.0 else inf)


def _log(node: Any, arguments: Sequence[Function]) -> Function:
    return _log_of(arguments[0])


def _log_of(x: Function) -> Function:
    if x.log is None:
        return NOTHING
    curvature = composed(CONCAVE, x.curvature, rises=True)
    is_concave = x.log.is_concave or curvature.is_concave
    low = log(x.low) if x.low > 0.0 else -inf
    high = log(x.high) if x.high < inf else inf
    return Function(Curvature(x.log.is_convex, is_concave), low=low, high=high)


def _log1p(node: Any, arguments: Sequence[Function]) -> Function:
    return _log_of(Function.constant(1.0) + arguments[0])


def _softplus(node: Any, arguments: Sequence[Function]) -> Function:
    (x,) = arguments
    log_curvature = composed(CONCAVE, x.curvature, rises=True)
    return Function(composed(CONVEX, x.curvature, rises=True), log_curvature, low=0.0)


def _sigmoid(node: Any, arguments: Sequence[Function]) -> Function:
    (x,) = arguments
    rising = composed(CONCAVE, x.curvature, rises=True)
    falling = composed(CONCAVE, x.curvature, falls=True)
    return Function(UNKNOWN, rising, falling, 0.0, 1.0)


def _erfc(node: Any, arguments: Sequence[Function]) -> Function:
    (x,) = arguments
    falling = composed(CONCAVE, x.curvature, falls=True)
    rising = composed(CONCAVE, x.curvature, rises=True)
    return Function(UNKNOWN, falling, rising, 0.0, 2.0)


def _square(node: Any, arguments: Sequence[Function]) -> Function:
    return arguments[0].to_power(2.0)


def _root(node: Any, arguments: Sequence[Function]) -> Function:
    return arguments[0].to_power(0.5)


def _absolute(node: Any, arguments: Sequence[Function]) -> Function:
    (x,) = arguments
    if x.low >= 0.0:
        return x
    return Function(composed(CONVEX, x.curvature, falls=x.high <= 0.0), low=0.0)


def _sign(node: Any, arguments: Sequence[Function]) -> Function:
    is_positive = arguments[0].log is not None or arguments[0].low > 0.0
    return Function.constant(1.0) if is_positive else NOTHING


def _reciprocal(node: Any, arguments: Sequence[Function]) -> Function:
    return arguments[0].reciprocal()


def _largest(node: Any, arguments: Sequence[Function]) -> Function:
    one, two = arguments
    found = one.chosen(two)
    convex = one.curvature.is_convex and two.curvature.is_convex
    return Function(CONVEX if convex else UNKNOWN, None, None, max(one.low, two.low), found.high)


def _least(node: Any, arguments: Sequence[Function]) -> Function:
    return -_largest(node, [-each for each in arguments])


def _same(node: Any, arguments: Sequence[Function]) -> Function:
    return arguments[0]


def _last(node: Any, arguments: Sequence[Function]) -> Function:
    return arguments[-1]


def _cast(node: Any, arguments: Sequence[Function]) -> Function:
    return arguments[0] if node.outputs[0].dtype == "float64" else NOTHING


def _switch(node: Any, arguments: Sequence[Function]) -> Function:
    condition, one, two = arguments
    if condition.is_true:
        return one
    if condition.is_false:
        return two
    mask = None if condition.value is None else condition.value.astype(bool)
    return NOTHING if mask is None else one.chosen(two, mask)


# truth values -----------------------------------------------------------------------------------


def _at_least(node: Any, arguments: Sequence[Function]) -> Function:
    return _compared(arguments[0], arguments[1])


def _at_most(node: Any, arguments: Sequence[Function]) -> Function:
    return _compared(arguments[1], arguments[0])


def _above(node: Any, arguments: Sequence[Function]) -> Function:
    return _negated(_compared(arguments[1], arguments[0]))


def _below(node: Any, arguments: Sequence[Function]) -> Function:
    return _negated(_compared(arguments[0], arguments[1]))


def _compared(one: Function, two: Function) -> Function:
    """Return whether one number is at least another."""
    if not (_is_number(one) and _is_number(two)):
        return _EITHER
    if one.low >= two.high:
        return _TRUE
    is_less = one.high < two.low or (one.high <= 0.0 and two.log is not None)
    return _FALSE if is_less else _EITHER


def _is_number(function: Function) -> bool:
    """Return whether a function is a number, which may be infinite, at all inputs."""
    return function.is_finite or (function.value is not None and function.low <= function.high)


def _equal(node: Any, arguments: Sequence[Function]) -> Function:
    for one, two in (arguments, arguments[::-1]):
        if one.value is None or not one.value.size or not two.is_finite:
            continue
        if np.isinf(one.value).all() or (two.log is not None and one.high <= 0.0):
            return _FALSE
        if one.high < two.low or one.low > two.high:
            return _FALSE
    return _EITHER


def _unequal(node: Any, arguments: Sequence[Function]) -> Function:
    return _negated(_equal(node, arguments))


def _not_finite(node: Any, arguments: Sequence[Function]) -> Function:
    return _FALSE if arguments[0].is_finite else _EITHER


def _not(node: Any, arguments: Sequence[Function]) -> Function:
    return _negated(arguments[0])


def _negated(truth: Function) -> Function:
    return Function(low=1.0 - truth.high, high=1.0 - truth.low)


def _and(node: Any, arguments: Sequence[Function]) -> Function:
    if any(each.is_false for each in arguments):
        return _FALSE
    left = [each for each in arguments if not each.is_true]
    if not left:
        return _TRUE
    return left[0] if len(left) == 1 else _EITHER


def _or(node: Any, arguments: Sequence[Function]) -> Function:
    return _negated(_and(node, [_negated(each) for each in arguments]))


# Rules that hold where all inputs are finite numbers, and those that hold for all inputs.
_OF_NUMBERS: dict[type, Rule] = {
    ps.Add: _sum,
    ps.Sub: _difference,
    ps.Mul: _product,
    ps.TrueDiv: _quotient,
    ps.Pow: _power,
    ps.Neg: lambda node, arguments: -arguments[0],
    ps.Exp: _exp,
    ps.Log: _log,
    ps.Log1p: _log1p,
    ps.Sqr: _square,
    ps.Sqrt: _root,
    ps.Abs: _absolute,
    ps.Reciprocal: _reciprocal,
    ps.Sign: _sign,
    ps.Maximum: _largest,
    ps.Minimum: _least,
    Softplus: _softplus,
    Sigmoid: _sigmoid,
    Erfc: _erfc,
}
_OF_ANYTHING: dict[type, Rule] = {
    ps.Identity: _same,
    ps.Second: _last,
    ps.Cast: _cast,
    ps.Switch: _switch,
    ps.GE: _at_least,
    ps.LE: _at_most,
    ps.GT: _above,
    ps.LT: _below,
    ps.EQ: _equal,
    ps.NEQ: _unequal,
    ps.IsNan: _not_finite,
    ps.IsInf: _not_finite,
    ps.Invert: _not,
    ps.AND: _and,
    ps.OR: _or,
}
