"""From a PyTensor graph to a C function that kernels call by address.

All private API of PyTensor and of its numba backend that the package relies on stays
in this module; ``tests/targets/compile/test_density.py`` fails loudly when a release
moves it.
"""

import hashlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

import numba as nb
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numba.core.errors import NumbaError, NumbaPerformanceWarning
from numpy.typing import NDArray
from pymc.distributions.discrete import DiscreteUniformRV
from pytensor.compile.mode import get_mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.scalar.basic import Cast
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Prod, Sum
from pytensor.tensor.random.basic import integers
from pytensor.tensor.random.type import RandomGeneratorType, random_generator_type

from pm_evidence.core.codegen.native import (
    DENSITY_SIGNATURE,
    call_density,
    exception_pending,
    skip_doubles,
    view_address,
)
from pm_evidence.core.interrupts import interruptible
from pm_evidence.core.version import VERSION
from pm_evidence.targets.compile.implementations import numba_implementations
from pm_evidence.targets.compile.sums import with_ordered_sums

__all__ = [
    "CompiledDensity",
    "compile_density",
    "compile_draws",
    "in_double_precision",
    "on_one_generator",
]

# Below this size a constant is cheaper embedded in the code than read through a pointer.
_LIFT_SIZE = 32

# Part of the key of code on disk: its operations keep their order, and it names modules of ours,
# which another version of the package may have elsewhere.
_OURS = f"in order, for {__name__} of {VERSION}"

_flag = RLock()


@dataclass(frozen=True)
class CompiledDensity:
    """A density in machine code.

    Parameters
    ----------
    address : int
        Address of a function with ``core.native.DENSITY_SIGNATURE``.
    data : ndarray of int64
        Address and shape of every array that the function reads, one after the other.
    has_gradient : bool
        Whether the function writes gradients.
    slow_ops : tuple of str
        Operations without a numba implementation: right, but slow and under Python's lock.
    """

    address: int
    data: NDArray[np.int64]
    has_gradient: bool
    slow_ops: tuple[str, ...] = ()
    _keep_alive: tuple[Any, ...] = field(default=(), repr=False)

    def evaluate(
        self, x: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Return log densities ``(n, 2)`` and gradients ``(n, 2, n_dim)`` (or None) at ``x``."""
        x = np.ascontiguousarray(x)
        n, n_dim = x.shape
        log_density = np.empty((n, 2))
        gradient = np.empty((n if self.has_gradient else 1, 2, n_dim))
        _evaluate(self.address, self.data, x, log_density, gradient, self.has_gradient)
        return log_density, gradient if self.has_gradient else None

    def values(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return log densities ``(n, 2)`` at ``x``; gradients are not kept."""
        x = np.ascontiguousarray(x)
        log_density = np.empty((len(x), 2))
        not_kept = np.empty((1, 2, x.shape[1]))
        _evaluate(self.address, self.data, x, log_density, not_kept, False)
        return log_density


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _evaluate(address, data, x, log_density, gradient, has_gradient):
    for i in range(x.shape[0]):
        slot = i if has_gradient else 0
        if call_density(address, x[i], log_density[i], gradient[slot], data) != 0:
            log_density[i, :] = np.nan


def in_double_precision(outputs: Sequence[Variable]) -> list[Variable]:
    """Return the graphs with elementwise float operations, and sums of them, done in float64.

    PyTensor keeps Python literals as int8 or float32 and takes their logarithms in float32, which
    is off by 3e-3 nats after 1e5 observations.
    """
    memo: dict[Variable, Variable] = {}
    for node in io_toposort([], outputs):
        inputs = [memo.get(v, v) for v in node.inputs]
        op = node.op
        if _is_single_precision(node):
            inputs = [
                v if v.type.dtype in ("bool", "float64") else pt.cast(v, "float64") for v in inputs
            ]
            # these would round their result back
            if isinstance(op, Sum | Prod):
                op = op.clone(dtype="float64", acc_dtype="float64")
            elif isinstance(op, MakeVector):
                op = MakeVector("float64")
        if any(new is not old for new, old in zip(inputs, node.inputs, strict=True)):
            if op is node.op:
                new_node = node.clone_with_new_inputs(inputs, strict=False)
            else:
                new_node = op.make_node(*inputs)
            memo.update(zip(node.outputs, new_node.outputs, strict=True))
    return [memo.get(out, out) for out in outputs]


def _is_single_precision(node: Any) -> bool:
    if isinstance(node.op, Elemwise):
        if isinstance(node.op.scalar_op, Cast):  # the user's own choice
            return False
    elif not isinstance(node.op, Sum | Prod | MakeVector):
        return False
    return any(out.type.dtype in ("float16", "float32") for out in node.outputs)


@interruptible()
def compile_density(
    parts: Sequence[Variable],
    log_density: Sequence[Variable],
    gradient: Sequence[Sequence[Variable]] | None = None,
    compile_kwargs: Mapping[str, Any] | None = None,
) -> CompiledDensity:
    """Compile log prior and log likelihood of a flat vector, with or without gradients.

    Parameters
    ----------
    parts : sequence of TensorVariable
        The variables that both graphs depend on, of static shapes: the flat vector is their values,
        one after the other.
    log_density : two scalar TensorVariable
        Log prior and log likelihood.
    gradient : two sequences of TensorVariable, optional
        Their gradients with respect to every part.
    compile_kwargs : mapping, optional
        Passed on to ``pymc.compile``.

    Notes
    -----
    ``pm.Data`` and large constants are passed by pointer, so new data of the same kind need no new
    compilation; the machine code is kept on disk in PyTensor's own cache.
    """
    terms = [g for of_term in gradient or () for g in of_term]
    outputs, data_inputs, values = _shared_to_inputs([*log_density, *terms])
    function = _compile([*parts, *data_inputs], outputs, **(compile_kwargs or {}))
    inner, arrays, key, slow_ops = _jit(function, values)
    c_function = _c_function(
        inner,
        [part.type.shape for part in parts],
        arrays,
        gradient is not None,
        key,
        in_python=bool(slow_ops),
    )
    packed = np.array([n for a in arrays for n in (a.ctypes.data, *a.shape)] or [0], np.int64)
    return CompiledDensity(
        c_function.address, packed, gradient is not None, slow_ops, (c_function, arrays)
    )


@interruptible()
def compile_draws(
    outputs: Sequence[Variable], shapes: Sequence[tuple[int, ...]]
) -> Callable[[NDArray[np.float64], np.random.Generator], None] | None:
    """Compile random draws of some variables, jointly, as rows of one array.

    Parameters
    ----------
    outputs : sequence of TensorVariable
        Graphs of random variables; each draw is their values, flat, one after the other.
    shapes : sequence of tuple of int
        Shape of every output.

    Returns
    -------
    callable or None
        ``draw(out, generator)`` fills the rows of ``out``. None where some operation holds more
        than one random generator, which cannot be threaded onto a single one, or has no numba
        implementation: compiling would then cost more than it saves.
    """
    outputs, shared, values = _shared_to_inputs(list(outputs))
    threaded = on_one_generator(outputs)
    if threaded is None:
        return None
    outputs, generator, last = threaded
    outputs = [pt.cast(pt.as_tensor(v), "float64") for v in outputs]
    function = _compile([pytensor.In(generator, mutable=True), *shared], [last, *outputs])
    inner, arrays, key, slow_ops = _jit(function, values)
    if slow_ops:
        return None
    arguments = ", ".join(["generator", *(f"a{i}" for i in range(len(arrays)))])
    results = ", ".join(["generator", *(f"value{i}" for i in range(len(outputs)))])
    lines = [
        f"def draws(out, {arguments}):",
        "    for row in range(out.shape[0]):",
        f"        {results} = inner({arguments})",
    ]
    for i, (start, shape) in enumerate(zip(_starts(shapes), shapes, strict=False)):
        lines += _written(f"value{i}", shape, "out[row, ", start, indent=8)
    source = "\n".join([*lines, ""])
    loop = compile_numba_function_src(
        source,
        "draws",
        # as part of the loop, and no function of its own, it is optimised once
        global_env={"__name__": __name__, "inner": nb.njit(inline="always")(inner.py_func)},
        cache_key=hashlib.sha256(f"{key}{source}".encode()).hexdigest() if key else None,
    )
    compiled = nb.njit(loop, nogil=True, cache=key is not None)
    try:
        with _quietly():
            compiled(np.empty((0, 1)), np.random.default_rng(0), *arrays)
    except NumbaError:
        return None
    return lambda out, generator: compiled(out, generator, *arrays)


def on_one_generator(
    outputs: Sequence[Variable],
) -> tuple[list[Variable], Variable, Variable] | None:
    """Let all draws of a graph follow each other on one random generator."""
    generator = current = random_generator_type("generator")
    memo: dict[Variable, Variable] = {}
    for node in io_toposort([], outputs):
        inputs = [memo.get(v, v) for v in node.inputs]
        random = [i for i, v in enumerate(inputs) if isinstance(v.type, RandomGeneratorType)]
        if random:
            update = getattr(node.op, "update", None)
            updates = update(node) if update is not None else {}
            if len(random) != 1 or len(updates) != 1:
                return None
            inputs[random[0]] = current
        if any(new is not old for new, old in zip(inputs, node.inputs, strict=True)):
            if isinstance(node.op, DiscreteUniformRV):  # which numba knows by another name
                *same, lower, upper = inputs
                bounds = (pt.cast(bound, "int64") for bound in (lower, upper + 1))
                new_node = integers.make_node(*same, *bounds)
            else:
                new_node = node.clone_with_new_inputs(inputs, strict=False)
            memo.update(zip(node.outputs, new_node.outputs, strict=True))
            if random:
                (successor,) = updates.values()
                current = memo[successor]
    return [memo.get(out, out) for out in outputs], generator, current


@contextmanager
def _quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        # what runs in object mode is told once, as ``slow_ops``
        warnings.filterwarnings("ignore", message="Numba will use object mode")
        warnings.filterwarnings("ignore", message="Code running in object mode")
        # of matrices that PyTensor leaves in Fortran order: nothing that a user could do
        warnings.simplefilter("ignore", NumbaPerformanceWarning)
        yield


@contextmanager
def _exactly() -> Iterator[None]:
    """Let numba change no order of operations, so that all processes get the same digits.

    Under PyTensor's default a process that compiles a function, and one that finds it on disk,
    differ in the last digit. ``ordered_sums`` has most of what that default gains.
    """
    # the flag is one for all threads, and the last to leave must find what the first did
    with _flag, pytensor.config.change_flags(numba__fastmath=False):
        yield


def _compile(inputs: Sequence[Any], outputs: Sequence[Variable], **kwargs: Any) -> Any:
    numba_implementations()  # which PyTensor imports bit by bit
    with _quietly(), _exactly():
        mode = with_ordered_sums(get_mode("NUMBA"))
        return pm.compile(inputs, outputs, mode=mode, on_unused_input="ignore", **kwargs)


def _jit(
    function: Any, values: Sequence[NDArray[Any]]
) -> tuple[Any, list[NDArray[Any]], str | None, tuple[str, ...]]:
    """Return the jitted graph of a compiled function, and what it reads besides its first input.

    Returns
    -------
    inner : callable
        Function of the first input and of ``arrays``, for compiled callers.
    arrays : list of ndarray
        ``values``, followed by large constants of the graph.
    key : str or None
        Identifies the code on disk; None for code that cannot be cached.
    slow_ops : tuple of str
        Operations that run in Python.
    """
    table = numba_implementations()
    fgraph, lifted = _lift_constants(function.maker.fgraph)
    with warnings.catch_warnings(record=True) as caught, _exactly():
        warnings.simplefilter("always")
        jitable, key = table.numba_funcify_and_cache_key(fgraph)
        inner = table.numba_njit(jitable.py_func)
    key = f"{key} {_OURS}" if key is not None else None
    slow_ops = {str(w.message) for w in caught if "object mode" in str(w.message)}
    names = {message.split("'s perform")[0].split("to run ")[-1] for message in slow_ops}
    arrays = [np.asarray(v, order="C") for v in [*values, *lifted]]
    return inner, arrays, key, tuple(sorted(names))


def _shared_to_inputs(
    outputs: list[Variable],
) -> tuple[list[Variable], list[Variable], list[NDArray[Any]]]:
    """Replace shared arrays (``pm.Data``) by explicit inputs and return their values.

    Whole numbers, such as the length of a dimension, become constants instead.
    """
    replacements: dict[Variable, Variable] = {}
    inputs, values = [], []
    for variable in dict.fromkeys(ancestors(outputs)):
        if not isinstance(variable, SharedVariable):
            continue
        if isinstance(variable.type, RandomGeneratorType):
            continue
        value = variable.get_value(borrow=True)
        if np.ndim(value) == 0 and variable.type.dtype.startswith(("int", "uint")):
            replacements[variable] = pt.constant(value, dtype=variable.type.dtype)
            continue
        replacements[variable] = variable.type(name=variable.name)
        inputs.append(replacements[variable])
        values.append(value)
    return clone_replace(outputs, replacements), inputs, values


def _lift_constants(fgraph: Any) -> tuple[Any, list[NDArray[Any]]]:
    """Turn large constants of an optimised graph into inputs, and return their values."""
    fgraph = fgraph.clone(check_integrity=False)
    lifted = []
    # in the order of the graph, not that of a set, for the code on disk to be found again
    inputs = dict.fromkeys(v for node in fgraph.toposort() for v in node.inputs)
    for variable in inputs:
        if not isinstance(variable, Constant) or getattr(variable.type, "ndim", 0) == 0:
            continue
        elementwise = all(
            isinstance(getattr(client, "op", None), Elemwise)
            for client, _ in fgraph.clients[variable]
        )
        value = variable.data
        if value.size >= _LIFT_SIZE and (elementwise or value.dtype == np.float64):
            new_input = variable.type()
            fgraph.add_input(new_input)
            fgraph.replace(variable, new_input, import_missing=True)
            lifted.append(value)
    return fgraph, lifted


def _c_function(
    inner: Any,
    shapes: Sequence[tuple[int, ...]],
    arrays: Sequence[NDArray[Any]],
    with_gradient: bool,
    key: str | None,
    *,
    in_python: bool,
) -> Any:
    """Wrap a jitted function of parts and arrays into the C signature, cached under ``key``."""
    scope: dict[str, Any] = {
        "__name__": __name__,  # numba's cache looks the function's module up
        "carray": nb.carray,
        "view_address": view_address,
        "skip_doubles": skip_doubles,
        "exception_pending": exception_pending,
        "inner": inner,
    }
    starts = _starts(shapes)
    reads = [
        f"    x{i} = carray(skip_doubles(x_, {start}), {shape})"
        for i, (start, shape) in enumerate(zip(starts, shapes, strict=False))
    ]
    arguments, position = [f"x{i}" for i in range(len(shapes))], 0
    for i, array in enumerate(arrays):
        scope[f"type{i}"] = nb.from_dtype(array.dtype)
        lengths = "".join(f"data[{position + 1 + k}], " for k in range(array.ndim))
        reads.append(f"    a{i} = carray(view_address(data[{position}]), ({lengths}), type{i})")
        arguments.append(f"a{i}")
        position += 1 + array.ndim
    results, writes = ["log_prior", "log_likelihood"], []
    if with_gradient:
        writes.append(f"    gradient = carray(gradient_, (2, {starts[-1]}))")
        for row in range(2):
            for i, (start, shape) in enumerate(zip(starts, shapes, strict=False)):
                results.append(f"g{row}_{i}")
                writes += _written(results[-1], shape, f"gradient[{row}, ", start, indent=4)
    # a call of so many arguments as some models have variables does not compile inside of try
    filled = [
        "def fill(x_, out_, gradient_, data_):",
        "    out = carray(out_, (2,))",
        f"    data = carray(data_, ({max(position, 1)},))",
        *reads,
        f"    {', '.join(results)} = inner({', '.join(arguments)})",
        "    out[0] = log_prior.item()",
        "    out[1] = log_likelihood.item()",
        *writes,
        "",
    ]
    guarded = [
        "def density(x_, out_, gradient_, data_):",
        *(["    if exception_pending():", "        return 1"] if in_python else []),
        "    try:",
        "        fill(x_, out_, gradient_, data_)",
        "    except Exception:",
        "        return 1",
        "    return 0",
        "",
    ]
    source = "\n".join([*filled, *guarded])
    digest = hashlib.sha256(f"{key}{source}{[a.dtype.str for a in arrays]}".encode()).hexdigest()
    names = [f"{digest}_{part}" if key else None for part in ("fill", "density")]
    fill = compile_numba_function_src(
        "\n".join(filled), "fill", global_env=scope, cache_key=names[0]
    )
    function = compile_numba_function_src(
        "\n".join(guarded),
        "density",
        global_env=scope | {"fill": nb.njit(fill)},
        cache_key=names[1],
    )
    with _quietly():
        return nb.cfunc(DENSITY_SIGNATURE, cache=key is not None)(function)


def _starts(shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """Return where every part begins in the flat vector, and where the last one ends."""
    return [0, *np.cumsum([math.prod(shape) for shape in shapes], dtype=int).tolist()]


def _written(name: str, shape: tuple[int, ...], target: str, start: int, indent: int) -> list[str]:
    """Return lines that copy an array into a row from position ``start`` on.

    Loops, because an assignment of whole rows compiles numba's message on shapes too, for seconds.
    """
    margin, step = " " * indent, " " * 4
    if not shape:
        return [f"{margin}{target}{start}] = {name}.item()"]
    indices = [f"i{axis}" for axis in range(len(shape))]
    lines = [
        f"{margin}{step * axis}for {index} in range({length}):"
        for axis, (index, length) in enumerate(zip(indices, shape, strict=True))
    ]
    place = "0"
    for index, length in zip(indices, shape, strict=True):
        place = f"({place} * {length} + {index})"
    element = f"{name}[{', '.join(indices)}]"
    return [*lines, f"{margin}{step * len(shape)}{target}{start} + {place}] = {element}"]
