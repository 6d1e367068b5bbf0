"""Rewriting of PyTensor graphs: node by node, for many particles, in double precision."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.exceptions import NotConstantValueError
from pymc.logprob.utils import CheckParameterValue
from pymc.pytensorf import constant_fold, resolve_shapes
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.scan.op import Scan
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType

from pm_evidence.targets.layout import Layout

_flags = RLock()


@contextmanager
def with_flags(**flags: Any) -> Iterator[None]:
    """Change settings of PyTensor for a while; use as a context, or as a decorator."""
    # all threads share the settings: with a lock, the user's own are restored at the end
    with _flags, pytensor.config.change_flags(**flags):
        yield


def without_traces() -> Any:
    """Do not look up where each node of a graph was made, which nothing of the package reads."""
    return with_flags(traceback__limit=0)


def rewrite(
    outputs: Sequence[Variable],
    replace: Callable[[Any, list[Variable]], Sequence[Variable] | None],
) -> list[Variable]:
    """Return graphs in which some nodes are replaced; the given graphs are not changed."""
    replacements: dict[Variable, Variable] = {}
    for node in io_toposort([], list(outputs)):
        inputs = [replacements.get(v, v) for v in node.inputs]
        new = replace(node, inputs)
        if new is None:
            if all(now is before for now, before in zip(inputs, node.inputs, strict=True)):
                continue
            new = node.clone_with_new_inputs(inputs, strict=False).outputs
        replacements.update(zip(node.outputs, new, strict=True))
    return [replacements.get(v, v) for v in outputs]


def loop_with(change: Callable[[list[Variable]], list[Variable]], op: Scan) -> Scan:
    """Return a loop whose steps have other results; the same loop if nothing has changed."""
    inner = op.fgraph.unfreeze()
    outputs = change(inner.outputs)
    if all(new is old for new, old in zip(outputs, inner.outputs, strict=True)):
        return op
    return Scan(
        inner.inputs,
        outputs,
        op.info,
        mode=op.mode,
        truncate_gradient=op.truncate_gradient,
        name=op.name,
        profile=op.profile,
        allow_gc=op.allow_gc,
        strict=op.strict,
    )


def over_particles(graph: Variable, replace: Mapping[Variable, Variable], n: Variable) -> Variable:
    """Return a graph of one particle for ``n`` particles, along a new first dimension.

    Every random draw in it is made independently for every particle, even if it depends on none of
    ``replace``.
    """
    (graph,) = inline_symbolic([graph])
    replace = {one: many for one, many in replace.items() if one in set(ancestors([graph]))}
    replace.update(_independent_draws(graph, set(replace), n))
    many = vectorize_graph(graph, replace) if replace else graph
    if many.type.ndim == graph.type.ndim:
        many = pt.alloc(many, n, *(many.shape[k] for k in range(many.type.ndim)))
    return many


def _independent_draws(
    graph: Variable, batched: set[Variable], n: Variable
) -> dict[Variable, Variable]:
    """Return the draws that depend on nothing batched, and the draws that replace them."""
    batched = set(batched)
    result = {}
    for node in io_toposort([], [graph]):
        if any(v in batched for v in node.inputs):
            batched.update(node.outputs)
        elif isinstance(node.op, RandomVariable):
            rng, _, *parameters = node.inputs
            draw = node.outputs[1]
            size = [n, *(draw.shape[k] for k in range(node.op.batch_ndim(node)))]
            # a copy, as PyTensor's batched indexing expects an operation with one output
            result[draw] = node.op.make_node(rng, size, *parameters).outputs[1].copy()
            batched.update(node.outputs)
    return result


def inline_symbolic(graphs: Sequence[Variable]) -> list[Variable]:
    """Return graphs in which distributions made of others (mixtures, ...) are written out."""
    graphs = list(graphs)
    while True:
        replacements: dict[Variable, Variable] = {}
        for node in io_toposort([], graphs):
            if isinstance(node.op, SymbolicRandomVariable):
                replacements.update(zip(node.outputs, inline_ofg_node(node), strict=True))
                break  # one at a time, because distributions may be nested
        if not replacements:
            return graphs
        graphs = list(clone_replace(graphs, replacements, rebuild_strict=False))


def checks_to_minus_infinity(log_density: Variable) -> Variable:
    """Return the log density of one particle, ``-inf`` if a parameter is out of range.

    PyTensor itself would join the checks of a batch, and one particle out of range would give an
    error for all of them.
    """
    return rewrite([log_density], without_check)[0]


def without_check(node: Any, inputs: list[Variable]) -> list[Variable] | None:
    """Return minus infinity where a check of parameters fails, as PyMC does on compiling."""
    if not isinstance(node.op, CheckParameterValue) or not node.op.can_be_replaced_by_ninf:
        return None
    expression, *conditions = inputs
    for condition in conditions:
        expression = pt.switch(condition, expression, -np.inf)
    return [expression]


def split_parameters_only(
    graphs: Sequence[Variable], varying: Iterable[Variable]
) -> tuple[list[Variable], Variable, Variable]:
    """Split graphs into a part that is computed once and a part that varies."""
    edge = _edge(graphs, set(varying))
    values = [pt.as_tensor(v) for v in edge] or [pt.zeros(1)]
    layout = Layout.of(evaluated_shapes(values), dtypes=[v.dtype for v in values])
    parameters = pt.TensorType("float64", shape=(layout.size,))("parameters")
    replacements = {
        variable: variable.type.filter_variable(part, allow_convert=True)
        for variable, part in zip(edge, layout.split_graph(parameters), strict=False)
    }
    precomputed = pt.concatenate([pt.cast(v.ravel(), "float64") for v in values])
    return clone_replace(list(graphs), replacements), parameters, precomputed


def _edge(graphs: Sequence[Variable], varying: set[Variable]) -> list[Variable]:
    """Return the last variables that do not vary on each path to the graphs."""
    changeable = set(varying)
    edge: dict[Variable, None] = {}
    constant: set[Variable] = set()
    for node in io_toposort([], graphs):
        inputs = node.inputs
        if any(v in changeable or isinstance(v.type, RandomGeneratorType) for v in inputs):
            changeable.update(node.outputs)
            edge.update(dict.fromkeys(v for v in inputs if v not in changeable))
        elif all(isinstance(v, Constant) or v in constant for v in inputs):
            constant.update(node.outputs)  # PyTensor folds it
    edge.update(dict.fromkeys(v for v in graphs if v not in changeable))
    return [
        v
        for v in edge
        if isinstance(v.type, pt.TensorType)
        and not isinstance(v, Constant | SharedVariable)
        and v not in constant
    ]


def evaluated_shapes(variables: Sequence[Variable]) -> list[tuple[int, ...]]:
    """Return the shapes of variables whose shapes depend on data alone."""
    shapes = [v.shape for v in variables]
    try:
        folded = constant_fold(shapes)
    except NotConstantValueError:
        folded = pm.compile([], resolve_shapes(shapes), mode="FAST_COMPILE")()
    return [tuple(int(n) for n in shape) for shape in folded]


def depends_on(graph: Variable, variable: Variable) -> bool:
    """Return whether a variable is part of a graph."""
    return variable in set(ancestors([graph]))
