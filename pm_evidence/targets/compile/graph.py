"""Compilation of PyTensor graphs by numba, and of cached functions that call the result.

The private API of PyTensor and of its numba backend is used only in this module and in
``implementations``; ``tests/targets/compile/test_graph.py`` fails if a release changes it.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from importlib import import_module
from threading import RLock
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.mode import Mode, get_mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import dfs_rewriter
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.rewriting.basic import topo_constant_folding
from pytensor.tensor.rewriting.fused_elemwise import FusedElemwise
from pytensor.tensor.rewriting.ofg import inline_symbolic_for_fusion
from pytensor.tensor.rewriting.scalarize import ScalarizedElemwise
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from pm_evidence.core import random, sums
from pm_evidence.core.codegen import native
from pm_evidence.core.codegen.numba import built, nb
from pm_evidence.core.version import VERSION
from pm_evidence.targets.compile.implementations import numba_implementations
from pm_evidence.targets.compile.sums import with_ordered_sums
from pm_evidence.targets.compile.trigamma import implement_trigamma

__all__ = [
    "Jitted",
    "addresses_of",
    "compile_graph",
    "exchanged",
    "function_from_source",
    "jit",
    "lift_constants",
    "shared_to_inputs",
    "without_numba_hints",
]

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
_MODULES = tuple(module.__name__ for module in (native, random, sums))
_OURS = f"in order, for {__name__}, {', '.join(_MODULES)} of {VERSION}"

# PyTensor merges elementwise operations at 49.
_INLINE, _FOLD = 48.8, 48.9

_flag = RLock()


@dataclass(frozen=True, eq=False)
class Jitted:
    """A compiled graph as a function for compiled callers.

    Parameters
    ----------
    function : callable
        Function of the graph's inputs, and then of ``arrays``.
    arrays : list of ndarray
        Values of shared variables, followed by large constants of the graph.
    key : str or None
        Identifies the code on disk; None for code that cannot be cached.
    slow_ops : tuple of str
        Operations without a numba implementation: correct, but slow and under Python's lock.
    """

    function: Any
    arrays: list[NDArray[Any]]
    key: str | None
    slow_ops: tuple[str, ...]

    def guarded(self, head: str, body: Sequence[str]) -> list[str]:
        """Return the source of a C function that returns 1 after an exception, and else 0.

        Parameters
        ----------
        head : str
            Name and parameters of the function.
        body : sequence of str
            Lines of its body.
        """
        stop_early = ["    if exception_pending():", "        return 1"] if self.slow_ops else []
        return [
            f"def {head}:",
            *stop_early,
            "    try:",
            *(f"        {line}" for line in body),
            "    except Exception:",
            "        return 1",
            "    return 0",
        ]


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
    # all threads share the flag: with a lock, the original value is restored at the end
    with _flag, pytensor.config.change_flags(numba__fastmath=False):
        yield


def compile_graph(inputs: Sequence[Any], outputs: Sequence[Variable], **kwargs: Any) -> Any:
    """Return PyTensor's function of some inputs, optimised for numba; see ``pymc.compile``."""
    numba_implementations()  # PyTensor itself imports them one by one
    implement_trigamma()
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
    """Jit the graph of a function that ``compile_graph`` returned.

    Parameters
    ----------
    function : pytensor Function
        The function; its last inputs are those of ``shared_to_inputs``.
    values : sequence of ndarray
        Values of these inputs.
    """
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

    Returns
    -------
    outputs : list of Variable
        The graphs, as functions of the inputs.
    inputs : list of Variable
        The inputs.
    values : list of ndarray
        Their values.
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
    """Return the function that lines of Python define, for numba to compile.

    Parameters
    ----------
    lines : sequence of str
        Source of the function.
    name : str
        Its name.
    scope : mapping
        The global names that it uses.
    key : str or None
        Identifies its machine code on disk; None if it is not to be stored.
    """
    # numba's cache looks up the module of the function
    scope = {"__name__": __name__, **{name: built(value) for name, value in scope.items()}}
    numba_implementations()
    source = "\n".join([*lines, ""])
    cache: Any = import_module("pytensor.link.numba.cache")
    return cache.compile_numba_function_src(source, name, global_env=scope, cache_key=key)


def exchanged(
    arrays: Sequence[Any], others: Sequence[tuple[NDArray[Any], NDArray[Any]]]
) -> list[Any]:
    """Return arrays that a function reads, with others in the place of some.

    Parameters
    ----------
    arrays : sequence of ndarray
        The arrays.
    others : sequence of pairs of ndarray
        An array that was the value of a shared variable, and one of its shape and dtype.
    """
    new = {id(old): np.ascontiguousarray(other, old.dtype) for old, other in others}
    return [new.get(id(array), array) for array in arrays]


def addresses_of(arrays: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Return address and shape of every array, one after the other, for a compiled function."""
    return np.array([n for a in arrays for n in (a.ctypes.data, *a.shape)], np.int64)
