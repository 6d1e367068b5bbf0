"""Random draws of a graph in machine code, from one generator or from our own streams."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.discrete import DiscreteUniformRV
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.linalg import cholesky
from pytensor.tensor.random.basic import MvNormalRV, NormalRV, integers
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.random.type import RandomGeneratorType, random_generator_type

from pm_evidence.core.codegen.numba import cgutils, intrinsic, nb, njit, types, view_address
from pm_evidence.core.interrupts import interruptible
from pm_evidence.core.random import fill_normal
from pm_evidence.targets.compile import numba_graph
from pm_evidence.targets.compile.calls import assignments
from pm_evidence.targets.compile.rewrite import rewrite
from pm_evidence.targets.layout import Layout
from pm_evidence.targets.model.upstream import shape_of_draw


@interruptible()
def compile_draws(
    outputs: Sequence[Variable], layout: Layout
) -> Callable[[NDArray[np.float64], np.random.Generator], None] | None:
    """Compile random draws of some variables, jointly, as rows of one array."""
    outputs, shared, values = numba_graph.shared_to_inputs(outputs)
    threaded = on_one_generator(outputs)
    if threaded is None:
        return None
    outputs, generator, last = threaded
    outputs = [pt.cast(pt.as_tensor(v), "float64") for v in outputs]
    arguments = [pytensor.In(generator, mutable=True), *shared]
    jitted = numba_graph.jit(numba_graph.compile_graph(arguments, [last, *outputs]), values)
    if jitted.slow_ops:
        return None
    compiled = _loop(jitted, layout)
    arrays = jitted.arrays
    try:
        with numba_graph.without_numba_hints():
            compiled(np.empty((0, 1)), np.random.default_rng(0), *arrays)
    except nb.NumbaError:
        return None
    return lambda out, generator: compiled(out, generator, *arrays)


def _loop(jitted: numba_graph.Jitted, layout: Layout) -> Any:
    """Return the compiled loop that fills every row with one call of the jitted graph."""
    arguments = ", ".join(["generator", *(f"a{i}" for i in range(len(jitted.arrays)))])
    names = [f"value{i}" for i in range(len(layout.variables))]
    lines = [
        f"def draws(out, {arguments}):",
        "    for row in range(out.shape[0]):",
        f"        {', '.join(['generator', *names])} = inner({arguments})",
    ]
    for name, variable in zip(names, layout.variables, strict=True):
        writes = assignments(name, variable.shape, "out[row, ", variable.start)
        lines += [f"        {line}" for line in writes]
    # as a part of the loop, and not a separate function, it is optimised only once
    scope = {"inner": nb.njit(inline="always")(jitted.function.py_func)}
    loop = numba_graph.function_from_source(lines, "draws", scope, jitted.key_of(lines))
    return nb.njit(loop, nogil=True, cache=jitted.key is not None)


def on_one_generator(
    outputs: Sequence[Variable],
) -> tuple[list[Variable], Variable, Variable] | None:
    """Return graphs in which all draws use the same random generator, one after the other."""
    nodes = [node for node in io_toposort([], list(outputs)) if _generators(node)]
    if any(len(_generators(node)) != 1 or len(_successors(node)) != 1 for node in nodes):
        return None
    generator = current = random_generator_type("generator")

    def on_current(node: Any, inputs: list[Variable]) -> list[Variable] | None:
        nonlocal current
        if not _generators(node):
            return None
        inputs[_generators(node)[0]] = current
        if isinstance(node.op, DiscreteUniformRV):  # numba implements it as ``integers``
            *same, lower, upper = inputs
            bounds = (pt.cast(bound, "int64") for bound in (lower, upper + 1))
            new: list[Variable] = integers.make_node(*same, *bounds).outputs
        else:
            new = node.clone_with_new_inputs(inputs, strict=False).outputs
        current = new[node.outputs.index(*_successors(node))]
        return new

    return rewrite(outputs, on_current), generator, current


def _generators(node: Any) -> list[int]:
    """Return which inputs of a node are random generators."""
    return [i for i, v in enumerate(node.inputs) if isinstance(v.type, RandomGeneratorType)]


def _successors(node: Any) -> list[Variable]:
    """Return the outputs of a node that are its random generators after its draws."""
    update = getattr(node.op, "update", None)
    return list(update(node).values()) if update is not None else []


class StandardNormals(RNGConsumerOp):
    """A vector of standard normal draws; its generator has to be that of ``calls``.

    It advances the stream in place, which is safe if every generator is used only once.
    """

    __props__ = ()

    def make_node(self, rng: Variable, n: Variable) -> Apply:
        """Return the node that draws ``n`` of them."""
        return Apply(self, [rng, n], [rng.type(), pt.dvector()])

    def update(self, node: Apply) -> dict[Variable, Variable]:
        """Return the generator that replaces the one before the draws."""
        return {node.inputs[0]: node.outputs[0]}

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Draw."""
        rng, n = inputs
        outputs[0][0], outputs[1][0] = rng, rng.standard_normal(n)


def with_fast_normals(graphs: Sequence[Variable]) -> list[Variable]:
    """Return graphs whose normal and multivariate normal draws are scaled standard normals.

    A covariance that is the same for all particles is then decomposed only once.
    """
    numba_graph.implement_by(StandardNormals, _standard_normals, version=1)

    def scaled(node: Any, inputs: list[Variable]) -> tuple[Variable, Variable] | None:
        if not isinstance(node.op, NormalRV | MvNormalRV):
            return None
        successor, drawn = _scaled(node.op, *inputs)
        drawn = pt.cast(drawn, node.outputs[1].dtype)
        return successor, node.outputs[1].type.filter_variable(drawn, allow_convert=True)

    return rewrite(graphs, scaled)


def _scaled(
    op: Any, rng: Variable, size: Variable, mean: Variable, scale: Variable
) -> tuple[Variable, Variable]:
    shape = shape_of_draw(op, size, (mean, scale))
    n = pt.as_tensor(1, dtype="int64")
    for length in shape:
        n = n * length
    successor, z = StandardNormals()(rng, pt.cast(n, "int64"))
    z = z if len(shape) == 1 else z.reshape(shape)
    if isinstance(op, NormalRV):
        return successor, mean + scale * z
    factor = cholesky(scale)
    # elementwise, so that the sum of a draw does not depend on how many are drawn
    return successor, mean + (factor * z[..., None, :]).sum(axis=-1)


@intrinsic
def _state_address(typingctx: Any, generator: Any) -> Any:
    signature = types.int64(generator)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        whole = cgutils.create_struct_proxy(sig.args[0])(context, builder, value=args[0])
        bits_type = types.NumPyRandomBitGeneratorType("bit_generator")
        bits = cgutils.create_struct_proxy(bits_type)(context, builder, value=whole.bit_generator)
        return bits.state_address

    return signature, codegen


@njit(cache=False)
def _standard_normals(generator: Any, n: Any) -> Any:
    out = np.empty(n.item())
    fill_normal(nb.carray(view_address(_state_address(generator)), (4,), nb.uint64), out)
    return generator, out
