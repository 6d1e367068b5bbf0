"""From PyTensor graphs of named arguments to C functions that are called by address.

A function is called with a *frame*, an array of words. Slots 0 to 3 are for a random generator:
the address of the four words of its stream, and those of three functions that draw from it.
Then comes a slot for every input and for every output, in order, and then what the function
reads besides. An integer scalar lies in its slot itself; the slot of anything else holds its
address. The leading dimension of an argument may be left open: it is the input named ``n``.

As in ``compile_numba``, whose private API of PyTensor and numba this module shares, machine code
is kept on disk in PyTensor's cache, and data are passed by address.
"""

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numba as nb
import numpy as np
import pytensor
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.random.generator_core import _bit_gen_type
from numpy.typing import NDArray
from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.basic import Variable
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType

from pm_evidence.core.codegen.native import FRAME_SIGNATURE, exception_pending, view_address
from pm_evidence.core.interrupts import interruptible
from pm_evidence.core.random import next_word
from pm_evidence.targets.compile.density import _compile, _jit, _quietly, _shared_to_inputs
from pm_evidence.targets.compile.implementations import numba_implementations
from pm_evidence.targets.model.index_checks import with_asserted_indices

__all__ = ["GENERATOR_SLOTS", "CompiledCall", "compile_call", "perform_quietly"]

GENERATOR_SLOTS = 4

_generator_type = types.NumPyRandomGeneratorType("NumPyRandomGeneratorType")


@dataclass(frozen=True)
class CompiledCall:
    """A function in machine code that is called with a frame.

    Parameters
    ----------
    address : int
        Address of a function with ``core.native.FRAME_SIGNATURE``.
    n_slots : int
        Number of slots that the caller fills.
    data : ndarray of int64
        Address and shape of every array that the function reads besides, one after the other.
    slow_ops : tuple of str
        Operations without a numba implementation: right, but slow and under Python's lock.
    """

    address: int
    n_slots: int
    data: NDArray[np.int64]
    slow_ops: tuple[str, ...] = ()
    _keep_alive: tuple[Any, ...] = field(default=(), repr=False)

    def frame(self) -> NDArray[np.int64]:
        """Return a frame with the function's own data in place."""
        return np.concatenate([np.zeros(self.n_slots, np.int64), self.data])


@interruptible()
def compile_call(
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    generator: Variable | None = None,
    successor: Variable | None = None,
) -> CompiledCall:
    """Compile graphs of some inputs into a function that is called with a frame.

    Parameters
    ----------
    inputs : sequence of TensorVariable
        Integer scalars, and arrays whose static shape is known but for the leading dimension.
    outputs : sequence of TensorVariable
        Arrays of float64, of such shapes as well; the function writes them.
    generator : RandomGeneratorType variable, optional
        What all draws in the graphs start from.
    successor : RandomGeneratorType variable, optional
        The generator after all draws.
    """
    outputs = with_asserted_indices([*outputs, *([successor] if successor else [])])
    outputs, shared, values = _shared_to_inputs(outputs)
    n_outputs = len(outputs) - (successor is not None)
    arguments = [*inputs, *shared]
    if generator is not None:
        arguments = [pytensor.In(generator, mutable=True), *arguments]
    function = _compile(arguments, outputs)
    inner, arrays, key, slow_ops = _jit(function, values)
    if generator is not None:
        slow_ops = tuple(sorted({*slow_ops, *_copies_of_generators(function)}))
    source, scope = _source(inputs, outputs[:n_outputs], arrays, generator is not None, slow_ops)
    scope["inner"] = inner
    if slow_ops:
        key = None
    digest = hashlib.sha256(f"{key}{source}{[a.dtype.str for a in arrays]}".encode()).hexdigest()
    wrapper = compile_numba_function_src(
        source, "call", global_env=scope, cache_key=digest if key else None
    )
    with _quietly():
        c_function = nb.cfunc(FRAME_SIGNATURE, cache=key is not None)(wrapper)
    data = np.array([n for a in arrays for n in (a.ctypes.data, *a.shape)], np.int64)
    n_slots = GENERATOR_SLOTS + len(inputs) + n_outputs
    return CompiledCall(c_function.address, n_slots, data, slow_ops, (c_function, arrays))


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


def _source(
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    arrays: Sequence[NDArray[Any]],
    draws: bool,
    slow_ops: Sequence[str],
) -> tuple[str, dict[str, Any]]:
    """Return the source of the C function around ``inner``, and the names that it uses."""
    scope: dict[str, Any] = {
        "__name__": __name__,  # numba's cache looks the function's module up
        "array": np.array,
        "carray": nb.carray,
        "view_address": view_address,
        "exception_pending": exception_pending,
        "generator_at": _python_generator_at if slow_ops else _generator_at,
        "float64": nb.float64,
    }
    position = GENERATOR_SLOTS
    reads, names, writes, results = [], [], [], []
    if draws:
        reads.append("generator = generator_at(frame[0], frame[1], frame[2], frame[3])")
        names.append("generator")
    for i, variable in enumerate(inputs):
        if variable.type.ndim == 0 and variable.type.dtype.startswith("int"):
            if variable.name == "n":
                reads.insert(0, f"n = frame[{position}]")
            reads.append(f"x{i} = array(frame[{position}])")
        else:
            reads.append(f"x{i} = {_view(variable, position)}")
        names.append(f"x{i}")
        position += 1
    for i, variable in enumerate(outputs):
        writes.append(f"{_view(variable, position)}[...] = y{i}")
        results.append(f"y{i}")
        position += 1
    for i, data in enumerate(arrays):
        scope[f"type{i}"] = nb.from_dtype(data.dtype)
        shape = "".join(f"frame[{position + 1 + k}], " for k in range(data.ndim))
        reads.append(f"a{i} = carray(view_address(frame[{position}]), ({shape}), type{i})")
        names.append(f"a{i}")
        position += 1 + data.ndim
    if draws:
        results.append("generator")
    body = [
        f"frame = carray(frame_, ({position},))",
        *reads,
        f"{', '.join(results)}{',' * (len(results) == 1)} = inner({', '.join(names)})",
        *writes,
    ]
    look = ["    if exception_pending():", "        return 1"] if slow_ops else []
    lines = ["def call(frame_):", *look, "    try:", *(f"        {line}" for line in body)]
    return "\n".join(
        [*lines, "    except Exception:", "        return 1", "    return 0", ""]
    ), scope


def _view(variable: Variable, position: int) -> str:
    shape = "".join("n, " if size is None else f"{size}, " for size in variable.type.shape)
    return f"carray(view_address(frame[{position}]), ({shape}), float64)"


@intrinsic
def _generator_at(typingctx: Any, state: Any, uint64: Any, uint32: Any, double: Any) -> Any:
    """Return a NumPy generator over the stream at an address, for use in compiled code only."""
    signature = _generator_type(types.int64, types.int64, types.int64, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = cgutils.create_struct_proxy(_bit_gen_type)(context, builder)
        bits.state_address = bits.state = args[0]
        bits.fnptr_next_uint64, bits.fnptr_next_uint32, bits.fnptr_next_double = args[1:]
        bits.bit_generator = ir.Constant(context.get_value_type(types.uintp), 0)
        # nobody owns it, so it must never reach Python
        bits.parent = cgutils.get_null_value(bits.parent.type)
        generator = cgutils.create_struct_proxy(_generator_type)(context, builder)
        generator.bit_generator = bits._getvalue()
        generator.meminfo = cgutils.get_null_value(generator.meminfo.type)
        generator.parent = cgutils.get_null_value(generator.parent.type)
        return generator._getvalue()

    return signature, codegen


def _new_generator(word: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(word))


@nb.njit(nogil=True)
def _python_generator_at(state: Any, uint64: Any, uint32: Any, double: Any) -> Any:
    """Return a generator that operations in Python can use, seeded from the stream."""
    word = next_word(nb.carray(view_address(state), (4,), nb.uint64))
    with nb.objmode(generator=_generator_type):
        generator = _new_generator(word)
    return generator


def perform_quietly(op_type: type) -> None:
    """Let numba run an Op in Python, as it would by itself, without a warning each time."""
    table = numba_implementations()
    if op_type in table.numba_funcify.registry:
        return

    @table.numba_funcify.register(op_type)
    def _in_python(op: Any, node: Any = None, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Numba will use object mode")
            return table.generate_fallback_impl(op, node, **kwargs)
