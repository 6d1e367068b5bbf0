"""Which posterior densities are log-concave, by rules for the operations of their graphs.

A log-concave density has a single mode, and neither spikes nor ridges beside it: a search for more
would find nothing. Generalised linear models with canonical links are examples, and normal models
and latent Gaussian processes with known scales. With unknown scales, such models are log-concave
given these.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from math import inf, prod
from typing import Any

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

from pm_evidence.targets.model.curvature import (
    AFFINE,
    CONCAVE,
    CONVEX,
    NOTHING,
    UNKNOWN,
    Function,
    composed,
)
from pm_evidence.targets.model.elementwise import Rule, of_elements
from pm_evidence.targets.model.excess import BinomialExcess, ExponentialExcess

__all__ = ["is_log_concave", "known_functions"]

# Largest number of elements of inputs at which products of exponentials are evaluated, without
# compiling, and the relative difference that is left to rounding.
_FEW, _PLAIN, _ROUNDING = 10, Mode("py", None), 1e-12


def is_log_concave(
    inputs: Sequence[Variable],
    log_density: Sequence[Variable],
    given: Mapping[Variable, Any] | None = None,
) -> bool:
    """Return whether all of some log densities are known to be concave and finite everywhere.

    Parameters
    ----------
    inputs : sequence of TensorVariable
        What the graphs depend on other than data, which may take all real values.
    log_density : sequence of scalar TensorVariable
        The graphs.
    given : mapping of TensorVariable to ndarray, optional
        Values of some of the inputs, for the log densities as functions of the others.

    Notes
    -----
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
    """Values of graphs of few inputs.

    Parameters
    ----------
    inputs : sequence of TensorVariable
        The inputs.
    given : mapping of TensorVariable to ndarray
        Values of those that are data.
    """

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


def _same(node: Any, arguments: Sequence[Function]) -> Function:
    return arguments[0]


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
