"""Random draws of a graph, many at once, by NumPy; nothing is compiled."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.custom import CustomDistRV
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.rewriting.basic import MergeOptimizer
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType

from pm_evidence.core.interrupts import interruptible
from pm_evidence.targets.compile.numba_graph import shared_to_inputs
from pm_evidence.targets.compile.numpy_graph import NotBatchedError, numpy_function
from pm_evidence.targets.compile.rewrite import inline_symbolic

# Returns so many joint draws of some variables, each of shape ``(n, ...)``.
type Draw = Callable[[int, np.random.SeedSequence], list[NDArray[Any]]]


@interruptible()
def numpy_draws(outputs: Sequence[Variable]) -> Draw:
    """Return a function that draws some variables jointly."""
    # one operation may be there twice, because graphs were cloned: both are the same draw
    fgraph = FunctionGraph(outputs=inline_symbolic([pt.as_tensor(v) for v in outputs]))
    MergeOptimizer().rewrite(fgraph)
    graphs = list(fgraph.outputs)
    generators = _generators_of(graphs)
    graphs, shared, values = shared_to_inputs(graphs)
    n, fresh = pt.lscalar(), {old: old.type() for old in generators}
    try:
        many = clone_replace(_together(graphs, n), fresh, rebuild_strict=False)
        program = numpy_function([n, *fresh.values(), *shared], many)
    except (NotImplementedError, ValueError, TypeError) as error:
        raise NotBatchedError(str(error)) from error

    same_for_all = [new.type.ndim == old.type.ndim for new, old in zip(many, graphs, strict=True)]

    def draw(n: int, seed: np.random.SeedSequence) -> list[NDArray[Any]]:
        rngs = [np.random.Generator(np.random.PCG64(s)) for s in seed.spawn(len(generators))]
        found = program(np.int64(n), *rngs, *values)
        return [
            np.broadcast_to(value, (n, *np.shape(value))) if same else value
            for value, same in zip(found, same_for_all, strict=True)
        ]

    return draw


def _together(graphs: Sequence[Variable], n: Variable) -> list[Variable]:
    """Return graphs of ``n`` independent draws, along a new first dimension."""
    many, advanced = dict[Variable, Variable](), dict[Variable, Variable]()
    for node in io_toposort([], list(graphs)):
        if isinstance(node.op, RandomVariable):
            rng, _, *parameters = node.inputs
            draw, batch_ndim = node.outputs[1], node.op.batch_ndim(node)
            core = zip(parameters, node.op.ndims_params, strict=True)
            missing = [batch_ndim - (p.type.ndim - ndim) for p, ndim in core]
            expanded = [
                _with_axes(old, new, k)
                for old, new, k in zip(parameters, _of_many(parameters, many), missing, strict=True)
            ]
            size = [n, *(draw.shape[k] for k in range(batch_ndim))]
            after, drawn = node.op.make_node(advanced.get(rng, rng), size, *expanded).outputs
            advanced[node.outputs[0]], many[draw] = after, drawn
    return _of_many(graphs, many)


def _of_many(graphs: Sequence[Variable], many: Mapping[Variable, Variable]) -> list[Variable]:
    """Return graphs of draws for many draws; those that depend on none are left as they are."""
    used = set(ancestors(graphs)) & set(many)
    return list(vectorize_graph(list(graphs), {v: many[v] for v in used})) if used else list(graphs)


def _with_axes(old: Variable, new: Variable, n_axes: int) -> Variable:
    """Return a parameter of many draws with the dimensions that it has in common with others."""
    if new.type.ndim == old.type.ndim or not n_axes:
        return new
    return pt.expand_dims(new, tuple(range(1, 1 + n_axes)))


def _generators_of(graphs: Sequence[Variable]) -> list[Variable]:
    """Return the random generators, each of which serves one operation after the other."""
    found, used = list[Variable](), set[Variable]()
    for node in io_toposort([], list(graphs)):
        own = [v for v in node.inputs if isinstance(v.type, RandomGeneratorType)]
        if not own:
            continue
        if not isinstance(node.op, RandomVariable) or isinstance(node.op, CustomDistRV):
            raise NotBatchedError(f"{node.op} is drawn one by one")
        if own[0] in used:
            raise NotBatchedError(f"the random generator of {node.op} serves others as well")
        used.update(own)
        if isinstance(own[0], SharedVariable):
            found += own
        elif own[0].owner is None or not isinstance(own[0].owner.op, RandomVariable):
            raise NotBatchedError(f"the random generator of {node.op} is made in the graph")
    return found
