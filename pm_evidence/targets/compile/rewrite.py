"""Rewriting of PyTensor graphs, node by node, from the inputs to the outputs."""

from collections.abc import Callable, Sequence
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import io_toposort
from pytensor.scan.op import Scan

__all__ = ["loop_with", "rewrite"]


def rewrite(
    outputs: Sequence[Variable],
    replace: Callable[[Any, list[Variable]], Sequence[Variable] | None],
) -> list[Variable]:
    """Return graphs in which some nodes are replaced; the given graphs are not changed.

    Parameters
    ----------
    outputs : sequence of Variable
        The graphs.
    replace : callable
        Called with every node, after those that it depends on, and with the list of the node's
        inputs in the new graphs, which it may change. Returns the variables that replace the node's
        outputs, or None to keep the operation.

    Returns
    -------
    list of Variable
        The new graphs, in the order of ``outputs``. Nodes that are kept with unchanged inputs are
        shared with the given graphs.
    """
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
    """Return a loop whose steps have other results; the same loop if nothing has changed.

    Parameters
    ----------
    change : callable
        Returns the graphs that replace the outputs of a step.
    op : Scan
        The loop.
    """
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
