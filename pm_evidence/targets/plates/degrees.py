"""Whether graphs are polynomials of second degree in some of their inputs."""

from collections.abc import Collection, Sequence
from math import inf
from typing import Any

import pytensor.scalar as ps
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import Cast, Identity, Second
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.linalg import SolveTriangular
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.shape import Shape, Shape_i

from pm_evidence.targets.plates.labels import MOVES

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
