"""Graphs with named arguments as C functions that are called by address."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np
import pytensor
from llvmlite import ir
from numpy.typing import NDArray
from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.basic import Variable
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType

from pm_evidence.core.codegen.numba import (
    Later,
    built,
    cfunc,
    cgutils,
    exception_pending,
    frame_signature,
    intrinsic,
    nb,
    njit,
    types,
    view_address,
)
from pm_evidence.core.interrupts import interruptible
from pm_evidence.core.random import next_word
from pm_evidence.targets.compile import numba_graph
from pm_evidence.targets.model.upstream import with_asserted_indices


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

    These are loops, because numba would compile its error message about shapes as well for an
    assignment of whole rows, which takes seconds.
    """
    step = " " * 4
    if not shape:
        return [f"{target}{start}] = {name}.item()"]
    indices = [f"i{axis}" for axis in range(len(shape))]
    loops = [
        f"{step * axis}for {index} in range({length}):"
        for axis, (index, length) in enumerate(zip(indices, shape, strict=True))
    ]
    place = "0"
    for index, length in zip(indices, shape, strict=True):
        place = f"({place} * {length} + {index})"
    element = f"{name}[{', '.join(indices)}]"
    return [*loops, f"{step * len(shape)}{target}{start} + {place}] = {element}"]


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
    c_function = _c_function(jitted, inputs, written, draws=generator is not None)
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


def _c_function(
    jitted: numba_graph.Jitted,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    *,
    draws: bool,
) -> Any:
    """Wrap a jitted function into the C signature of a call with a frame."""
    body, scope = _body(jitted, inputs, outputs, draws=draws)
    lines = jitted.guarded("call(frame_)", body)
    function = numba_graph.function_from_source(lines, "call", scope, jitted.key_of(lines))
    with numba_graph.without_numba_hints():
        return cfunc(frame_signature(), function, cache=jitted.key is not None)


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
        "exception_pending": exception_pending,
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
