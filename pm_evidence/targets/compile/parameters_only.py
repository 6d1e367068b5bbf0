"""Parts that depend only on parameters are taken out of graphs that are run many times."""

from collections.abc import Iterable, Sequence

import pymc as pm
import pytensor.tensor as pt
from pymc.exceptions import NotConstantValueError
from pymc.pytensorf import constant_fold, resolve_shapes
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.random.type import RandomGeneratorType

from pm_evidence.targets.layout import Layout

__all__ = ["depends_on", "evaluated_shapes", "split_parameters_only"]


def split_parameters_only(
    graphs: Sequence[Variable], varying: Iterable[Variable]
) -> tuple[list[Variable], Variable, Variable]:
    """Split graphs into a part that is computed once and a part that varies.

    Parameters
    ----------
    graphs : sequence of TensorVariable
        Graphs that are run many times while ``varying`` changes.
    varying : iterable of Variable
        Their inputs that change. All that depends on random draws varies as well.

    Returns
    -------
    graphs : list of TensorVariable
        The same graphs, as functions of ``varying`` and of ``parameters``.
    parameters : TensorVariable, shape (n_parameters,)
        Input that carries all that was taken out, in float64.
    precomputed : TensorVariable, shape (n_parameters,)
        Graph of its value.
    """
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
