"""Which posterior densities are log-concave, given a few hyperparameters if need be.

Rules for the operations of a graph say which functions are convex, by composition (Boyd and
Vandenberghe 2004, chapter 3). What no rule knows is not known to be convex.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import permutations
from math import exp, inf, isinf, isnan, log, prod
from operator import add, mul
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.scalar as ps
from numpy.typing import NDArray
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import io_toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Mul
from pytensor.scalar.math import Erfc, Sigmoid, Softplus
from pytensor.tensor.basic import (
    Alloc,
    ExtractDiag,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg import CholeskySolve
from pytensor.tensor.linalg.solvers.core import SolveBase
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from pm_evidence.targets.layout import FlatVariable
from pm_evidence.targets.model.log_scale import BinomialExcess, ExponentialExcess

Floats = NDArray[np.float64]


class Curvature(NamedTuple):
    """Whether a function is known to be convex, and whether it is known to be concave."""

    is_convex: bool
    is_concave: bool

    def __and__(self, other: "Curvature") -> "Curvature":
        """Return the curvature of the sum of two functions."""
        convex = self.is_convex and other.is_convex
        return Curvature(convex, self.is_concave and other.is_concave)

    def __neg__(self) -> "Curvature":
        return Curvature(self.is_concave, self.is_convex)


AFFINE, CONVEX = Curvature(True, True), Curvature(True, False)
CONCAVE, UNKNOWN = Curvature(False, True), Curvature(False, False)


def composed(
    outer: Curvature, inner: Curvature, *, rises: bool = False, falls: bool = False
) -> Curvature:
    """Return the curvature of ``outer(inner(x))``, where the outer function rises or falls."""
    flat = inner == AFFINE
    along, against = flat or rises, flat or falls
    return Curvature(
        outer.is_convex and ((along and inner.is_convex) or (against and inner.is_concave)),
        outer.is_concave and ((along and inner.is_concave) or (against and inner.is_convex)),
    )


@dataclass(frozen=True, eq=False)
class Function:
    """What is known of all elements of an array, as functions of the inputs."""

    curvature: Curvature = UNKNOWN  # that of every element
    # That of the logarithm; None unless all elements are known to be positive
    log: Curvature | None = None
    # That of the logarithm of ``high`` minus the element; None unless this is known to be positive
    log_rest: Curvature | None = None
    # Bounds of all elements. Of truth values, 0 is false and 1 is true.
    low: float = -inf
    high: float = inf
    value: NDArray[Any] | None = None  # the array itself, if it does not depend on the inputs
    minus: "Function | None" = None  # what this is the negative of
    # Its square, where more is known of that than follows from the rest
    square: "Function | None" = None
    # Whether all elements are finite numbers at all inputs. Otherwise, neither a curvature nor a
    # sign is known.
    is_finite: bool = True

    @classmethod
    def constant(cls, value: Any) -> "Function":
        """Return an array that does not depend on the inputs."""
        value = np.asarray(value)
        if value.dtype.kind not in "biuf" or not value.size:
            return cls(value=value, is_finite=False)
        low, high = float(value.min()), float(value.max())
        if isnan(low):
            return cls(value=value, is_finite=False)
        if isinf(low) or isinf(high):
            return cls(low=low, high=high, value=value, is_finite=False)
        return cls(AFFINE, AFFINE if low > 0.0 else None, None, low, high, value)

    @classmethod
    def positive(cls, log: Curvature, high: float = inf) -> "Function":
        """Return a positive function, of which the curvature of its logarithm is known."""
        convex = Curvature(log.is_convex, False)
        return cls(convex, log, None, 0.0, high)

    @property
    def is_true(self) -> bool:
        """Whether a truth value is true at all inputs."""
        return self.low >= 1.0

    @property
    def is_false(self) -> bool:
        """Whether a truth value is false at all inputs."""
        return self.high <= 0.0

    def is_number(self, number: float) -> bool:
        """Return whether all elements are data, and one number."""
        return self.value is not None and self.low == self.high == number

    def __neg__(self) -> "Function":
        if self.value is not None and self.is_finite:
            return Function.constant(-self.value.astype(float))  # truth values have no negative
        return Function(
            -self.curvature,
            low=-self.high,
            high=-self.low,
            minus=self,
            square=self.square,
            is_finite=self.is_finite,
        )

    def __add__(self, other: "Function") -> "Function":
        if not (self.is_finite and other.is_finite):
            return NOTHING
        for constant, function in ((self, other), (other, self)):
            if constant.is_number(0.0):
                return function
            if function.minus is not None and constant.is_number(function.minus.high):
                return function.minus.rest()
        log = None
        if self.log is not None and other.log is not None:  # sums of log-convex functions are so
            log = Curvature((self.log & other.log).is_convex, False)
        curvature = self.curvature & other.curvature
        return Function(curvature, log, None, self.low + other.low, self.high + other.high)

    def __mul__(self, other: "Function") -> "Function":
        if not (self.is_finite and other.is_finite):
            return NOTHING
        for constant, function in ((self, other), (other, self)):
            if constant.value is not None:
                return function._scaled(constant)
        if self.log is None or other.log is None:
            one, two = self._squared(), other._squared()
            square = None if one is None or two is None else one * two
            return Function(low=0.0 if self.low >= 0.0 <= other.low else -inf, square=square)
        return Function.positive(self.log & other.log)

    def _squared(self) -> "Function | None":
        """Return the square of a function that has no zeros; None if it may have some."""
        return self.square if self.log is None else self.to_power(2.0)

    @property
    def is_exponential(self) -> bool:
        """Whether it is plus or minus the exponential of an affine function."""
        square = self._squared()
        return square is not None and square.log == AFFINE

    def _scaled(self, constant: "Function") -> "Function":
        """Return the products with an array of constants."""
        if constant.is_number(1.0):
            return self
        if constant.is_number(0.0):
            return Function.constant(0.0)
        ends = [0.0 if 0.0 in (a, b) else a * b for a in _ends(self) for b in _ends(constant)]
        same = constant.low == constant.high > 0.0
        log = None if constant.log is None else self.log
        square = None
        if self.log is not None and constant.value is not None and constant.low < 0.0:
            with np.errstate(over="ignore"):
                square = self.to_power(2.0) * Function.constant(constant.value**2.0)
        log_rest = self.log_rest if same else None
        found = Function(UNKNOWN, log, log_rest, min(ends), max(ends), square=square)
        if constant.low >= 0.0:
            return replace(found, curvature=self.curvature)
        if constant.high <= 0.0:
            return replace(found, curvature=-self.curvature)
        return replace(found, curvature=AFFINE) if self.curvature == AFFINE else found

    def rest(self) -> "Function":
        """Return the upper bound, which is finite, minus the function."""
        log_rest = self.log if self.low == 0.0 else None
        return Function(-self.curvature, self.log_rest, log_rest, 0.0, self.high - self.low)

    def reciprocal(self) -> "Function":
        """Return one over the function."""
        if self.log is None:
            return NOTHING
        found = Function.positive(-self.log)
        curvature = composed(CONVEX, self.curvature, falls=True)
        convex = curvature.is_convex or found.curvature.is_convex
        return replace(found, curvature=Curvature(convex, False))

    def to_power(self, power: float) -> "Function":
        """Return the function to a constant power."""
        if power == 1.0:
            return self
        even = power >= 2.0 and power % 2.0 == 0.0
        if self.log is None:
            if self.square is not None and even:
                return self.square.to_power(0.5 * power)
            if not even:
                return NOTHING
            rises, falls = self.low >= 0.0, self.high <= 0.0
            return Function(composed(CONVEX, self.curvature, rises=rises, falls=falls), low=0.0)
        log = self.log if power >= 0.0 else -self.log
        outer = CONCAVE if 0.0 < power < 1.0 else CONVEX
        curvature = composed(outer, self.curvature, rises=power >= 0.0, falls=power <= 0.0)
        found = Function.positive(log)
        convex = curvature.is_convex or found.curvature.is_convex
        return replace(found, curvature=Curvature(convex, curvature.is_concave))

    def chosen(self, other: "Function", mask: NDArray[np.bool_] | None = None) -> "Function":
        """Return an array whose elements are those of one array or another."""
        if mask is not None and not mask.any():
            return other
        if mask is not None and mask.all():
            return self
        one, two = (self, other) if mask is None else (self._where(mask), other._where(~mask))
        log = None if one.log is None or two.log is None else one.log & two.log
        low, high = min(one.low, two.low), max(one.high, two.high)
        if not (one.is_finite and two.is_finite):
            return NOTHING
        return Function(one.curvature & two.curvature, log, None, low, high)

    def _where(self, mask: NDArray[np.bool_]) -> "Function":
        """Return the elements that are chosen."""
        if self.value is None:
            return self
        value, chosen = np.broadcast_arrays(self.value, mask)
        return Function.constant(value[chosen])


NOTHING = Function(is_finite=False)


def _ends(function: Function) -> tuple[float, float]:
    return function.low, function.high


# Returns what is known of the result of a node, given what is known of its inputs.
Rule = Callable[[Any, Sequence[Function]], Function]

_FALSE, _TRUE = Function(low=0.0, high=0.0), Function(low=1.0, high=1.0)
_EITHER = Function(low=0.0, high=1.0)


def of_elements(node: Any, op: Any, arguments: Sequence[Function]) -> Function:
    """Return what is known of the result of an elementwise operation."""
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


# Largest number of elements of inputs at which products of exponentials are evaluated, without
# compiling, and the relative difference that is left to rounding.
_FEW, _PLAIN, _ROUNDING = 10, Mode("py", None), 1e-12


def is_log_concave(
    inputs: Sequence[Variable],
    log_density: Sequence[Variable],
    given: Mapping[Variable, Any] | None = None,
) -> bool:
    """Return whether all of some log densities are known to be concave and finite everywhere.

    False means not known: the rules are sufficient and not necessary. Data are those of the time of
    the call.
    """
    found = known_functions(inputs, log_density, given)
    return all(each.curvature.is_concave for each in found)


def known_functions(
    inputs: Sequence[Variable],
    graphs: Sequence[Variable],
    given: Mapping[Variable, Any] | None = None,
) -> list[Function]:
    """Return what is known of some graphs as functions of inputs that take all real values.

    The arguments are those of `is_log_concave`.
    """
    known = {variable: Function(AFFINE) for variable in inputs}
    known.update((variable, Function.constant(x)) for variable, x in (given or {}).items())
    return _walk(graphs, known, _Values(inputs, given or {}))


class _Values:
    """Values of graphs of few inputs."""

    def __init__(self, inputs: Sequence[Variable], given: Mapping[Variable, Any]) -> None:
        self._given = {variable: np.asarray(value) for variable, value in given.items()}
        self._free = [variable for variable in inputs if variable not in given]

    def constant(self, graph: Variable) -> NDArray[Any] | None:
        """Return the value of a graph if it is the same at all inputs; otherwise None.

        It has to be plus or minus the exponential of an affine function. This is constant if it is
        the same where all inputs are zero, and where one element of them is one.
        """
        shapes = [variable.type.shape for variable in self._free]
        if any(None in shape for shape in shapes):
            return None
        sizes = [prod(shape) for shape in shapes]
        if sum(sizes) > _FEW:
            return None
        points = np.vstack([np.zeros(sum(sizes)), np.eye(sum(sizes))])
        inputs, values = [*self._free, *self._given], list[NDArray[Any]]()
        try:
            evaluate = pytensor.function(inputs, graph, mode=_PLAIN, on_unused_input="ignore")
            for point in points:
                parts = np.split(point, np.cumsum(sizes)[:-1])
                arrays = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
                with np.errstate(all="ignore"):
                    values.append(np.asarray(evaluate(*arrays, *self._given.values())))
        except Exception:  # an operation may raise anything, and inner graphs have other inputs
            return None
        first, *others = values
        same = all((np.abs(each - first) <= _ROUNDING * np.abs(first)).all() for each in others)
        return first if same else None


def _walk(
    graphs: Sequence[Variable], known: dict[Variable, Function], values: _Values | None = None
) -> list[Function]:
    """Return what is known of some graphs, given what is known of their inputs."""
    for node in io_toposort([], list(graphs)):
        arguments = [_of(variable, known) for variable in node.inputs]
        results = _results(node, arguments)
        if values is not None and _may_cancel(arguments, results[0]):
            value = values.constant(node.outputs[0])
            results = results if value is None else [Function.constant(value)]
        known.update(zip(node.outputs, results, strict=True))
    return [_of(graph, known) for graph in graphs]


def _may_cancel(arguments: Sequence[Function], result: Function) -> bool:
    """Return whether a result is a product of exponentials, which may be a constant."""
    varying = sum(each.value is None for each in arguments)
    return result.is_exponential and result.value is None and varying > 1


def _of(variable: Any, known: dict[Variable, Function]) -> Function:
    """Return what is known of a variable: of an input, of data, or of the result of a node."""
    if variable not in known:
        value = None
        if isinstance(variable, Constant):
            value = variable.data
        elif isinstance(variable, SharedVariable):
            value = variable.get_value(borrow=True)
        is_array = isinstance(value, np.ndarray | np.generic | int | float)
        known[variable] = Function.constant(value) if is_array else NOTHING
    return known[variable]


def _results(node: Any, arguments: Sequence[Function]) -> list[Function]:
    """Return what is known of each result of a node."""
    are_data = all(each.value is not None for each in arguments)
    if isinstance(node.op, Shape | Shape_i):
        return [_shape(node)]
    if are_data and not isinstance(node.op, HasInnerGraph):
        return _evaluated(node, arguments)
    if len(node.outputs) > 1 and not isinstance(node.op, Split):
        return [NOTHING] * len(node.outputs)
    return [_result(node, arguments, are_data)] * len(node.outputs)


def _result(node: Any, arguments: Sequence[Function], are_data: bool) -> Function:
    """Return what is known of the result of a node, and of each if there are several."""
    if isinstance(node.op, HasInnerGraph) and (are_data or type(node.op) not in _RULES):
        return _of_inner_graph(node.op, arguments)
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    if isinstance(op, Elemwise):
        return of_elements(node, op.scalar_op, arguments)
    rule = next((_RULES[kind] for kind in type(op).__mro__ if kind in _RULES), None)
    if rule is None or not (arguments and arguments[0].is_finite):
        return NOTHING
    return rule(node, arguments)


def _shape(node: Any) -> Function:
    shape = node.inputs[0].type.shape
    if None in shape:
        return NOTHING
    return Function.constant(np.array(shape if isinstance(node.op, Shape) else shape[node.op.i]))


def _of_inner_graph(op: Any, arguments: Sequence[Function]) -> Function:
    """Return what is known of the result of an operation that stands for a graph."""
    if not isinstance(op, OpFromGraph):  # a loop, which would have to be compiled
        return NOTHING
    known = dict(zip(op.inner_inputs, arguments, strict=True))
    return _walk(op.inner_outputs, known)[0]


def _evaluated(node: Any, arguments: Sequence[Function]) -> list[Function]:
    """Return the values of a node whose inputs are data."""
    results: list[list[Any]] = [[None] for _ in node.outputs]
    try:
        with np.errstate(all="ignore"):
            node.op.perform(node, [each.value for each in arguments], results)
    except Exception:  # an operation may raise anything, and the run meets it again
        return [NOTHING] * len(results)
    return [Function.constant(result) for (result,) in results]


def _checked(node: Any, arguments: Sequence[Function]) -> Function:
    value, *conditions = arguments
    return value if all(each.is_true for each in conditions) else NOTHING


def _selected(node: Any, arguments: Sequence[Function]) -> Function:
    array, *index = arguments
    return array if all(each.value is not None for each in index) else NOTHING


def _set(node: Any, arguments: Sequence[Function]) -> Function:
    array, value, *index = arguments
    if any(each.value is None for each in index):
        return NOTHING
    if node.op.set_instead_of_inc:
        return array.chosen(value)
    return array.chosen(array + _added_up(value))  # an index may occur more than once


def _joined(node: Any, arguments: Sequence[Function]) -> Function:
    first, *others = arguments[1:] if isinstance(node.op, Join) else arguments
    return reduce(Function.chosen, others, first)


def _reduced(node: Any, arguments: Sequence[Function]) -> Function:
    (x,), kind = arguments, type(node.op.scalar_op)
    if kind is ps.Add:
        return _added_up(x)
    if kind in (ps.AND, ps.OR):
        return x
    if kind is ps.ScalarMaximum:
        return Function(CONVEX if x.curvature.is_convex else UNKNOWN, low=x.low, high=x.high)
    if kind is ps.ScalarMinimum:
        return Function(CONCAVE if x.curvature.is_concave else UNKNOWN, low=x.low, high=x.high)
    return NOTHING


def _added_up(x: Function) -> Function:
    """Return what is known of sums of elements."""
    low, high = 0.0 if x.low >= 0.0 else -inf, 0.0 if x.high <= 0.0 else inf
    several = None if x.log is None else (x + x).log
    return Function(x.curvature, several, None, low, high)


def _cumulative(node: Any, arguments: Sequence[Function]) -> Function:
    return _added_up(arguments[0]) if node.op.mode == "add" else NOTHING


def _matrix_product(node: Any, arguments: Sequence[Function]) -> Function:
    if all(each.value is None for each in arguments):
        return NOTHING
    product = arguments[0] * arguments[1]
    return _added_up(product) if product.is_finite else NOTHING


def _solution(node: Any, arguments: Sequence[Function]) -> Function:
    matrix, right = arguments
    is_linear = matrix.value is not None and right.curvature == AFFINE
    return Function(AFFINE) if is_linear else NOTHING


def _log_sum_exp(node: Any, arguments: Sequence[Function]) -> Function:
    return Function(composed(CONVEX, arguments[0].curvature, rises=True))


def _softmax(node: Any, arguments: Sequence[Function]) -> Function:
    return Function(UNKNOWN, composed(CONCAVE, arguments[0].curvature), None, 0.0, 1.0)


def _log_softmax(node: Any, arguments: Sequence[Function]) -> Function:
    return Function(composed(CONCAVE, arguments[0].curvature), high=0.0)


def _excess(node: Any, arguments: Sequence[Function]) -> Function:
    w, *others = arguments
    are_data = all(each.value is not None and each.low > 0.0 for each in others)
    return Function(composed(CONVEX, w.curvature), low=0.0) if are_data else NOTHING


_RULES: dict[type, Rule] = {
    ExponentialExcess: _excess,
    BinomialExcess: _excess,
    CheckAndRaise: _checked,
    DimShuffle: _same,
    ExtractDiag: _same,
    SpecifyShape: _same,
    ScalarFromTensor: _same,
    TensorFromScalar: _same,
    Reshape: _same,
    Alloc: _same,
    Split: _selected,
    Subtensor: _selected,
    AdvancedSubtensor: _selected,
    IncSubtensor: _set,
    AdvancedIncSubtensor: _set,
    Join: _joined,
    MakeVector: _joined,
    CAReduce: _reduced,
    CumOp: _cumulative,
    Dot: _matrix_product,
    SolveBase: _solution,
    CholeskySolve: _solution,
    LogSumExp: _log_sum_exp,
    Softmax: _softmax,
    LogSoftmax: _log_softmax,
}


def have_products_of_any_sign(
    inputs: Sequence[Variable], graphs: Sequence[Variable], some: Collection[Variable]
) -> bool:
    """Return whether functions of some inputs are multiplied by functions of the others.

    Only products are counted of which no factor is known to have one sign. The density may then be
    the same, or nearly so, if both factors change their signs, so that it has several peaks.
    """
    depends = {variable: {variable in some} for variable in inputs}
    products = list[tuple[Variable, Variable]]()
    for node in io_toposort(inputs, list(graphs)):
        here = set[bool]().union(*(depends.get(each, set()) for each in node.inputs))
        depends.update(dict.fromkeys(node.outputs, here))
        if len(here) > 1 and _is_product(node):
            pairs = permutations(node.inputs, 2)
            products += [
                (a, b)
                for a, b in pairs
                if True in depends.get(a, ()) and False in depends.get(b, ())
            ]
    factors = list(dict.fromkeys(factor for pair in products for factor in pair))
    found = zip(factors, known_functions(inputs, factors), strict=True)
    any_sign = {factor for factor, known in found if known.low < 0.0 < known.high}
    return any(a in any_sign and b in any_sign for a, b in products)


def _is_product(node: Any) -> bool:
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    return isinstance(op, Dot) or (isinstance(op, Elemwise) and isinstance(op.scalar_op, Mul))


# Largest number of coordinates of all hyperparameters together.
_MOST = 10
# Number of prior draws at which log-concavity is tested, and of those for choices before the last.
_POINTS, _FEW_HYPERPARAMETERS = 10, 2


def find_hyperparameters(target: Any) -> tuple[FlatVariable, ...] | None:
    """Return variables given which prior and likelihood are known to be log-concave in the others.

    Typical hyperparameters are scales of effects and of noise, and length scales of Gaussian
    processes. The rules depend on their values by little more than the signs of what the model
    computes from them, so that the values of a few prior draws stand for all.
    """
    if target.is_log_concave:
        return ()
    if target.discrete.size or target.period.any():
        return None
    layout = target.layout
    suffice = _Test(target)
    chosen = [variable for variable in layout.variables if variable.size <= _MOST]
    if not suffice(chosen):
        return None
    for variable in sorted(chosen, key=lambda variable: -variable.size):
        without = [each for each in chosen if each is not variable]
        if suffice(without):
            chosen = without
    n_given = sum(variable.size for variable in chosen)
    few = n_given <= min(_MOST, layout.size // 2)
    return tuple(chosen) if few and suffice(chosen, _POINTS) else None


def is_concave_in(target: Any, variables: Collection[FlatVariable]) -> bool:
    """Return whether a log density is known to be concave in some variables, given the others.

    It is so for the scales of effects and of noise, if the effects are centred and the scales have
    usual priors. The density of frequencies or of length scales may have many narrow peaks instead.
    """
    names = {variable.name for variable in variables}
    others = [variable for variable in target.layout.variables if variable.name not in names]
    graphs, layout = target.graphs(), target.layout
    every = zip(graphs.parts, layout.variables, strict=True)
    given = [part for part, variable in every if variable.name in names]
    if have_products_of_any_sign(graphs.parts, graphs.log_density, given):
        return False
    return _Test(target)(others, _POINTS)


class _Test:
    """Tests at prior draws whether a target is log-concave given some of its variables."""

    def __init__(self, target: Any) -> None:
        self._graphs, self._variables = target.graphs(), target.layout.variables
        points = target.finite_prior_points(_POINTS, np.random.SeedSequence(_POINTS))
        self._values = [target.layout.split(x) for x in points]

    def __call__(self, given: Collection[FlatVariable], n: int = _FEW_HYPERPARAMETERS) -> bool:
        """Return whether it is so at the first ``n`` draws."""
        return all(self._holds(given, values) for values in self._values[:n])

    def _holds(self, given: Collection[FlatVariable], values: Sequence[Floats]) -> bool:
        every = zip(self._graphs.parts, self._variables, values, strict=True)
        known = {part: value for part, variable, value in every if variable in given}
        return is_log_concave(self._graphs.parts, self._graphs.log_density, known)
