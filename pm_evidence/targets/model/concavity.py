"""Which posterior densities are log-concave, given a few hyperparameters if need be.

Rules for the operations of a graph say which functions are convex, by composition (Boyd and
Vandenberghe 2004, chapter 3). What no rule knows is not known to be convex. The rules are those
that the graphs of regressions, of hierarchical models and of latent processes need.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import permutations
from math import exp, inf, isfinite, isnan, log, prod
from operator import add, mul
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
from numpy.typing import NDArray
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import io_toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor, Split
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg.solvers.core import SolveBase
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, Shape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pm_evidence.targets.compile.numpy_ops import numpy_form
from pm_evidence.targets.layout import FlatVariable
from pm_evidence.targets.model.log_scale import BinomialExcess, ExponentialExcess
from pm_evidence.targets.model.rows_on_workers import SumOverRows

Floats = NDArray[np.float64]

# Largest number of coordinates of all hyperparameters together.
_MOST_HYPERPARAMETERS = 10
# Number of prior draws at which log-concavity is tested, and of those for choices before the last.
_POINTS, _FIRST_POINTS = 10, 2
# Largest number of inputs at which products of exponentials are evaluated, and the relative
# difference that is left to rounding.
_FEW_INPUTS, _ROUNDING = 10, 1e-12


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
    values = _prior_values(target)
    suffice = partial(_is_concave_given, target, values=values[:_FIRST_POINTS])
    chosen = [variable for variable in layout.variables if variable.size <= _MOST_HYPERPARAMETERS]
    if not suffice(chosen):
        return None
    for variable in sorted(chosen, key=lambda variable: -variable.size):
        without = [each for each in chosen if each is not variable]
        if suffice(without):
            chosen = without
    n_given = sum(variable.size for variable in chosen)
    few = n_given <= min(_MOST_HYPERPARAMETERS, layout.size // 2)
    return tuple(chosen) if few and suffice(chosen, values=values) else None


def is_concave_in(target: Any, variables: Collection[FlatVariable]) -> bool:
    """Return whether a log density is known to be concave in some variables, given the others.

    It is so for the scales of effects and of noise, if the effects are centred and the scales have
    usual priors. The density of frequencies or of length scales may have many narrow peaks instead.
    """
    names = {variable.name for variable in variables}
    others = [variable for variable in target.layout.variables if variable.name not in names]
    graphs = target.graphs()
    every = zip(graphs.parts, target.layout.variables, strict=True)
    given = [part for part, variable in every if variable.name in names]
    if have_products_of_any_sign(graphs.parts, graphs.log_density, given):
        return False
    return _is_concave_given(target, others, _prior_values(target))


def _prior_values(target: Any) -> list[list[Floats]]:
    """Return the values of all variables at some prior draws."""
    points = target.finite_prior_points(_POINTS, np.random.SeedSequence(_POINTS))
    return [target.layout.split(x) for x in points]


def _is_concave_given(
    target: Any, given: Collection[FlatVariable], values: Sequence[Sequence[Floats]]
) -> bool:
    """Return whether a target is log-concave given some of its variables at some values."""
    graphs = target.graphs()
    for each in values:
        every = zip(graphs.parts, target.layout.variables, each, strict=True)
        known = {part: value for part, variable, value in every if variable in given}
        if not is_log_concave(graphs.parts, graphs.log_density, known):
            return False
    return True


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
        op = _core(node.op)
        if isinstance(op, Dot) or (isinstance(op, Elemwise) and isinstance(op.scalar_op, ps.Mul)):
            products += [
                (a, b)
                for a, b in permutations(node.inputs, 2)
                if True in depends.get(a, ()) and False in depends.get(b, ())
            ]
    factors = list(dict.fromkeys(factor for pair in products for factor in pair))
    found = zip(factors, known_functions(inputs, factors), strict=True)
    any_sign = {factor for factor, known in found if known.low < 0.0 < known.high}
    return any(a in any_sign and b in any_sign for a, b in products)


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
    along, against = (inner == AFFINE or known for known in (rises, falls))
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
    # Whether every element is zero, or plus or minus the exponential of an affine function
    is_exponential: bool = False
    # Whether all elements are finite numbers at all inputs. Otherwise, neither a curvature nor a
    # sign is known.
    is_finite: bool = True
    minus: "Function | None" = None  # what this is the negative of

    @classmethod
    def constant(cls, value: Any) -> "Function":
        """Return an array that does not depend on the inputs."""
        value = np.asarray(value)
        if value.dtype.kind not in "biuf" or not value.size or isnan(low := float(value.min())):
            return cls(value=value, is_finite=False)
        high = float(value.max())
        if not (isfinite(low) and isfinite(high)):
            return cls(low=low, high=high, value=value, is_finite=False)
        return cls(AFFINE, AFFINE if low > 0.0 else None, None, low, high, value, True)

    @classmethod
    def positive(cls, log: Curvature, high: float = inf) -> "Function":
        """Return a positive function, of which the curvature of its logarithm is known."""
        convex = Curvature(log.is_convex, False)
        return cls(convex, log, None, 0.0, high, is_exponential=log == AFFINE)

    def is_number(self, number: float) -> bool:
        """Return whether all elements are data, and one number."""
        return self.value is not None and self.low == self.high == number

    def __neg__(self) -> "Function":
        return replace(self * Function.constant(-1.0), minus=self)

    def __add__(self, other: "Function") -> "Function":
        if not (self.is_finite and other.is_finite):
            return NOTHING
        for constant, function in ((self, other), (other, self)):
            if constant.is_number(0.0):
                return function
            if function.minus is not None and constant.is_number(function.minus.high):
                return function.minus._rest()
        log = None
        if self.log is not None and other.log is not None:  # sums of log-convex functions are so
            log = Curvature((self.log & other.log).is_convex, False)
        curvature = self.curvature & other.curvature
        return Function(curvature, log, None, self.low + other.low, self.high + other.high)

    def _rest(self) -> "Function":
        """Return the upper bound, which is finite, minus the function."""
        log_rest = self.log if self.low == 0.0 else None
        return Function(-self.curvature, self.log_rest, log_rest, 0.0, self.high - self.low)

    def __mul__(self, other: "Function") -> "Function":
        if not (self.is_finite and other.is_finite):
            return NOTHING
        for constant, function in ((self, other), (other, self)):
            if constant.value is not None:
                return function._scaled(constant)
        if self.log is None or other.log is None:
            both = self.is_exponential and other.is_exponential
            low = 0.0 if self.low >= 0.0 <= other.low else -inf
            return Function(low=low, is_exponential=both)
        return Function.positive(self.log & other.log)

    def _scaled(self, constant: "Function") -> "Function":
        """Return the products with an array of constants."""
        if self.value is not None and constant.value is not None:
            with np.errstate(all="ignore"):
                return Function.constant(self.value * np.asarray(constant.value, float))
        if constant.is_number(1.0):
            return self
        if constant.is_number(0.0):
            return constant
        of_constant, own = (constant.low, constant.high), (self.low, self.high)
        ends = [0.0 if 0.0 in (a, b) else a * b for a in own for b in of_constant]
        curvature = AFFINE if self.curvature == AFFINE else UNKNOWN
        if constant.low >= 0.0:
            curvature = self.curvature
        elif constant.high <= 0.0:
            curvature = -self.curvature
        return Function(
            curvature,
            None if constant.log is None else self.log,
            self.log_rest if constant.low == constant.high > 0.0 else None,
            min(ends),
            max(ends),
            is_exponential=self.is_exponential,
        )

    def to_power(self, power: float) -> "Function":
        """Return the function to a constant power."""
        if power == 1.0:
            return self
        if self.log is None:
            if not (power >= 2.0 and power % 2.0 == 0.0):
                return NOTHING
            if self.is_exponential:
                return Function(CONVEX, None, None, 0.0, is_exponential=True)
            rises, falls = self.low >= 0.0, self.high <= 0.0
            return Function(composed(CONVEX, self.curvature, rises=rises, falls=falls), low=0.0)
        found = Function.positive(self.log if power >= 0.0 else -self.log)
        outer = CONCAVE if 0.0 < power < 1.0 else CONVEX
        own = composed(outer, self.curvature, rises=power >= 0.0, falls=power <= 0.0)
        convex = own.is_convex or found.curvature.is_convex
        return replace(found, curvature=Curvature(convex, own.is_concave))

    def chosen(self, other: "Function", mask: NDArray[np.bool_] | None = None) -> "Function":
        """Return an array whose elements are those of one array or another."""
        if mask is not None and not mask.any():
            return other
        if mask is not None and mask.all():
            return self
        one, two = (self, other) if mask is None else (self._where(mask), other._where(~mask))
        if not (one.is_finite and two.is_finite):
            return NOTHING
        log = None if one.log is None or two.log is None else one.log & two.log
        low, high = min(one.low, two.low), max(one.high, two.high)
        return Function(one.curvature & two.curvature, log, None, low, high)

    def _where(self, mask: NDArray[np.bool_]) -> "Function":
        """Return the elements that are chosen."""
        if self.value is None:
            return self
        shape = np.broadcast_shapes(np.shape(self.value), mask.shape)
        chosen = np.broadcast_to(mask, shape)  # both may be read-only, as constants of graphs are
        return Function.constant(np.broadcast_to(self.value, shape)[chosen])


NOTHING = Function(is_finite=False)
_FALSE, _TRUE = Function(low=0.0, high=0.0), Function(low=1.0, high=1.0)
_EITHER = Function(low=0.0, high=1.0)


def known_functions(
    inputs: Sequence[Variable],
    graphs: Sequence[Variable],
    given: Mapping[Variable, Any] | None = None,
    known: Mapping[Variable, Function] | None = None,
) -> list[Function]:
    """Return what is known of some graphs as functions of inputs that take all real values.

    Of some variables the values may be given, or what is known of them.
    """
    given = given or {}
    free = [variable for variable in inputs if variable not in given]
    known = {variable: Function(AFFINE) for variable in free} | dict(known or {})
    known.update((variable, Function.constant(x)) for variable, x in given.items())
    for node in io_toposort([], list(graphs)):
        arguments = [_of(variable, known) for variable in node.inputs]
        n_varying = sum(each.value is None for each in arguments)
        results = [] if n_varying else _evaluated(node, arguments)
        if not results:
            result = _result(node, arguments)
            if result.is_exponential and n_varying > 1:
                result = _if_constant(node.outputs[0], free, given) or result
            results = [result] * len(node.outputs)
        known.update(zip(node.outputs, results, strict=True))
    return [_of(graph, known) for graph in graphs]


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


def _evaluated(node: Any, arguments: Sequence[Function]) -> list[Function]:
    """Return the values of a node whose inputs are data; none if they cannot be computed."""
    if isinstance(node.op, OpFromGraph):
        inner, values = node.op.fgraph, [each.value for each in arguments]
        found = known_functions(
            inner.inputs, inner.outputs, dict(zip(inner.inputs, values, strict=True))
        )
        return found if all(each.value is not None for each in found) else []
    if isinstance(node.op, HasInnerGraph):  # a loop would have to be compiled
        return []
    try:
        with np.errstate(all="ignore"):
            found = numpy_form(node.op, node)(*[each.value for each in arguments])
    except Exception:  # an operation may raise anything, and the run meets it again
        return []
    return list(map(Function.constant, found if len(node.outputs) > 1 else [found]))


def _result(node: Any, arguments: Sequence[Function]) -> Function:
    """Return what is known of the result of a node, and of each if there are several."""
    op = _core(node.op)
    # shapes and indices follow an array, and are empty arrays where there are none
    numbers, kinds = arguments[:1], type(op).__mro__
    if isinstance(op, Elemwise):
        numbers, kinds = arguments, type(op.scalar_op).__mro__
    are_finite = all(each.is_finite for each in numbers)
    for kind in kinds:
        rule = _OF_ANYTHING.get(kind) or (_OF_NUMBERS.get(kind) if are_finite else None)
        if rule is not None:
            return rule(node, arguments)
    return NOTHING


def _core(op: Any) -> Any:
    return op.core_op if isinstance(op, Blockwise) else op


def _if_constant(
    graph: Variable, free: Sequence[Variable], given: Mapping[Variable, Any]
) -> Function | None:
    """Return the value of a product of exponentials of affine functions if it is a constant.

    It is one if it is the same where all inputs are zero, and where one element of them is one.
    """
    shapes = [variable.type.shape for variable in free]
    if any(None in shape for shape in shapes):
        return None
    sizes = [prod(shape) for shape in shapes]
    if sum(sizes) > _FEW_INPUTS:
        return None
    values = list[NDArray[Any]]()
    for point in np.vstack([np.zeros(sum(sizes)), np.eye(sum(sizes))]):
        parts = zip(np.split(point, np.cumsum(sizes)[:-1]), shapes, strict=True)
        there = dict(zip(free, (part.reshape(shape) for part, shape in parts), strict=True))
        (found,) = known_functions([], [graph], {**given, **there})
        if found.value is None:
            return None
        values.append(found.value)
    first, *others = values
    same = all((np.abs(each - first) <= _ROUNDING * np.abs(first)).all() for each in others)
    return Function.constant(first) if same else None


# Returns what is known of the result of a node, given what is known of its inputs.
type Rule = Callable[[Any, Sequence[Function]], Function]


def _first(node: Any, arguments: Sequence[Function]) -> Function:
    return arguments[0]


def _product(node: Any, arguments: Sequence[Function]) -> Function:
    if len(node.inputs) == 2 and node.inputs[0] is node.inputs[1]:
        return arguments[0].to_power(2.0)
    return reduce(mul, arguments)


def _quotient(node: Any, arguments: Sequence[Function]) -> Function:
    above, below = arguments
    if below.value is None:
        return above * below.to_power(-1.0)
    with np.errstate(all="ignore"):
        return above * Function.constant(1.0 / below.value)


def _power(node: Any, arguments: Sequence[Function]) -> Function:
    base, power = arguments
    is_number = power.value is not None and power.low == power.high
    return base.to_power(power.low) if is_number else NOTHING


def _exp(node: Any, arguments: Sequence[Function]) -> Function:
    (x,) = arguments
    return Function.positive(x.curvature, exp(x.high) if x.high < 700.0 else inf)


def _log_of(x: Function) -> Function:
    if x.log is None:
        return NOTHING
    is_concave = x.log.is_concave or composed(CONCAVE, x.curvature, rises=True).is_concave
    low = log(x.low) if x.low > 0.0 else -inf
    high = log(x.high) if x.high < inf else inf
    return Function(Curvature(x.log.is_convex, is_concave), low=low, high=high)


def _sigmoidal(high: float, *, rises: bool) -> Rule:
    """Return the rule of a function from 0 to a bound; its log and that of the rest are concave."""

    def rule(node: Any, arguments: Sequence[Function]) -> Function:
        (x,) = arguments
        own = composed(CONCAVE, x.curvature, rises=rises, falls=not rises)
        rest = composed(CONCAVE, x.curvature, rises=not rises, falls=rises)
        return Function(UNKNOWN, own, rest, 0.0, high)

    return rule


def _softplus(node: Any, arguments: Sequence[Function]) -> Function:
    (x,) = arguments
    log_curvature = composed(CONCAVE, x.curvature, rises=True)
    return Function(composed(CONVEX, x.curvature, rises=True), log_curvature, low=0.0)


def _absolute(node: Any, arguments: Sequence[Function]) -> Function:
    (x,) = arguments
    return x if x.low >= 0.0 else Function(composed(CONVEX, x.curvature), low=0.0)


def _sign(node: Any, arguments: Sequence[Function]) -> Function:
    return NOTHING if arguments[0].log is None else Function.constant(1.0)


def _switch(node: Any, arguments: Sequence[Function]) -> Function:
    condition, one, two = arguments
    if condition.low >= 1.0:
        return one
    if condition.high <= 0.0:
        return two
    return NOTHING if condition.value is None else one.chosen(two, condition.value.astype(bool))


def _at_least(one: Function, two: Function) -> Function:
    """Return whether one number, which may be infinite, is at least another."""
    for each in (one, two):
        if not each.is_finite and (each.value is None or not each.low <= each.high):
            return _EITHER
    if one.low >= two.high:
        return _TRUE
    is_less = one.high < two.low or (one.high <= 0.0 and two.log is not None)
    return _FALSE if is_less else _EITHER


def _equal(node: Any, arguments: Sequence[Function]) -> Function:
    """Return whether numbers are equal: finite ones not to infinity, positive ones not to zero."""
    for one, two in (arguments, arguments[::-1]):
        is_infinite = one.value is not None and np.isinf(one.value).all()
        if two.is_finite and (is_infinite or (one.is_number(0.0) and two.log is not None)):
            return _FALSE
    return _EITHER


def _not(truth: Function) -> Function:
    return Function(low=1.0 - truth.high, high=1.0 - truth.low)


def _and(node: Any, arguments: Sequence[Function]) -> Function:
    if any(each.high <= 0.0 for each in arguments):
        return _FALSE
    left = [each for each in arguments if each.low < 1.0]
    if len(left) == 1:
        return left[0]
    return _EITHER if left else _TRUE


def _checked(node: Any, arguments: Sequence[Function]) -> Function:
    value, *conditions = arguments
    return value if all(each.low >= 1.0 for each in conditions) else NOTHING


def _shape(node: Any, arguments: Sequence[Function]) -> Function:
    shape = node.inputs[0].type.shape
    return NOTHING if None in shape else Function.constant(np.array(shape))


def _selected(node: Any, arguments: Sequence[Function]) -> Function:
    array, *index = arguments
    return array if all(each.value is not None for each in index) else NOTHING


def _joined(node: Any, arguments: Sequence[Function]) -> Function:
    first, *others = arguments[1:] if isinstance(node.op, Join) else arguments
    return reduce(Function.chosen, others, first)


def _reduced(node: Any, arguments: Sequence[Function]) -> Function:
    kind = type(node.op.scalar_op)
    if kind is ps.Add:
        return _added_up(arguments[0])
    return arguments[0] if kind in (ps.AND, ps.OR) else NOTHING


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


def _excess(node: Any, arguments: Sequence[Function]) -> Function:
    w, *others = arguments
    are_data = all(each.value is not None and each.low > 0.0 for each in others)
    return Function(composed(CONVEX, w.curvature), low=0.0) if are_data else NOTHING


# Rules that hold where all inputs, or an array, are finite numbers, and those that hold for all.
_OF_NUMBERS: dict[type, Rule] = {
    ps.Add: lambda node, arguments: reduce(add, arguments),
    ps.Sub: lambda node, arguments: arguments[0] + -arguments[1],
    ps.Mul: _product,
    ps.TrueDiv: _quotient,
    ps.Pow: _power,
    ps.Sqr: lambda node, arguments: arguments[0].to_power(2.0),
    ps.Sqrt: lambda node, arguments: arguments[0].to_power(0.5),
    ps.Neg: lambda node, arguments: -arguments[0],
    ps.Exp: _exp,
    ps.Log: lambda node, arguments: _log_of(arguments[0]),
    ps.Log1p: lambda node, arguments: _log_of(Function.constant(1.0) + arguments[0]),
    ps.Abs: _absolute,
    ps.Sign: _sign,
    ps.Reciprocal: lambda node, arguments: arguments[0].to_power(-1.0),
    ps.math.Sigmoid: _sigmoidal(1.0, rises=True),
    ps.math.Softplus: _softplus,
    ps.math.Erfc: _sigmoidal(2.0, rises=False),
    CheckAndRaise: _checked,
    DimShuffle: _first,
    ScalarFromTensor: _first,
    Reshape: _first,
    Shape: _shape,
    Alloc: _first,
    Split: _selected,
    Subtensor: _selected,
    AdvancedSubtensor: _selected,
    Join: _joined,
    MakeVector: _joined,
    CAReduce: _reduced,
    CumOp: _cumulative,
    Dot: _matrix_product,
    SolveBase: _solution,
    ExponentialExcess: _excess,
    BinomialExcess: _excess,
}


def _of_rows(node: Any, arguments: Sequence[Function]) -> Function:
    """Return what is known of a sum over rows on workers, from the rows that stand for all."""
    rows = node.op.rows
    inner, given = rows.likelihood, dict(zip(rows.likelihood.data, rows.stand_ins, strict=True))
    known = dict(zip(inner.parts, arguments, strict=True))
    return known_functions([], [inner.total], given, known)[0]


_OF_ANYTHING: dict[type, Rule] = {
    SumOverRows: _of_rows,
    ps.Identity: _first,
    ps.Second: lambda node, arguments: arguments[1],
    ps.Switch: _switch,
    ps.GE: lambda node, arguments: _at_least(arguments[0], arguments[1]),
    ps.LE: lambda node, arguments: _at_least(arguments[1], arguments[0]),
    ps.GT: lambda node, arguments: _not(_at_least(arguments[1], arguments[0])),
    ps.LT: lambda node, arguments: _not(_at_least(arguments[0], arguments[1])),
    ps.EQ: _equal,
    ps.IsNan: lambda node, arguments: _FALSE if arguments[0].is_finite else _EITHER,
    ps.AND: _and,
    ps.OR: lambda node, arguments: _not(_and(node, [_not(each) for each in arguments])),
}
