"""Ratios of gamma functions in log densities, without cancellation for large arguments.

The log density of a beta-binomial variable has the terms ``log G(a + k) - log G(a)``, with data
``k``. If the shape ``a`` is 1e17, their difference has no digits, although it is nearly
``k log(a)``. The density of a Student-t variable with many degrees of freedom is of the same kind.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar.math import GammaLn
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.symbolic import FusibleSymbolicOp

from pm_evidence.targets.compile.rewrite import rewrite

__all__ = ["log_gamma_ratio", "stirling_series", "with_gamma_ratios"]

# From here on Stirling's series with five terms is exact.
_MANY = 10.0

# A sign or factor, and what it belongs to; of sums of numbers this is None.
type _Term = tuple[float, Any]


class LogGammaRatio(FusibleSymbolicOp):
    """The operation of `log_gamma_ratio`."""

    def build_inner_graph(self, a: Any, k: Any) -> list[Variable]:
        """Return the graph of the result."""
        both_large = (a > _MANY) & (a + k > _MANY)
        # the gradient has to be finite in the branch that is not chosen
        base, step = pt.switch(both_large, a, _MANY), pt.switch(both_large, k, 0.0)
        end = base + step
        large = (base - 0.5) * pt.log1p(step / base) + step * (pt.log(end) - 1.0)
        large += stirling_series(end) - stirling_series(base)
        base, step = pt.switch(both_large, 1.0, a), pt.switch(both_large, 0.0, k)
        return [pt.switch(both_large, large, pt.gammaln(base + step) - pt.gammaln(base))]


def log_gamma_ratio(a: Any, k: Any) -> Variable:
    """Return ``log G(a + k) - log G(a)`` for positive ``a`` and ``a + k``."""
    return LogGammaRatio()(a, k)


def stirling_series(a: Any) -> Any:
    """Return ``log G(a) - (a - 1 / 2) log a + a - log(2 pi) / 2`` for ``a`` of 10 and more."""
    inverse = 1.0 / a
    square = inverse**2
    terms = 1 / 1260 - square * (1 / 1680 - square / 1188)
    return inverse * (1 / 12 - square * (1 / 360 - square * terms))


def with_gamma_ratios(outputs: Sequence[Variable], data: Iterable[Variable] = ()) -> list[Variable]:
    """Return graphs in which differences of two log gamma functions are single operations.

    These are those whose arguments differ by data, and are not data themselves.

    Parameters
    ----------
    outputs : sequence of Variable
        The graphs.
    data : iterable of Variable
        Inputs that are data, beside constants and shared variables.
    """
    return rewrite(outputs, partial(_with_ratios, frozenset(data)))


def _with_ratios(data: Set[Variable], node: Any, inputs: list[Variable]) -> list[Variable] | None:
    """Return the output of a sum in which ratios are single terms; None if it has none."""
    if _kind(node) not in (ps.Add, ps.Sub):
        return None
    (total,) = node.clone_with_new_inputs(inputs, strict=False).outputs
    terms, has_ratio = list(_terms(total)), False
    while (found := _pair(terms, data)) is not None:
        i, j, a, k = found
        ratio = (terms[i][0], log_gamma_ratio(a, k))
        terms = [term for at, term in enumerate(terms) if at not in (i, j)] + [ratio]
        has_ratio = True
    return [_total(terms)] if has_ratio else None


def _pair(terms: Sequence[_Term], data: Set[Variable]) -> tuple[int, int, Any, Any] | None:
    """Return the positions of ``log G(a + k)`` and ``-log G(a)`` among terms, ``a``, and ``k``."""
    gammas = [(i, sign, _argument(term)) for i, (sign, term) in enumerate(terms)]
    sums = [(i, sign, a, _linear(a)) for i, sign, a in gammas if a is not None]
    sums = [each for each in sums if not _is_data(each[-1], data)]
    for i, sign, _, above in sums:
        for j, other, a, below in sums:
            if sign == -other:
                every = {**above, **below}
                difference = {v: above.get(v, 0.0) - below.get(v, 0.0) for v in every}
                difference = {v: c for v, c in difference.items() if c != 0.0}
                if _is_data(difference, data):
                    return i, j, a, _total([(c, v) for v, c in difference.items()])
    return None


def _argument(graph: Any) -> Any:
    """Return the argument of a log gamma function; None of another graph."""
    return graph.owner.inputs[0] if _kind(graph.owner) is GammaLn else None


def _terms(graph: Any, sign: float = 1.0) -> Iterator[_Term]:
    """Return the terms of a sum with their signs."""
    graph = _unexpanded(graph)
    inputs = [] if graph.owner is None else graph.owner.inputs
    match _kind(graph.owner):
        case ps.Add:
            signed = [(sign, each) for each in inputs]
        case ps.Sub:
            signed = [(sign, inputs[0]), (-sign, inputs[1])]
        case ps.Neg:
            signed = [(-sign, inputs[0])]
        case _:
            yield sign, graph
            return
    for each, part in signed:
        yield from _terms(part, each)


def _linear(graph: Any) -> dict[Any, float]:
    """Return the coefficients of the variables in a sum; that of None is the sum of numbers."""
    found: dict[Any, float] = {}
    for sign, term in _terms(graph):
        factor, variable = _factor(term)
        inner = {None: 1.0} if variable is None else {variable: 1.0}
        if variable is not None and variable is not term:
            inner = _linear(variable)
        for each, c in inner.items():
            found[each] = found.get(each, 0.0) + sign * factor * c
    return found


def _factor(term: Any) -> _Term:
    """Return a term as a number times a variable; the variable is None if it is a number."""
    if (number := _number(term)) is not None:
        return number, None
    inputs = [] if term.owner is None else [_unexpanded(v) for v in term.owner.inputs]
    kind = _kind(term.owner)
    if kind is ps.TrueDiv and (number := _number(inputs[1])) is not None:
        return 1.0 / number, inputs[0]
    if kind is ps.Mul and len(inputs) == 2:
        for one, other in (inputs, inputs[::-1]):
            if (number := _number(one)) is not None:
                return number, other
    return 1.0, term


def _total(terms: Sequence[_Term]) -> Any:
    """Return the sum of terms."""
    parts = [pt.constant(c) if v is None else v if c == 1.0 else c * v for c, v in terms]
    return sum(parts[1:], parts[0]) if parts else pt.constant(0.0)


def _number(graph: Any) -> float | None:
    if isinstance(graph, Constant) and np.size(graph.data) == 1:
        return float(np.asarray(graph.data).item())
    return None


def _is_data(linear: Mapping[Any, float], data: Set[Variable]) -> bool:
    """Return whether a sum depends on data only."""
    variables = [variable for variable in linear if variable is not None]
    roots = (v for v in ancestors(variables) if v.owner is None)
    return all(isinstance(root, Constant | SharedVariable) or root in data for root in roots)


def _unexpanded(graph: Any) -> Any:
    """Return a graph without dimensions in front of its own, which sums add by broadcasting."""
    op = None if graph.owner is None else graph.owner.op
    if isinstance(op, DimShuffle):
        inner = graph.owner.inputs[0]
        expanded = ("x",) * (graph.type.ndim - inner.type.ndim) + tuple(range(inner.type.ndim))
        if op.new_order == expanded:
            return inner
    return graph


def _kind(node: Any) -> type | None:
    return type(node.op.scalar_op) if node is not None and isinstance(node.op, Elemwise) else None
