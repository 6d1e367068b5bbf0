"""Graphs with named arguments as C functions that are called by address, and their random draws."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from llvmlite import ir
from numpy.typing import NDArray
from pymc.distributions.discrete import DiscreteUniformRV
from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.linalg import cholesky
from pytensor.tensor.random.basic import MvNormalRV, NormalRV, integers
from pytensor.tensor.random.op import RandomVariable, RNGConsumerOp
from pytensor.tensor.random.type import RandomGeneratorType, random_generator_type

from pm_evidence.core.codegen.numba import (
    Later,
    built,
    cgutils,
    frame_signature,
    intrinsic,
    nb,
    njit,
    types,
    view_address,
)
from pm_evidence.core.interrupts import interruptible
from pm_evidence.core.random import fill_normal, next_word
from pm_evidence.targets.compile import numba_graph
from pm_evidence.targets.compile.rewrite import rewrite
from pm_evidence.targets.model.upstream import shape_of_draw, with_asserted_indices


def views_of_arrays(
    arrays: Sequence[NDArray[Any]], data: str, position: int = 0
) -> tuple[list[str], list[str], dict[str, Any], int]:
    """Return the lines that create arrays from their addresses and shapes."""
    lines, names = [], []
    scope: dict[str, Any] = {"carray": nb.carray, "view_address": view_address}
    for i, array in enumerate(arrays):
        scope[f"type{i}"] = nb.from_dtype(array.dtype)
        shape = "".join(f"{data}[{position + 1 + k}], " for k in range(array.ndim))
        lines.append(f"a{i} = carray(view_address({data}[{position}]), ({shape}), type{i})")
        names.append(f"a{i}")
        position += 1 + array.ndim
    return lines, names, scope, position


def assignments(name: str, shape: tuple[int, ...], target: str, start: int) -> list[str]:
    """Return the lines that copy an array into a row from position ``start`` on.

    This is a loop, because numba would compile its error message about shapes as well for an
    assignment of whole rows, which takes seconds.
    """
    if not shape:
        return [f"{target}{start}] = {name}.item()"]
    return [f"for k, value in enumerate({name}.flat):", f"    {target}{start} + k] = value"]


GENERATOR_SLOTS = 4

_generator_type = Later(lambda: types.NumPyRandomGeneratorType("NumPyRandomGeneratorType"))


@dataclass(frozen=True)
class CompiledCall:
    """A function in machine code that is called with a frame."""

    address: int  # address of a function with ``core.codegen.numba.frame_signature``
    n_slots: int  # number of slots that the caller fills
    # Address and shape of every other array that the function reads, one after the other
    data: NDArray[np.int64]
    # Operations without a numba implementation: correct, but slow and under Python's lock
    slow_ops: tuple[str, ...] = ()
    _keep_alive: tuple[Any, ...] = field(default=(), repr=False)

    def frame(self) -> NDArray[np.int64]:
        """Return a frame that already holds the function's own data."""
        return np.concatenate([np.zeros(self.n_slots, np.int64), self.data])


@interruptible()
def compile_call(
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    generator: Variable | None = None,
    successor: Variable | None = None,
) -> CompiledCall:
    """Compile graphs of some inputs into a function that is called with a frame."""
    outputs = with_asserted_indices([*outputs, *([successor] if successor else [])])
    outputs, shared, values = numba_graph.shared_to_inputs(outputs)
    arguments = [*inputs, *shared]
    if generator is not None:
        arguments = [pytensor.In(generator, mutable=True), *arguments]
    function = numba_graph.compile_graph(arguments, outputs)
    jitted = numba_graph.jit(function, values)
    if generator is not None:
        slow_ops = {*jitted.slow_ops, *_copies_of_generators(function)}
        jitted = replace(jitted, slow_ops=tuple(sorted(slow_ops)))
    if jitted.slow_ops:
        jitted = replace(jitted, key=None)
    written = outputs[: len(outputs) - (successor is not None)]
    body, scope = _body(jitted, inputs, written, draws=generator is not None)
    c_function = jitted.c_function(frame_signature(), "frame_", body, scope)
    n_slots = GENERATOR_SLOTS + len(inputs) + len(written)
    data, kept = numba_graph.addresses_of(jitted.arrays), (c_function, jitted.arrays)
    return CompiledCall(c_function.address, n_slots, data, jitted.slow_ops, kept)


def _copies_of_generators(function: Any) -> list[str]:
    """Return operations that copy their generator, which numba does in Python."""
    names = []
    for node in function.maker.fgraph.toposort():
        if any(isinstance(v.type, RandomGeneratorType) for v in node.inputs):
            op = getattr(node.op, "fgraph", None)
            ops = [n.op for n in op.apply_nodes] if op is not None else [node.op]
            names += [
                str(op)
                for op in ops
                if isinstance(op, DeepCopyOp) or (isinstance(op, RandomVariable) and not op.inplace)
            ]
    return names


def _body(
    jitted: numba_graph.Jitted,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    *,
    draws: bool,
) -> tuple[list[str], dict[str, Any]]:
    """Return the lines that call the jitted function, and the global names that they use."""
    first_output = GENERATOR_SLOTS + len(inputs)
    first_array = first_output + len(outputs)
    views, arrays, scope, n_words = views_of_arrays(jitted.arrays, "frame", first_array)
    scope |= {
        "array": np.array,
        "generator_at": _python_generator_at if jitted.slow_ops else _generator_at,
        "float64": nb.float64,
        "inner": jitted.function,
    }
    reads, names = [], []
    if draws:
        reads.append("generator = generator_at(frame[0], frame[1], frame[2], frame[3])")
        names.append("generator")
    for i, variable in enumerate(inputs):
        position = GENERATOR_SLOTS + i
        if variable.type.ndim == 0 and variable.type.dtype.startswith("int"):
            if variable.name == "n":
                reads.insert(0, f"n = frame[{position}]")
            reads.append(f"x{i} = array(frame[{position}])")
        else:
            reads.append(f"x{i} = {_view(variable, position)}")
        names.append(f"x{i}")
    results = [f"y{i}" for i in range(len(outputs))]
    writes = [
        f"{_view(variable, first_output + i)}[...] = y{i}" for i, variable in enumerate(outputs)
    ]
    results += ["generator"] if draws else []
    call = f"inner({', '.join([*names, *arrays])})"
    body = [
        f"frame = carray(frame_, ({n_words},))",
        *reads,
        *views,
        f"{', '.join(results)}{',' * (len(results) == 1)} = {call}",
        *writes,
    ]
    return body, scope


def _view(variable: Variable, position: int) -> str:
    shape = "".join("n, " if size is None else f"{size}, " for size in variable.type.shape)
    return f"carray(view_address(frame[{position}]), ({shape}), float64)"


@intrinsic
def _generator_at(typingctx: Any, state: Any, uint64: Any, uint32: Any, double: Any) -> Any:
    """Return a NumPy generator over the stream at an address, for use in compiled code only."""
    bit_generator = import_module("numba.np.random.generator_core")._bit_gen_type
    generator_type = built(_generator_type)
    signature = generator_type(types.int64, types.int64, types.int64, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = cgutils.create_struct_proxy(bit_generator)(context, builder)
        bits.state_address = bits.state = args[0]
        bits.fnptr_next_uint64, bits.fnptr_next_uint32, bits.fnptr_next_double = args[1:]
        bits.bit_generator = ir.Constant(context.get_value_type(types.uintp), 0)
        # it has no owner, so it must never reach Python
        bits.parent = cgutils.get_null_value(bits.parent.type)
        generator = cgutils.create_struct_proxy(generator_type)(context, builder)
        generator.bit_generator = bits._getvalue()
        generator.meminfo = cgutils.get_null_value(generator.meminfo.type)
        generator.parent = cgutils.get_null_value(generator.parent.type)
        return generator._getvalue()

    return signature, codegen


def _new_generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


@njit(cache=False, error_model="python")
def _python_generator_at(state: Any, uint64: Any, uint32: Any, double: Any) -> Any:
    """Return a generator that operations in Python can use, seeded from the stream."""
    seed = next_word(nb.carray(view_address(state), (4,), nb.uint64))
    with nb.objmode(generator=_generator_type):
        generator = _new_generator(seed)
    return generator


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
