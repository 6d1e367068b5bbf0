"""Compilation of PyTensor graphs by numba, with sums and products in a fixed order."""

import hashlib
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from importlib import import_module
from math import exp, inf, nan
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.mode import Mode, get_mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import UnaryScalarOp
from pytensor.scalar.math import TriGamma
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Sum, true_div
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.rewriting.basic import topo_constant_folding
from pytensor.tensor.rewriting.fused_elemwise import FusedElemwise
from pytensor.tensor.rewriting.ofg import inline_symbolic_for_fusion
from pytensor.tensor.rewriting.scalarize import ScalarizedElemwise
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from pm_evidence.core import numerics, random
from pm_evidence.core.codegen import numba
from pm_evidence.core.codegen.numba import built, cfunc, nb, njit
from pm_evidence.core.codegen.vectors import fast_exp, fast_log
from pm_evidence.core.interrupts import uninterrupted
from pm_evidence.core.numerics import total
from pm_evidence.core.version import VERSION, temporary_folder
from pm_evidence.targets.compile.rewrite import with_flags
from pm_evidence.targets.model.upstream import trigamma


def provide_folder() -> None:
    """Give PyTensor a temporary folder if it cannot write to its own.

    Without a folder it cannot compile for numba at all. Its setting is fixed as soon as it is read,
    which happens when PyMC is imported; the modules that use the folder are not imported before the
    first compilation.
    """
    if "pytensor.link.numba.cache" in sys.modules:  # it already uses a folder
        return
    folder = pytensor.config.base_compiledir
    try:
        (folder / "numba").mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder / "numba").close()
    except OSError:
        vars(type(pytensor.config))["base_compiledir"].val = temporary_folder() / "pytensor"


def numba_implementations() -> Any:
    """Return the module that holds the table, after making sure that the table is complete.

    The package that fills the table takes a second to import. If an interrupt stops the import,
    Python discards the package but keeps those of its modules that were complete. Code that imports
    one of these by name then finds most operations without an implementation. Importing the package
    itself, as done here, imports what is missing. This is not done when this module is imported,
    because it takes half as long as all other imports.
    """
    with uninterrupted():
        nb.njit  # noqa: B018  # numba is imported here, with our folders for machine code
        import_module("pytensor.link.numba.dispatch")
    return import_module("pytensor.link.numba.dispatch.basic")


def implement_by(op_type: type, function: Callable[..., Any], version: int) -> None:
    """Enter the compiled function of an operation into the table, unless it has one already."""
    table = numba_implementations()
    if op_type in table.numba_funcify_and_cache_key.registry:
        return

    @table.register_funcify_and_cache_key(op_type)
    def _implementation(op: Any, node: Any = None, **kwargs: Any) -> Any:
        return built(function), f"{op_type.__module__}.{op_type.__name__} {version}"


# Raise it when one of the functions changes: it is a part of the key of code on disk.
_VERSION = 2
# Below this number an exponential is no normal number, and is computed in two factors.
_LOW, _SHIFT = -700.0, 100.0
_UNSHIFT = exp(-_SHIFT)
_FEW_ELEMENTS = 8  # entries of a row: a shorter loop is not faster with vector instructions
_SMALLEST_NORMAL, _TWO_54, _54_LOG_2 = 2.2250738585072014e-308, 2.0**54, 37.42994775023705


@njit(cache=False, forceinline=True)
def _exp(x: Any) -> Any:
    """Return ``exp(x)``."""
    is_low = x < _LOW
    return fast_exp(x + (_SHIFT if is_low else 0.0)) * (_UNSHIFT if is_low else 1.0)


@njit(cache=False, forceinline=True)
def _log(x: Any) -> Any:
    """Return ``log(x)``."""
    is_low = x < _SMALLEST_NORMAL
    found = fast_log(x * (_TWO_54 if is_low else 1.0)) - (_54_LOG_2 if is_low else 0.0)
    found = found if x < inf else x  # infinity and NaN
    found = -inf if x == 0.0 else found
    return nan if x < 0.0 else found


@njit(cache=False, forceinline=True)
def _log1p(x: Any) -> Any:
    """Return ``log(1 + x)``, of small numbers too."""
    above = 1.0 + x
    # what rounding of the sum has lost; not a number at -1 and at infinity
    lost = (x - (above - 1.0)) / above
    return _log(above) + (lost if abs(lost) < 1.0 else 0.0)


@njit(cache=False, forceinline=True)
def _sigmoid(x: Any) -> Any:
    """Return ``1 / (1 + exp(-x))``."""
    e = _exp(-abs(x))
    return (1.0 if x >= 0.0 else e) / (1.0 + e)


@njit(cache=False, forceinline=True)
def _softplus(x: Any) -> Any:
    """Return ``log(1 + exp(x))``."""
    e = _exp(-abs(x))
    above = 1.0 + e  # from 1 to 2
    return (x if x > 0.0 else 0.0) + (fast_log(above) + (e - (above - 1.0)) / above)


class _Elementary(UnaryScalarOp):
    """An elementary function of a float64, by vector instructions where it is in a loop."""

    original: Any
    function: Callable[[Any], Any]

    def __init__(self) -> None:
        super().__init__(ps.upgrade_to_float, name=type(self).__name__)

    def impl(self, x: Any) -> Any:
        """Return the function in Python."""
        return self.original.impl(x)

    def c_code(self, *args: Any) -> str:
        """Refuse: the C backend is not used."""
        raise NotImplementedError


_ORIGINALS = (ps.exp, ps.log, ps.log1p, ps.sigmoid, ps.softplus)
_FUNCTIONS = (_exp, _log, _log1p, _sigmoid, _softplus)
# The operations that take the place of others, by the classes of these.
VECTORISED: dict[type, type[_Elementary]] = {
    type(op): type(f"Vector{type(op).__name__}", (_Elementary,), {"original": op, "function": own})
    for op, own in zip(_ORIGINALS, _FUNCTIONS, strict=True)
}


@node_rewriter([Elemwise])
def replace_elementary(fgraph: Any, node: Any) -> list[Variable] | None:
    """Replace elementary functions of arrays of float64, unless their rows are short."""
    kind = VECTORISED.get(type(node.op.scalar_op))
    (out,) = node.outputs[:1]
    if kind is None or out.type.ndim == 0 or node.inputs[0].type.dtype != "float64":
        return None
    row = out.type.shape[-1]
    if row is not None and row < _FEW_ELEMENTS:
        return None
    implement_by(kind, kind.function, _VERSION)
    return [Elemwise(kind())(*node.inputs)]


# PyTensor merges elementwise operations at 49, and moves sums and indexing into their loops at 100.
# No two positions are equal: PyTensor would order them in another way in each process.
_RECIPROCAL, _ELEMENTARY, _SUM = 48.5, 48.6, 99.0

# Fewer terms than this are added as fast one by one.
_FEW = 200


class OrderedSum(Op):
    """The sum of all entries of an array of float64."""

    __props__ = ()

    def make_node(self, x: Variable) -> Apply:
        """Return the node that adds up ``x``."""
        return Apply(self, [x], [pt.dscalar()])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Add up."""
        outputs[0][0] = _ordered_sum.py_func(*inputs)


def with_ordered_sums(mode: Mode) -> Mode:
    """Return a mode that takes long sums over whole arrays in a fixed order."""
    # raise the version when core.sums changes
    implement_by(OrderedSum, _ordered_sum, version=1)
    return mode.register(
        (dfs_rewriter(_multiply_by_reciprocal), _RECIPROCAL),
        (dfs_rewriter(replace_elementary), _ELEMENTARY),
        (dfs_rewriter(_order_sum), _SUM),
    )


@node_rewriter([true_div])
def _multiply_by_reciprocal(fgraph: Any, node: Any) -> list[Variable] | None:
    """Replace the division of every term by one division."""
    x, y = node.inputs
    by_scalar = all(y.type.broadcastable) and not all(x.type.broadcastable)
    if not by_scalar or not x.type.dtype == y.type.dtype == "float64":
        return None
    return [x * pt.reciprocal(y)]


@node_rewriter([Sum])
def _order_sum(fgraph: Any, node: Any) -> list[Variable] | None:
    (x,) = node.inputs
    whole = node.op.axis is None or len(node.op.axis) == x.type.ndim
    few = None not in x.type.shape and np.prod(x.type.shape) < _FEW
    if not whole or few or not x.type.dtype == node.outputs[0].type.dtype == "float64":
        return None
    # a loop that selects entries by index is not faster with vector instructions
    terms = x.owner.inputs if x.owner is not None else []
    if any(t.owner is not None and isinstance(t.owner.op, AdvancedSubtensor) for t in terms):
        return None
    return [OrderedSum()(x)]


@njit(cache=False)
def _ordered_sum(x: Any) -> Any:
    return np.array(total(np.ravel(x)))


# Operations that read whole numbers, such as counts or the groups of observations, as data.
_READ_NUMBERS = (
    Elemwise,
    FusedElemwise,
    ScalarizedElemwise,
    AdvancedSubtensor,
    AdvancedIncSubtensor,
)

# Part of the key of code on disk. The order of operations is fixed, and the code refers to modules
# of this package, which may be different ones in another version.
_MODULES = tuple(module.__name__ for module in (numba, random, numerics))
_OURS = f"in order, for {__name__}, {', '.join(_MODULES)} of {VERSION}"

# PyTensor merges elementwise operations at 49.
_INLINE, _FOLD = 48.8, 48.9


@dataclass(frozen=True, eq=False)
class Jitted:
    """A compiled graph as a function for compiled callers."""

    function: Any  # function of the graph's inputs, and then of ``arrays``
    # Values of shared variables, followed by large constants of the graph
    arrays: list[NDArray[Any]]
    key: str | None  # identifies the code on disk; None for code that cannot be cached
    # Operations without a numba implementation: correct, but slow and under Python's lock
    slow_ops: tuple[str, ...]

    def key_of(self, lines: Sequence[str]) -> str | None:
        """Return what identifies the code of a caller on disk; None if it cannot be cached."""
        types_of_arrays = [array.dtype.str for array in self.arrays]
        digest = hashlib.sha256(f"{self.key}{lines}{types_of_arrays}".encode())
        return digest.hexdigest() if self.key else None

    def c_function(
        self, signature: Any, arguments: str, body: Sequence[str], scope: dict[str, Any]
    ) -> Any:
        """Return a C function of lines of Python that returns 1 after an exception, and else 0.

        ``scope`` holds the names that these lines use.
        """
        # in models with very many variables, a call with all of them does not compile inside of try
        fill = [f"def fill({arguments}):", *(f"    {line}" for line in body)]
        filling = function_from_source(fill, "fill", scope, self.key_of(fill))
        stop_early = ["    if exception_pending():", "        return 1"] if self.slow_ops else []
        lines = [
            f"def guarded({arguments}):",
            *stop_early,
            "    try:",
            f"        fill({arguments})",
            "    except Exception:",
            "        return 1",
            "    return 0",
        ]
        scope = {"fill": nb.njit(filling), "exception_pending": numba.exception_pending}
        guarded = function_from_source(lines, "guarded", scope, self.key_of([*fill, *lines]))
        with without_numba_hints():
            return cfunc(signature, guarded, cache=self.key is not None)


@contextmanager
def without_numba_hints() -> Iterator[None]:
    """Silence numba's hints about code that the user did not write."""
    with warnings.catch_warnings():
        # operations that run in object mode are reported once, as ``slow_ops``
        warnings.filterwarnings("ignore", message="Numba will use object mode")
        warnings.filterwarnings("ignore", message="Code running in object mode")
        # matrices that PyTensor leaves in Fortran order, which a user cannot change
        warnings.simplefilter("ignore", nb.NumbaPerformanceWarning)
        yield


@contextmanager
def _operations_in_order() -> Iterator[None]:
    """Keep numba from reordering operations, so that all processes get the same digits.

    With PyTensor's default, a process that compiles a function and one that finds it on disk differ
    in the last digit. Most of the speed of that default is regained by ``sums``.
    """
    with with_flags(numba__fastmath=False):
        yield


def compile_graph(inputs: Sequence[Any], outputs: Sequence[Variable], **kwargs: Any) -> Any:
    """Return PyTensor's function of some inputs, optimised for numba; see ``pymc.compile``."""
    numba_implementations()  # PyTensor itself imports them one by one
    implement_by(TriGamma, trigamma, version=1)
    with without_numba_hints(), _operations_in_order():
        mode = _with_folded_constants(with_ordered_sums(get_mode("NUMBA")))
        return pm.compile(inputs, outputs, mode=mode, on_unused_input="ignore", **kwargs)


def _with_folded_constants(mode: Mode) -> Mode:
    """Return a mode that computes what is constant inside of operations with a graph of their own.

    PyTensor inlines these only when it merges operations, after constants were folded. What is
    constant would be computed at every call, and PyTensor cannot merge operations of constants
    alone: it would log an error.
    """
    inline = dfs_rewriter(inline_symbolic_for_fusion)
    # a copy: PyTensor renames what is registered, and would no longer find its own by name
    return mode.register((inline, _INLINE), (copy(topo_constant_folding), _FOLD))


def jit(function: Any, values: Sequence[NDArray[Any]]) -> Jitted:
    """Jit the graph of a function that ``compile_graph`` returned."""
    table = numba_implementations()
    fgraph, lifted = lift_constants(function.maker.fgraph)
    with warnings.catch_warnings(record=True) as caught, _operations_in_order():
        warnings.simplefilter("always")
        jitable, key = table.numba_funcify_and_cache_key(fgraph)
        inner = table.numba_njit(jitable.py_func)
    key = f"{key} {_OURS}" if key is not None else None
    slow_ops = {str(w.message) for w in caught if "object mode" in str(w.message)}
    names = {message.split("'s perform")[0].split("to run ")[-1] for message in slow_ops}
    arrays = [np.asarray(v, order="C") for v in [*values, *lifted]]
    return Jitted(inner, arrays, key, tuple(sorted(names)))


def shared_to_inputs(
    outputs: Sequence[Variable],
) -> tuple[list[Variable], list[Variable], list[NDArray[Any]]]:
    """Replace shared arrays (``pm.Data``) by explicit inputs and return their values.

    Whole numbers, such as the length of a dimension, and sparse matrices become constants instead.
    """
    replacements: dict[Variable, Variable] = {}
    inputs, values = [], []
    for variable in dict.fromkeys(ancestors(outputs)):
        if not isinstance(variable, SharedVariable):
            continue
        if isinstance(variable.type, RandomGeneratorType):
            continue
        value = variable.get_value(borrow=True)
        if not isinstance(value, np.ndarray):
            replacements[variable] = variable.type.make_constant(value)
            continue
        if value.ndim == 0 and variable.type.dtype.startswith(("int", "uint")):
            replacements[variable] = pt.constant(value, dtype=variable.type.dtype)
            continue
        replacements[variable] = variable.type(name=variable.name)
        inputs.append(replacements[variable])
        values.append(value)
    return clone_replace(list(outputs), replacements), inputs, values


def lift_constants(fgraph: Any) -> tuple[Any, list[NDArray[Any]]]:
    """Turn constant arrays of an optimised graph into inputs, and return their values.

    The same model with other data of the same shapes then has the same machine code. Whole numbers
    may be shapes, which have to be known when the code is compiled.
    """
    fgraph = fgraph.clone(check_integrity=False)
    lifted = []
    # in the order of the graph, not of a set, so that the code on disk is found again
    inputs = dict.fromkeys(v for node in fgraph.toposort() for v in node.inputs)
    for variable in inputs:
        value = variable.data if isinstance(variable, Constant) else None
        if not isinstance(value, np.ndarray) or value.ndim == 0:
            continue
        are_data = all(
            isinstance(getattr(client, "op", None), _READ_NUMBERS)
            for client, _ in fgraph.clients[variable]
        )
        if value.size > 1 and (are_data or value.dtype == np.float64):
            new_input = variable.type()
            fgraph.add_input(new_input)
            fgraph.replace(variable, new_input, import_missing=True)
            lifted.append(value)
    return fgraph, lifted


def function_from_source(
    lines: Sequence[str], name: str, scope: Mapping[str, Any], key: str | None
) -> Callable[..., Any]:
    """Return the function that lines of Python define, for numba to compile."""
    # numba's cache looks up the module of the function
    scope = {"__name__": __name__, **{name: built(value) for name, value in scope.items()}}
    numba_implementations()
    source = "\n".join([*lines, ""])
    cache: Any = import_module("pytensor.link.numba.cache")
    return cache.compile_numba_function_src(source, name, global_env=scope, cache_key=key)


def exchanged(
    arrays: Sequence[Any], others: Sequence[tuple[NDArray[Any], NDArray[Any]]]
) -> list[Any]:
    """Return arrays that a function reads, with others in the place of some."""
    new = {id(old): np.ascontiguousarray(other, old.dtype) for old, other in others}
    return [new.get(id(array), array) for array in arrays]


def addresses_of(arrays: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Return address and shape of every array, one after the other, for a compiled function."""
    return np.array([n for a in arrays for n in (a.ctypes.data, *a.shape)], np.int64)
