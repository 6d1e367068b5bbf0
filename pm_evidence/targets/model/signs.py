"""Whether a model multiplies some variables by others where both factors may have either sign."""

from collections.abc import Collection, Sequence
from itertools import permutations
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import Mul
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot

from pm_evidence.targets.model.concavity import known_functions

__all__ = ["have_products_of_any_sign"]


def have_products_of_any_sign(
    inputs: Sequence[Variable], graphs: Sequence[Variable], some: Collection[Variable]
) -> bool:
    """Return whether functions of some inputs are multiplied by functions of the others.

    Only products are counted of which no factor is known to have one sign. The density may then be
    the same, or nearly so, if both factors change their signs, so that it has several peaks.

    Parameters
    ----------
    inputs : sequence of TensorVariable
        What the graphs depend on other than data, which may take all real values.
    graphs : sequence of TensorVariable
        The graphs.
    some : collection of TensorVariable
        Some of the inputs.
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
