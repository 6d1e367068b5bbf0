"""The terms of a model's log density before they are summed: one array of a variable's elements."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import AND, GE, LE, Add, Cast, Exp, Identity, Mul, Neg, Second, Sub
from pytensor.scalar.math import Sigmoid, Softplus
from pytensor.tensor.basic import Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.linalg import SolveTriangular
from pytensor.tensor.math import All, Dot, Sum
from pytensor.tensor.shape import Shape, Shape_i

from pm_evidence.targets.compile.numpy_graph import inlined
from pm_evidence.targets.compile.rewrite import rewrite
from pm_evidence.targets.layout import Layout
from pm_evidence.targets.model.log_density import densities_of, joined
from pm_evidence.targets.model.log_scale import with_gamma_ratios
from pm_evidence.targets.model.upstream import in_double_precision, missing_constant
from pm_evidence.targets.model.vectorised import quietly
from pm_evidence.targets.plates.labels import MOVES


@dataclass(frozen=True, eq=False)
class Term:
    """A summand of the log density."""

    graph: Variable  # array whose sum is the summand, as a graph of ``Terms.parts``
    is_prior: bool  # whether it belongs to the log prior


@dataclass(frozen=True, eq=False)
class Terms:
    """All terms of a model, and the inputs that hold the values of its free variables."""

    parts: list[Variable]  # unconstrained values of the free variables, float64
    terms: list[Term]  # their sum is the log density
    values: dict[Variable, Variable]  # what the model's value variables are as graphs of ``parts``

    def of_model(self, model: pm.Model, graphs: list[Variable]) -> list[Variable]:
        """Return graphs of the model's random variables as graphs of ``parts``."""
        graphs = model.replace_rvs_by_values(graphs)
        return _rewritten(clone_replace(graphs, self.values, rebuild_strict=False))


def terms_of(model: pm.Model, layout: Layout) -> Terms:
    """Return the terms of a model."""
    parts, values = [], {}
    for value_var, variable in zip(model.value_vars, layout.variables, strict=True):
        part = pt.TensorType("float64", shape=variable.shape)(variable.name)
        parts.append(part)
        values[value_var] = part.astype(value_var.dtype)
    with quietly():
        arrays = _arrays(model)
        graphs = clone_replace([array for array, _ in arrays], values, rebuild_strict=False)
        graphs = _rewritten(in_double_precision(with_gamma_ratios(graphs)))
    terms = [
        Term(summand, is_prior)
        for (_, is_prior), graph in zip(arrays, graphs, strict=True)
        for summand in _summands(graph)
    ]
    return Terms(parts, terms, values)


def _arrays(model: pm.Model) -> list[tuple[Variable, bool]]:
    """Return graphs of the model's values, and whether they belong to the prior, of all terms."""
    usual, special = densities_of(model, model.basic_RVs)
    found = usual | special
    arrays = list[tuple[Variable, bool]]()
    for rvs, is_prior in ((model.free_RVs, True), (model.observed_RVs, False)):
        arrays += [(array, is_prior) for array in joined([found[rv] for rv in rvs])]
        if (constant := missing_constant(model, rvs)) is not None:
            arrays.append((pt.as_tensor(constant), is_prior))
    potentials = joined(model.replace_rvs_by_values(model.potentials))
    return arrays + [(potential, False) for potential in potentials]


def _rewritten(graphs: list[Variable]) -> list[Variable]:
    """Return graphs with operations written out, and checks made element by element."""
    return inlined(rewrite(inlined(graphs), _check_by_element))


def _check_by_element(node: Any, inputs: list[Variable]) -> list[Variable] | None:
    """Make a check of parameters minus infinity where it fails, element by element if possible."""
    if not isinstance(node.op, CheckParameterValue) or not node.op.can_be_replaced_by_ninf:
        return None
    expression, *conditions = inputs
    for condition in (c for one in conditions for c in _conditions(one) if not _is_certain(c)):
        extra = condition.type.ndim - expression.type.ndim
        if extra > 0:  # parameters of distributions of vectors
            condition = condition.all(axis=tuple(range(-extra, 0)))
        shapes = zip(condition.type.shape[::-1], expression.type.shape[::-1], strict=False)
        others = [-1 - k for k, (a, b) in enumerate(shapes) if a != 1 and (a is None or a != b)]
        if others:
            condition = condition.all(axis=others, keepdims=True)
        expression = pt.switch(condition, expression, -np.inf)
    return [expression]


def _conditions(condition: Variable) -> list[Variable]:
    """Return the conditions that all have to hold."""
    node = condition.owner
    if node is None:
        return [condition]
    scalar = getattr(node.op, "scalar_op", None)
    joins = isinstance(node.op, All | Join | MakeVector | ScalarFromTensor | TensorFromScalar)
    moved = isinstance(node.op, DimShuffle) and not node.inputs[0].type.ndim
    if joins or moved or isinstance(scalar, AND | Cast):
        return [c for v in node.inputs for c in _conditions(v)]
    return [condition]


def _is_certain(condition: Variable) -> bool:
    """Return whether a comparison with 0 or 1 holds for all arguments of an exponential or so."""
    node = condition.owner
    if node is None or not isinstance(node.op, Elemwise) or len(node.inputs) != 2:
        return False
    inner, bound = map(_bare, node.inputs)
    if inner.owner is None or not isinstance(inner.owner.op, Elemwise):
        return False
    if not (isinstance(bound, Constant) and bound.data.size == 1):
        return False
    function, number = inner.owner.op.scalar_op, bound.data.item()
    if isinstance(node.op.scalar_op, GE):
        return number <= 0 and isinstance(function, Exp | Sigmoid | Softplus)
    return isinstance(node.op.scalar_op, LE) and number >= 1 and isinstance(function, Sigmoid)


def _bare(variable: Variable) -> Variable:
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
    return variable


def _summands(graph: Variable) -> list[Variable]:
    """Return arrays whose sums add up to the sum of a graph."""
    node = graph.owner
    if node is None or isinstance(graph, Constant):
        return [graph]
    if isinstance(node.op, Sum):
        return _summands(node.inputs[0])
    if isinstance(node.op, Elemwise) and graph.type.ndim == 0:
        kind, inputs = node.op.scalar_op, node.inputs
        if isinstance(kind, Add):
            return [s for v in inputs for s in _summands(v)]
        if isinstance(kind, Sub):
            first, second = inputs
            return [*_summands(first), *(-s for s in _summands(second))]
        if isinstance(kind, Neg):
            return [-s for s in _summands(inputs[0])]
        if isinstance(kind, Mul):
            factors = [v for v in inputs if _is_number(v)]
            others = [v for v in inputs if v not in factors]
            if len(others) == 1:
                return [pt.mul(s, *factors) for s in _summands(others[0])]
    if isinstance(node.op, DimShuffle) and prod(s or 0 for s in graph.type.shape) == 1:
        return _summands(node.inputs[0])
    return [graph]


def _is_number(variable: Variable) -> bool:
    return isinstance(variable, Constant) and variable.type.ndim == 0


_SUMS = (ps.Add, ps.Sub, ps.Neg, Cast, Identity, Second)


def are_quadratic(graphs: Sequence[Variable], inputs: Collection[Variable]) -> bool:
    """Return whether all graphs are polynomials of at most second degree in some inputs."""
    degree: dict[Variable, float] = dict.fromkeys(inputs, 1.0)
    for node in io_toposort(list(inputs), list(graphs)):
        found = _degree(node, [degree.get(v, 0.0) for v in node.inputs])
        degree.update(dict.fromkeys(node.outputs, found))
    return all(degree.get(graph, 0.0) <= 2.0 for graph in graphs)


def _degree(node: Any, degrees: Sequence[float]) -> float:
    """Return the degree of the outputs of a node; infinite if they are no polynomials."""
    op, highest = node.op, max(degrees, default=0.0)
    if highest == 0.0 or isinstance(op, Shape | Shape_i):
        return 0.0
    if isinstance(op, Elemwise):
        return _of_scalars(op.scalar_op, node, degrees)
    if isinstance(op, Sum | Join | MakeVector | DimShuffle):
        return highest
    if isinstance(op, MOVES):
        return degrees[0] if not any(degrees[1:]) else inf
    core = op.core_op if isinstance(op, Blockwise) else op
    if isinstance(core, Dot):
        return sum(degrees)
    if isinstance(core, SolveTriangular) and not degrees[0]:
        return degrees[1]
    return inf


def _of_scalars(kind: Any, node: Any, degrees: Sequence[float]) -> float:
    if isinstance(kind, _SUMS):
        return max(degrees)
    if isinstance(kind, ps.Mul):
        return sum(degrees)
    if isinstance(kind, ps.Sqr):
        return 2 * degrees[0]
    if isinstance(kind, ps.TrueDiv) and not degrees[1]:
        return degrees[0]
    if isinstance(kind, ps.Switch) and not degrees[0]:
        return max(degrees)
    if isinstance(kind, ps.Pow):
        exponent = node.inputs[1]
        while exponent.owner is not None and isinstance(exponent.owner.op, DimShuffle):
            exponent = exponent.owner.inputs[0]
        if isinstance(exponent, Constant) and exponent.data.size == 1 and exponent.data in (1, 2):
            return float(exponent.data.item()) * degrees[0]
    return inf
